"""Solutions of the exercises of chapter 13, right and wrong."""

from harness import Exercise

INTERVAL = """
rng, size = np.random.default_rng(seed), len(counts)
drawn = rng.integers(size, size=(samples, size))
scores = [bleu_from_counts(counts[rows].sum(axis=0)) for rows in drawn]
return tuple(np.quantile(scores, [0.025, 0.975]))
"""

SWAP = """
def difference(a, b):
    return bleu_from_counts(b.sum(axis=0)) - bleu_from_counts(a.sum(axis=0))

rng, real, extreme = np.random.default_rng(seed), abs(difference(first, second)), 0
for _ in range(samples):
    swapped = rng.integers(2, size=len(first))[:, None, None] == 1
    a, b = np.where(swapped, second, first), np.where(swapped, first, second)
    extreme += abs(difference(a, b)) >= real - 1e-9
return (1 + extreme) / (1 + samples)
"""

MBR = """
def agreement(i):
    others = [c for j, c in enumerate(candidates) if j != i]
    return sum(chrf([candidates[i]], [other]) for other in others)

return candidates[max(range(len(candidates)), key=agreement)]
"""


def but(text: str, old: str, new: str) -> str:
    """The solution with one part of it changed."""
    assert old in text
    return text.replace(old, new)


EXERCISES = [
    Exercise(
        cell="13-8d11eed1",
        wrong={
            "is a 90 % interval": but(INTERVAL, "[0.025, 0.975]", "[0.05, 0.95]"),
            "is one-sided": but(INTERVAL, "[0.025, 0.975]", "[0.05, 1.0]"),
            "shuffles instead of drawing": but(
                INTERVAL,
                "rng.integers(size, size=(samples, size))",
                "[rng.permutation(size) for _ in range(samples)]",
            ),
            "draws half as many sentences": but(
                INTERVAL, "size=(samples, size)", "size=(samples, size // 2)"
            ),
            "always draws a hundred sentences": but(
                INTERVAL, "size=(samples, size)", "size=(samples, 100)"
            ),
            "takes the mean of sentence scores": but(
                INTERVAL,
                "bleu_from_counts(counts[rows].sum(axis=0))",
                "np.mean([bleu_from_counts(row) for row in counts[rows[:30]]])",
            ),
            "ignores the seed": but(INTERVAL, "default_rng(seed)", "default_rng()"),
            "has a seed of its own": but(
                INTERVAL, "default_rng(seed)", "default_rng(0)"
            ),
            "ignores the samples": but(INTERVAL, "(samples, size)", "(1000, size)"),
            "never draws the last sentence": but(
                INTERVAL, "rng.integers(size,", "rng.integers(size - 1,"
            ),
            "is centered on the score of the corpus": but(
                INTERVAL,
                "return tuple(np.quantile(scores, [0.025, 0.975]))",
                "middle = bleu_from_counts(counts.sum(axis=0))\\n"
                "low, high = np.quantile(scores, [0.025, 0.975])\\n"
                "return middle - (high - low) / 2, middle + (high - low) / 2",
            ).replace("\\n", "\n"),
            "is normal, two standard deviations wide": but(
                INTERVAL,
                "return tuple(np.quantile(scores, [0.025, 0.975]))",
                "mean, half = np.mean(scores), 1.96 * np.std(scores)\n"
                "return mean - half, mean + half",
            ),
            "mirrors the percentiles (the basic bootstrap)": but(
                INTERVAL,
                "return tuple(np.quantile(scores, [0.025, 0.975]))",
                "low, high = np.quantile(scores, [0.025, 0.975])\n"
                "score = bleu_from_counts(counts.sum(axis=0))\n"
                "return 2 * score - high, 2 * score - low",
            ),
            "draws each order by itself": """
                rng, size = np.random.default_rng(seed), len(counts)
                scores = []
                for _ in range(samples):
                    rows = [counts[rng.integers(size, size=size), n] for n in range(4)]
                    total = np.stack([row.sum(axis=0) for row in rows])
                    scores.append(bleu_from_counts(total))
                return tuple(np.quantile(scores, [0.025, 0.975]))
            """,
        },
        right={
            "by sorting": """
                rng, size, scores = np.random.default_rng(seed), len(counts), []
                for _ in range(samples):
                    times = np.bincount(rng.choice(size, size), minlength=size)
                    total = (times[:, None, None] * counts).sum(axis=0)
                    scores.append(bleu_from_counts(total))
                scores = sorted(scores)
                cut = round(0.025 * samples)
                return scores[cut], scores[-1 - cut]
            """,
        },
    ),
    Exercise(
        cell="13-73fb3453",
        wrong={
            "is the bootstrap's p": """
                differences = bootstrap_differences(first, second, samples, seed)
                scores = [bleu_from_counts(x.sum(axis=0)) for x in (first, second)]
                return bootstrap_p(scores[1] - scores[0], differences)
            """,
            "is the package's comparison": """
                return paired_bootstrap(first, second, None, samples, seed).p
            """,
            "looks in one direction only": but(
                SWAP, "abs(difference(a, b)) >= real", "difference(a, b) >= real"
            ),
            "forgets the ones": but(
                SWAP, "(1 + extreme) / (1 + samples)", "extreme / samples"
            ),
            "asks for more than the real difference": but(
                SWAP, ">= real -", "> real +"
            ),
            "tosses one coin for all sentences": but(
                SWAP,
                "rng.integers(2, size=len(first))[:, None, None]",
                "rng.integers(2)",
            ),
            "tosses a coin for each order": but(
                SWAP,
                "rng.integers(2, size=len(first))[:, None, None]",
                "rng.integers(2, size=(len(first), 4))[:, :, None]",
            ),
            "swaps a quarter of the sentences": but(
                SWAP, "rng.integers(2, size", "rng.integers(4, size"
            ),
            "swaps one side only": but(
                SWAP, "np.where(swapped, first, second)", "second"
            ),
            "compares means of sentence scores": but(
                SWAP,
                "bleu_from_counts(b.sum(axis=0)) - bleu_from_counts(a.sum(axis=0))",
                "np.mean([bleu_from_counts(x) for x in b])"
                " - np.mean([bleu_from_counts(x) for x in a])",
            ),
            "deals the translations anew, unpaired": but(
                SWAP,
                "np.where(swapped, second, first), np.where(swapped, first, second)",
                "np.split(rng.permutation(np.concatenate([first, second])), 2)",
            ),
            "centers on the mean, as the bootstrap does": """
                rng, values = np.random.default_rng(seed), []
                for _ in range(samples):
                    swapped = rng.integers(2, size=len(first))[:, None, None] == 1
                    a = np.where(swapped, second, first).sum(axis=0)
                    b = np.where(swapped, first, second).sum(axis=0)
                    values.append(bleu_from_counts(b) - bleu_from_counts(a))
                real = bleu_from_counts(second.sum(axis=0))
                real -= bleu_from_counts(first.sum(axis=0))
                sizes = np.abs(values)
                return (1 + (sizes - sizes.mean() >= abs(real)).sum()) / (1 + samples)
            """,
            "has a seed of its own": but(SWAP, "default_rng(seed)", "default_rng(0)"),
            "ignores the samples": but(SWAP, "range(samples)", "range(1000)").replace(
                "(1 + samples)", "1001"
            ),
        },
        right={
            "with weights": """
                rng = np.random.default_rng(seed)
                flips = rng.random((samples, len(first))) < 0.5
                gap = second - first

                def score(totals):
                    return bleu_from_counts(totals)

                base, other = first.sum(axis=0), second.sum(axis=0)
                real, count = abs(score(other) - score(base)), 1
                for flip in flips:
                    moved = gap[flip].sum(axis=0)
                    size = abs(score(other - moved) - score(base + moved))
                    count += bool(size > real or np.isclose(size, real))
                return count / (samples + 1)
            """,
        },
    ),
    Exercise(
        cell="13-08e76ecc",
        wrong={
            "scores by BLEU": but(MBR, "chrf(", "bleu("),
            "exchanges hypothesis and reference": but(
                MBR, "chrf([candidates[i]], [other])", "chrf([other], [candidates[i]])"
            ),
            "takes the one that agrees best with a single other": but(
                MBR, "sum(", "max("
            ),
            "takes the median agreement": but(
                MBR,
                "sum(chrf([candidates[i]], [other]) for other in others)",
                "float(np.median([chrf([candidates[i]], [x]) for x in others]))",
            ),
            "averages with precision and recall alike": but(
                MBR,
                "chrf([candidates[i]], [other])",
                "chrf([candidates[i]], [other]) + chrf([other], [candidates[i]])",
            ),
            "takes each pair once": but(
                MBR, "enumerate(candidates) if j != i", "enumerate(candidates) if j > i"
            ),
            "removes doubles first": "candidates = list(dict.fromkeys(candidates))\n"
            + MBR,
            "takes the longest": """
                return max(candidates, key=len)
            """,
            "takes the most frequent": """
                return max(candidates, key=candidates.count)
            """,
            "takes the first": """
                return candidates[0]
            """,
            "drops what stands twice": but(MBR, "if j != i]", "if c != candidates[i]]"),
            "scores against one text of all the others": but(
                MBR,
                "sum(chrf([candidates[i]], [other]) for other in others)",
                "chrf([candidates[i]] * len(others), others)",
            ),
            "returns the number": but(
                MBR,
                "candidates[max(range(len(candidates)), key=agreement)]",
                "max(range(len(candidates)), key=agreement)",
            ),
            "takes the last of the best": but(
                MBR,
                "max(range(len(candidates))",
                "max(reversed(range(len(candidates)))",
            ),
            "takes the lowest": but(MBR, "max(range", "min(range"),
            "sorts the list": """
                candidates.sort(key=len)
                scores = [
                    sum(chrf([c], [o]) for o in candidates) for c in candidates
                ]
                return candidates[scores.index(max(scores))]
            """,
        },
        right={
            "with itself among the references, which changes no rank": """
                totals = []
                for ours in candidates:
                    totals.append(sum(chrf([ours], [x]) for x in candidates))
                    totals[-1] -= chrf([ours], [ours])
                best = max(round(total, 9) for total in totals)
                return next(
                    c for c, t in zip(candidates, totals) if round(t, 9) == best
                )
            """,
        },
    ),
]
