"""Solutions of the exercises of chapter 1, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="01-78626880",
        wrong={
            "does not shift the target": """
                log_p = model(source, target).log_softmax(dim=-1)
                words = log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)
                return words.masked_fill(target == PAD, 0.0).sum(dim=1)
            """,
            "counts the padding": """
                log_p = model(source, shift_right(target)).log_softmax(dim=-1)
                return log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1).sum(dim=1)
            """,
            "takes the mean over words": """
                log_p = model(source, shift_right(target)).log_softmax(dim=-1)
                words = log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)
                real = target != PAD
                return (words * real).sum(dim=1) / real.sum(dim=1)
            """,
            "adds raw logits": """
                logits = model(source, shift_right(target))
                words = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
                return words.masked_fill(target == PAD, 0.0).sum(dim=1)
            """,
            "runs free": """
                said = free_run(model, source, target.shape[1])
                log_p = model(source, shift_right(said)).log_softmax(dim=-1)
                words = log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)
                return words.masked_fill(target == PAD, 0.0).sum(dim=1)
            """,
            "takes the softmax over the positions": """
                log_p = model(source, shift_right(target)).log_softmax(dim=1)
                words = log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)
                return words.masked_fill(target == PAD, 0.0).sum(dim=1)
            """,
            "one number for the batch": """
                logits = model(source, shift_right(target)).flatten(0, 1)
                loss = F.cross_entropy(logits, target.flatten(), ignore_index=PAD)
                return -loss * (target != PAD).sum(dim=1)
            """,
            "leaves the last word out": """
                log_p = model(source, shift_right(target)).log_softmax(dim=-1)
                words = log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)
                return words.masked_fill(target == PAD, 0.0)[:, :-1].sum(dim=1)
            """,
            "leaves the end of the sentence out": """
                log_p = model(source, shift_right(target)).log_softmax(dim=-1)
                words = log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)
                return words.masked_fill(target <= EOS, 0.0).sum(dim=1)
            """,
            "adds an end to every sentence": """
                y = F.pad(target, (0, 1), value=EOS)
                log_p = model(source, shift_right(y)).log_softmax(dim=-1)
                words = log_p.gather(-1, y.unsqueeze(-1)).squeeze(-1)
                return words.masked_fill(y == PAD, 0.0).sum(dim=1)
            """,
            "cuts the batch at its shortest sentence": """
                log_p = model(source, shift_right(target)).log_softmax(dim=-1)
                words = log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)
                return words[:, : (target != PAD).sum(dim=1).min()].sum(dim=1)
            """,
            "logarithms to the base 2": """
                log_p = model(source, shift_right(target)).log_softmax(dim=-1)
                words = log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1) / math.log(2)
                return words.masked_fill(target == PAD, 0.0).sum(dim=1)
            """,
            "returns the loss": """
                logits = model(source, shift_right(target)).transpose(1, 2)
                loss = F.cross_entropy(
                    logits, target, ignore_index=PAD, reduction="none"
                )
                return loss.sum(dim=1)
            """,
            "the probability of the likeliest words": """
                log_p = model(source, shift_right(target)).log_softmax(dim=-1)
                best = log_p.max(dim=-1).values
                return best.masked_fill(target == PAD, 0.0).sum(dim=1)
            """,
        },
        right={
            "from the cross-entropy of each word": """
                logits = model(source, shift_right(target)).transpose(1, 2)
                loss = F.cross_entropy(
                    logits, target, ignore_index=PAD, reduction="none"
                )
                return -loss.sum(dim=1)
            """,
            "one pair at a time": """
                totals = []
                for x, y in zip(source, target):
                    y = y[y != PAD][None]
                    log_p = model(x[None], shift_right(y)).log_softmax(dim=-1)[0]
                    totals.append(log_p[torch.arange(y.size(1)), y[0]].sum())
                return torch.stack(totals)
            """,
        },
    ),
    Exercise(
        cell="01-cf2943af",
        wrong={
            "the same for both orders": """
                return [n] * n
            """,
            "counts the reading of word i itself": """
                rest = [i if reverse else n - i + 1 for i in range(1, n + 1)]
                return [r + i for i, r in enumerate(rest, start=1)]
            """,
            "forgets the decoder's steps": """
                return [i - 1 if reverse else n - i for i in range(1, n + 1)]
            """,
            "reverses the target, not the source": """
                return [2 * (n - i) + 1 if reverse else n for i in range(1, n + 1)]
            """,
            "counts the words of the decoder from 0": """
                return [2 * i if reverse else n - 1 for i in range(n)]
            """,
            "from the last word to the first": """
                return [2 * i - 1 for i in range(n, 0, -1)] if reverse else [n] * n
            """,
            "spreads the mean over all words": """
                return [(n + 1) // 2] * n if reverse else [n] * n
            """,
            "one step too few when reversed": """
                return [2 * (i - 1) for i in range(1, n + 1)] if reverse else [n] * n
            """,
            "right for ten words only": """
                return list(range(1, 20, 2)) if reverse else [10] * 10
            """,
        },
        right={
            "in closed form": """
                return list(range(1, 2 * n, 2)) if reverse else [n] * n
            """,
        },
    ),
    Exercise(
        cell="01-526238a5",
        wrong={
            "splices: first the reference, then its own": """
                free = shift_right(free_run(model, source, target.shape[1]))
                split = round((1 - own_share) * target.shape[1])
                return torch.cat([shift_right(target)[:, :split], free[:, split:]], 1)
            """,
            "one draw for the whole batch": """
                reads = torch.full((len(source), 1), BOS)
                for t in range(target.shape[1] - 1):
                    own = model(source, reads)[:, -1].argmax(dim=-1)
                    word = own if torch.rand(()) < own_share else target[:, t]
                    reads = torch.cat([reads, word.unsqueeze(1)], dim=1)
                return reads
            """,
            "one draw for each sentence": """
                coin = torch.rand(len(source)) < own_share
                reads = torch.full((len(source), 1), BOS)
                for t in range(target.shape[1] - 1):
                    own = model(source, reads)[:, -1].argmax(dim=-1)
                    word = torch.where(coin, own, target[:, t])
                    reads = torch.cat([reads, word.unsqueeze(1)], dim=1)
                return reads
            """,
            "the share is that of the reference": """
                reads = torch.full((len(source), 1), BOS)
                for t in range(target.shape[1] - 1):
                    own = model(source, reads)[:, -1].argmax(dim=-1)
                    word = torch.where(
                        torch.rand(len(source)) < own_share, target[:, t], own
                    )
                    reads = torch.cat([reads, word.unsqueeze(1)], dim=1)
                return reads
            """,
            "its own words from a teacher-forced pass": """
                forced = model(source, shift_right(target)).argmax(dim=-1)
                coin = torch.rand(target.shape) < own_share
                return shift_right(torch.where(coin, forced, target))
            """,
            "its own words from a free run": """
                free = free_run(model, source, target.shape[1])
                coin = torch.rand(target.shape) < own_share
                return shift_right(torch.where(coin, free, target))
            """,
            "draws a word, not the likeliest": """
                reads = torch.full((len(source), 1), BOS)
                for t in range(target.shape[1] - 1):
                    p = model(source, reads)[:, -1].softmax(dim=-1)
                    own = torch.multinomial(p, 1).squeeze(1)
                    word = torch.where(
                        torch.rand(len(source)) < own_share, own, target[:, t]
                    )
                    reads = torch.cat([reads, word.unsqueeze(1)], dim=1)
                return reads
            """,
            "always half and half, but for 0 and 1": """
                share = own_share if own_share in (0.0, 1.0) else 0.5
                reads = torch.full((len(source), 1), BOS)
                for t in range(target.shape[1] - 1):
                    own = model(source, reads)[:, -1].argmax(dim=-1)
                    word = torch.where(
                        torch.rand(len(source)) < share, own, target[:, t]
                    )
                    reads = torch.cat([reads, word.unsqueeze(1)], dim=1)
                return reads
            """,
            "the next reference word": """
                reads = torch.full((len(source), 1), BOS)
                for t in range(target.shape[1] - 1):
                    own = model(source, reads)[:, -1].argmax(dim=-1)
                    word = torch.where(
                        torch.rand(len(source)) < own_share, own, target[:, t + 1]
                    )
                    reads = torch.cat([reads, word.unsqueeze(1)], dim=1)
                return reads
            """,
            "every second word its own": """
                reads = torch.full((len(source), 1), BOS)
                for t in range(target.shape[1] - 1):
                    own = model(source, reads)[:, -1].argmax(dim=-1)
                    mine = int((t + 1) * own_share) > int(t * own_share)
                    word = own if mine else target[:, t]
                    reads = torch.cat([reads, word.unsqueeze(1)], dim=1)
                return reads
            """,
            "once its own, always its own": """
                reads = torch.full((len(source), 1), BOS)
                free = torch.zeros(len(source), dtype=torch.bool)
                for t in range(target.shape[1] - 1):
                    own = model(source, reads)[:, -1].argmax(dim=-1)
                    free = free | (torch.rand(len(source)) < own_share)
                    word = torch.where(free, own, target[:, t])
                    reads = torch.cat([reads, word.unsqueeze(1)], dim=1)
                return reads
            """,
            "the same coins at each call": """
                rng = torch.Generator().manual_seed(0)
                reads = torch.full((len(source), 1), BOS)
                for t in range(target.shape[1] - 1):
                    own = model(source, reads)[:, -1].argmax(dim=-1)
                    coin = torch.rand(len(source), generator=rng) < own_share
                    word = torch.where(coin, own, target[:, t])
                    reads = torch.cat([reads, word.unsqueeze(1)], dim=1)
                return reads
            """,
            "one coin for each position": """
                coin = torch.rand(target.shape[1]) < own_share
                reads = torch.full((len(source), 1), BOS)
                for t in range(target.shape[1] - 1):
                    own = model(source, reads)[:, -1].argmax(dim=-1)
                    word = own if coin[t] else target[:, t]
                    reads = torch.cat([reads, word.unsqueeze(1)], dim=1)
                return reads
            """,
            "writes into the target": """
                target[:, :-1] = target[:, :-1].clone()
                reads = shift_right(target)
                for t in range(1, target.shape[1]):
                    own = model(source, reads[:, :t])[:, -1].argmax(dim=-1)
                    coin = torch.rand(len(source)) < own_share
                    target[:, t - 1] = torch.where(coin, own, target[:, t - 1])
                    reads = shift_right(target)
                return reads
            """,
        },
        right={
            "all coins thrown first, filled in place": """
                coins = torch.bernoulli(torch.full(target.shape, own_share)).bool()
                reads = shift_right(target)
                for t in range(1, target.shape[1]):
                    own = model(source, reads[:, :t])[:, -1].argmax(dim=-1)
                    reads[:, t] = torch.where(coins[:, t], own, reads[:, t])
                return reads
            """,
        },
    ),
]
