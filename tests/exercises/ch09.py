"""Solutions of the exercises of chapter 9, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="09-993e3ae9",
        wrong={
            "source first, then target": """
                keys = [(len(source), len(target)) for source, target in pairs]
                return sorted(range(len(pairs)), key=keys.__getitem__)
            """,
            "the longer side only": """
                return sorted(range(len(pairs)), key=lambda i: max(map(len, pairs[i])))
            """,
            "the longer, then the target": """
                keys = [(max(map(len, pair)), len(pair[1])) for pair in pairs]
                return sorted(range(len(pairs)), key=keys.__getitem__)
            """,
            "both sides together": """
                keys = [(len(s) + len(t), len(s)) for s, t in pairs]
                return sorted(range(len(pairs)), key=keys.__getitem__)
            """,
            "the shorter side second, negated": """
                keys = [(max(map(len, pair)), -min(map(len, pair))) for pair in pairs]
                return sorted(range(len(pairs)), key=keys.__getitem__)
            """,
            "the pairs in place of their indices": """
                return sorted(pairs, key=lambda p: (max(map(len, p)), len(p[0])))
            """,
            "compares the source's ids, not its length": """
                keys = [(max(map(len, pair)), pair[0]) for pair in pairs]
                return sorted(range(len(pairs)), key=keys.__getitem__)
            """,
            "one number for two, for lengths below ten": """
                keys = [10 * max(map(len, pair)) + len(pair[0]) for pair in pairs]
                return sorted(range(len(pairs)), key=keys.__getitem__)
            """,
            "the longer side by its ids": """
                keys = [(len(max(pair)), len(pair[0])) for pair in pairs]
                return sorted(range(len(pairs)), key=keys.__getitem__)
            """,
            "longest first": """
                keys = [(max(map(len, pair)), len(pair[0])) for pair in pairs]
                return sorted(range(len(pairs)), key=keys.__getitem__, reverse=True)
            """,
            "sorts the list in place": """
                pairs.sort(key=lambda p: (max(map(len, p)), len(p[0])))
                return list(range(len(pairs)))
            """,
            "numbers equal pairs alike": """
                ordered = sorted(pairs, key=lambda p: (max(map(len, p)), len(p[0])))
                return [pairs.index(pair) for pair in ordered]
            """,
        },
        right={
            "by numpy, as an array": """
                sizes = [(len(pair[0]), max(map(len, pair))) for pair in pairs]
                return np.lexsort(np.array(sizes).T)
            """,
            "two stable sorts": """
                order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]))
                order.sort(key=lambda i: max(len(pairs[i][0]), len(pairs[i][1])))
                return order
            """,
        },
    ),
    Exercise(
        cell="09-b4d24656",
        wrong={
            "leaves out pairs, not batches": """
                return token_batches(pairs[step:], max_tokens, seed)
            """,
            "another seed for the rest": """
                return token_batches(pairs, max_tokens, seed + step)
            """,
            "one batch too many left out": """
                return islice(token_batches(pairs, max_tokens, seed), step + 1, None)
            """,
            "always the first seed": """
                return islice(token_batches(pairs, max_tokens), step, None)
            """,
            "one epoch only": """
                return islice(token_batches(pairs, max_tokens, seed, 1), step, None)
            """,
            "forty epochs are as good as endless": """
                return islice(token_batches(pairs, max_tokens, seed, 40), step, None)
            """,
            "the first step batches": """
                return islice(token_batches(pairs, max_tokens, seed), step)
            """,
            "takes the step for a rank": """
                batches = token_batches(pairs, max_tokens, seed)
                return shard(batches, step, step + 1)
            """,
            "begins the epoch anew": """
                length = len(list(token_batches(pairs, max_tokens, seed, 1)))
                skipped = step // length * length
                return islice(token_batches(pairs, max_tokens, seed), skipped, None)
            """,
            "repeats the first epoch": """
                epoch = list(token_batches(pairs, max_tokens, seed, epochs=1))
                return (epoch[k % len(epoch)] for k in count(step))
            """,
            "every step-th batch": """
                batches = token_batches(pairs, max_tokens, seed)
                return islice(batches, 0, None, step or 1)
            """,
            "one budget": """
                return islice(token_batches(pairs, 40, seed), step, None)
            """,
        },
        right={
            "by hand": """
                batches = token_batches(pairs, max_tokens, seed)
                for _ in range(step):
                    next(batches)
                return batches
            """,
        },
    ),
]
