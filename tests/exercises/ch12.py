"""Solutions of the exercises of chapter 12, right and wrong."""

from harness import Exercise

SAMPLER = """
model.eval()
limits = length_limits(model, source, 50)
decoder = CachedDecoder(model, source)
word, said = torch.full_like(limits, BOS_ID), []
ended = torch.zeros_like(limits, dtype=torch.bool)
while not ended.all():
    logits = decoder.step(word.unsqueeze(1)).squeeze(1) / temperature
    logits[:, NEVER_SAID] = -math.inf
    word = torch.multinomial(logits.softmax(dim=-1), 1).squeeze(1)
    word = word.masked_fill(ended, PAD_ID)
    said.append(word)
    ended |= (word == EOS_ID) | (len(said) >= limits)
return [up_to_end(row) for row in torch.stack(said, dim=1).tolist()]
"""


def but(old: str, new: str) -> str:
    """The sampler with one line or a part of it changed."""
    assert old in SAMPLER
    return SAMPLER.replace(old, new)


DRAW = "word = torch.multinomial(logits.softmax(dim=-1), 1).squeeze(1)"

EXERCISES = [
    Exercise(
        cell="12-7a90c3e1",
        wrong={
            "is found by a beam of two": """
                return {
                    (): {"a": 0.6, "b": 0.4},
                    ("a",): {"x": 0.5, "y": 0.3, "z": 0.2},
                    ("b",): {"x": 0.9, "y": 0.1},
                }
            """,
            "hides the best from a beam of three, too": """
                table = {(): {"a": 0.28, "b": 0.26, "c": 0.24, "d": 0.22}}
                table[("d",)] = {"x": 0.95, "y": 0.05}
                rows = {"a": 0.40, "b": 0.41, "c": 0.42}
                return table | {
                    (w,): {"x": p, "y": 0.33, "z": 0.67 - p} for w, p in rows.items()
                }
            """,
            "relies on a tie of the first words": """
                table = {(): {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}}
                table[("c",)] = {"x": 0.95, "y": 0.05}
                return table | {(w,): {"x": 0.4, "y": 0.34, "z": 0.26} for w in "ab"}
            """,
            "has probabilities that are no distribution": """
                table = {(): {"a": 0.35, "b": 0.33, "c": 0.30}}
                table[("c",)] = {"x": 0.95, "y": 0.2}
                return table | {(w,): {"x": 0.4, "y": 0.34, "z": 0.25} for w in "ab"}
            """,
            "gives percent": """
                table = {(): {"a": 35, "b": 33, "c": 32}, ("c",): {"x": 95, "y": 5}}
                return table | {(w,): {"x": 40, "y": 34, "z": 26} for w in "ab"}
            """,
            "leaves out what follows the first two words": """
                return {
                    (): {"a": 0.4, "b": 0.35, "c": 0.25},
                    ("a",): {"x": 0.5, "y": 0.3, "z": 0.2},
                    ("b",): {"x": 0.6, "y": 0.4},
                }
            """,
            "hides the best from no beam of two": """
                return {
                    (): {"a": 0.40, "b": 0.35, "c": 0.25},
                    ("a",): {"x": 0.4, "y": 0.35, "z": 0.25},
                    ("b",): {"x": 0.9, "y": 0.1},
                    ("c",): {"x": 0.8, "y": 0.2},
                }
            """,
            "has a sentence of three words": """
                table = {(): {"a": 0.35, "b": 0.33, "c": 0.32}}
                table |= {("c",): {"x": 0.95, "y": 0.05}, ("c", "x"): {"z": 1.0}}
                return table | {(w,): {"x": 0.4, "y": 0.34, "z": 0.26} for w in "ab"}
            """,
            "has two sentences that are equally likely": """
                table = {(): {"a": 0.35, "b": 0.33, "c": 0.32}}
                table[("c",)] = {"x": 0.95, "y": 0.05}
                return table | {(w,): {"x": 0.4, "y": 0.3, "z": 0.3} for w in "ab"}
            """,
        },
        right={
            "with nearly certain second words": """
                return {
                    (): {"der": 0.36, "ein": 0.34, "kein": 0.30},
                    ("der",): {"Hund": 0.51, "Hut": 0.49},
                    ("ein",): {"Hund": 0.52, "Hut": 0.48},
                    ("kein",): {"Mensch": 0.99, "Hut": 0.01},
                }
            """,
        },
    ),
    Exercise(
        cell="12-d0263e80",
        wrong={
            "leaves the end token out": """
                target_input = torch.tensor([[BOS_ID] + ids[:-1]])
                logits = model(source, target_input)
                logits[..., NEVER_SAID] = -math.inf
                named = torch.tensor([ids], dtype=torch.long).unsqueeze(-1)
                log_p = logits.log_softmax(dim=-1)[:, : len(ids)]
                return log_p.gather(-1, named).sum().item()
            """,
            "does not rule out padding and begin": """
                target_input = torch.tensor([[BOS_ID] + ids], device=source.device)
                target_output = torch.tensor([ids + [EOS_ID]], device=source.device)
                log_p = model(source, target_input).log_softmax(dim=-1)
                return log_p.gather(-1, target_output.unsqueeze(-1)).sum().item()
            """,
            "rules out padding only": """
                target_input = torch.tensor([[BOS_ID] + ids], device=source.device)
                target_output = torch.tensor([ids + [EOS_ID]], device=source.device)
                logits = model(source, target_input)
                logits[..., PAD_ID] = -math.inf
                log_p = logits.log_softmax(dim=-1)
                return log_p.gather(-1, target_output.unsqueeze(-1)).sum().item()
            """,
            "takes the mean": """
                target_input = torch.tensor([[BOS_ID] + ids], device=source.device)
                target_output = torch.tensor([ids + [EOS_ID]], device=source.device)
                logits = model(source, target_input)
                logits[..., NEVER_SAID] = -math.inf
                log_p = logits.log_softmax(dim=-1)
                return log_p.gather(-1, target_output.unsqueeze(-1)).mean().item()
            """,
            "scores the input and not the next word": """
                target_input = torch.tensor([[BOS_ID] + ids + [EOS_ID]])
                logits = model(source, target_input)[:, 1:]
                logits[..., NEVER_SAID] = -math.inf
                log_p = logits.log_softmax(dim=-1)
                named = target_input[:, 1:].unsqueeze(-1)
                return log_p.gather(-1, named).sum().item()
            """,
            "takes the best word at each position": """
                target_input = torch.tensor([[BOS_ID] + ids], device=source.device)
                logits = model(source, target_input)
                logits[..., NEVER_SAID] = -math.inf
                return logits.log_softmax(dim=-1).amax(dim=-1).sum().item()
            """,
            "rules out after the softmax": """
                target_input = torch.tensor([[BOS_ID] + ids], device=source.device)
                target_output = torch.tensor([ids + [EOS_ID]], device=source.device)
                log_p = model(source, target_input).log_softmax(dim=-1)
                log_p[..., NEVER_SAID] = -math.inf
                return log_p.gather(-1, target_output.unsqueeze(-1)).sum().item()
            """,
            "skips the first word": """
                words = torch.tensor([BOS_ID, *ids, EOS_ID])
                logits = model(source, words[None, :-1])[0, 1:]
                logits[:, NEVER_SAID] = -math.inf
                log_p = logits.log_softmax(dim=-1)
                return log_p.gather(-1, words[2:, None]).sum().item()
            """,
            "begins without the begin token": """
                words = torch.tensor([*ids, EOS_ID])
                logits = model(source, words[None])[0]
                logits[:, NEVER_SAID] = -math.inf
                log_p = logits.log_softmax(dim=-1)
                return log_p.gather(-1, words[:, None]).sum().item()
            """,
            "loops over the words": """
                decoder, total = CachedDecoder(model, source), 0.0
                for word, named in zip([BOS_ID] + ids, ids + [EOS_ID]):
                    logits = decoder.step(torch.tensor([[word]]))[0, 0]
                    logits[NEVER_SAID] = -math.inf
                    total += logits.log_softmax(dim=-1)[named].item()
                return total
            """,
            "changes the list": """
                ids.append(EOS_ID)
                target_input = torch.tensor([[BOS_ID] + ids[:-1]])
                logits = model(source, target_input)
                logits[..., NEVER_SAID] = -math.inf
                named = torch.tensor([ids]).unsqueeze(-1)
                return logits.log_softmax(dim=-1).gather(-1, named).sum().item()
            """,
            "does not rule out at the end": """
                words = torch.tensor([BOS_ID, *ids, EOS_ID])
                logits = model(source, words[None, :-1])[0]
                logits[:-1, NEVER_SAID] = -math.inf
                log_p = logits.log_softmax(dim=-1)
                return log_p.gather(-1, words[1:, None]).sum().item()
            """,
            "returns the loss": """
                words = torch.tensor([BOS_ID, *ids, EOS_ID])
                logits = model(source, words[None, :-1])[0]
                logits[:, NEVER_SAID] = -math.inf
                loss = torch.nn.functional.cross_entropy
                return float(loss(logits, words[1:], reduction="sum"))
            """,
            "divides by the length penalty": """
                words = torch.tensor([BOS_ID, *ids, EOS_ID])
                logits = model(source, words[None, :-1])[0]
                logits[:, NEVER_SAID] = -math.inf
                log_p = logits.log_softmax(dim=-1).gather(-1, words[1:, None]).sum()
                return log_p.item() / length_penalty(len(ids) + 1, 0.6)
            """,
            "a softmax over the positions": """
                words = torch.tensor([BOS_ID, *ids, EOS_ID])
                logits = model(source, words[None, :-1])[0]
                logits[:, NEVER_SAID] = -1e9
                log_p = logits.log_softmax(dim=0)
                return log_p.gather(-1, words[1:, None]).sum().item()
            """,
            "rounds to single precision": """
                words = torch.tensor([BOS_ID, *ids, EOS_ID])
                logits = model(source, words[None, :-1])[0]
                logits[:, NEVER_SAID] = -math.inf
                log_p = logits.float().log_softmax(dim=-1)
                return log_p.gather(-1, words[1:, None]).sum().item()
            """,
        },
        right={
            "by cross-entropy": """
                words = torch.tensor([BOS_ID, *ids, EOS_ID])
                logits = model(source, words[None, :-1])[0]
                logits[:, NEVER_SAID] = -math.inf
                loss = torch.nn.functional.cross_entropy
                return -float(loss(logits, words[1:], reduction="sum"))
            """,
            "the vocabulary cut": """
                words = torch.tensor([*ids, EOS_ID])
                begun = torch.cat([torch.tensor([BOS_ID]), words[:-1]])[None]
                memory = model.encode(source)
                logits = model.decode(begun, memory, source)[0].clone()
                logits[:, torch.tensor(NEVER_SAID)] = float("-inf")
                steps = torch.arange(len(words))
                total = logits[steps, words] - logits.logsumexp(dim=-1)
                return total.sum().item()
            """,
        },
    ),
    Exercise(
        cell="12-6b087ce0",
        wrong={
            "squares the temperature": but("/ temperature", "/ temperature**2"),
            "multiplies by the temperature": but("/ temperature", "* temperature"),
            "may draw padding": but("NEVER_SAID", "BOS_ID"),
            "draws among the five most likely": but(
                DRAW,
                "top = logits.topk(5, dim=-1); "
                "drawn = torch.multinomial(top.values.softmax(dim=-1), 1); "
                "word = top.indices.gather(1, drawn).squeeze(1)",
            ),
            "draws once for the whole batch": but(
                DRAW,
                "one = torch.multinomial(logits[:1].softmax(dim=-1), 1).squeeze(1); "
                "word = one.expand(len(limits))",
            ),
            "has one limit for all": but(
                "(len(said) >= limits)", "(len(said) >= limits.max())"
            ),
            "stops one word early": but(
                "(len(said) >= limits)", "(len(said) + 1 >= limits)"
            ),
            "leaves dropout on": but("model.eval()", "pass"),
            "divides the probabilities": but("/ temperature", "").replace(
                "logits.softmax(dim=-1)", "logits.softmax(dim=-1) / temperature"
            ),
            "forgets what it drew": but(
                "decoder.step(word.unsqueeze(1))",
                "decoder.step(torch.full_like(word, BOS_ID).unsqueeze(1))",
            ),
            "has a temperature for the first word only": but(
                "/ temperature", "/ (temperature if not said else 1.0)"
            ),
            "never ends at once": but(
                "logits[:, NEVER_SAID] = -math.inf",
                "logits[:, NEVER_SAID + ([] if said else [EOS_ID])] = -math.inf",
            ),
            "keeps 99 % of the probability": but(
                DRAW,
                "p, order = logits.softmax(dim=-1).sort(dim=-1, descending=True); "
                "p = p.masked_fill(p.cumsum(dim=-1) - p > 0.99, 0.0); "
                "word = order.gather(1, torch.multinomial(p, 1)).squeeze(1)",
            ),
            "sets the seed itself": but(
                "model.eval()", "model.eval(); torch.manual_seed(0)"
            ),
            "leaves the end token in": but(
                "up_to_end(row)", "[word for word in row if word != PAD_ID]"
            ),
            "has a temperature for the first two words only": but(
                "/ temperature", "/ (temperature if len(said) < 2 else 1.0)"
            ),
            "draws among the eight most likely": but(
                DRAW,
                "top = logits.topk(8, dim=-1); "
                "drawn = torch.multinomial(top.values.softmax(dim=-1), 1); "
                "word = top.indices.gather(1, drawn).squeeze(1)",
            ),
            "adds Gaussian noise": but(
                DRAW, "word = (logits + torch.randn_like(logits)).argmax(dim=-1)"
            ),
            "counts padding for the limit": but(
                "length_limits(model, source, 50)",
                "length_limits(model, source.clamp(min=3), 50)",
            ),
            "penalizes the end token": but(
                "logits[:, NEVER_SAID] = -math.inf",
                "logits[:, NEVER_SAID] = -math.inf; logits[:, EOS_ID] -= 0.2",
            ),
            "divides the end token's score by the length penalty": but(
                "logits[:, NEVER_SAID] = -math.inf",
                "logits[:, NEVER_SAID] = -math.inf; "
                "logits[:, EOS_ID] /= length_penalty(len(said) + 1, 0.6)",
            ),
            "rewards the end token more with each word": but(
                "logits[:, NEVER_SAID] = -math.inf",
                "logits[:, NEVER_SAID] = -math.inf; "
                "logits[:, EOS_ID] += 0.1 * len(said)",
            ),
            "penalizes the end of short sentences": but(
                "logits[:, NEVER_SAID] = -math.inf",
                "logits[:, NEVER_SAID] = -math.inf; "
                "logits[:, EOS_ID] -= 0.5 if len(said) == 2 else 0.0",
            ),
            "never says a word twice in a row": but(
                "logits[:, NEVER_SAID] = -math.inf",
                "logits[:, NEVER_SAID] = -math.inf; "
                "logits.scatter_(1, word.unsqueeze(1), -math.inf)",
            ),
        },
        right={
            "by Gumbel noise": """
                model.eval()
                limits = length_limits(model, source, 50)
                decoder = CachedDecoder(model, source)
                word = torch.full_like(limits, BOS_ID)
                rows = [[] for _ in limits]
                live = torch.ones_like(limits, dtype=torch.bool)
                for step in range(int(limits.max())):
                    logits = decoder.step(word.unsqueeze(1))[:, 0] / temperature
                    logits[:, [PAD_ID, BOS_ID]] = -math.inf
                    noise = -torch.rand_like(logits.double()).log().neg().log()
                    word = (logits + noise).argmax(dim=-1)
                    live = live & (word != EOS_ID) & (step < limits)
                    for row, w, goes_on in zip(rows, word.tolist(), live.tolist()):
                        if goes_on:
                            row.append(w)
                    if not live.any():
                        break
                return rows
            """,
        },
    ),
]
