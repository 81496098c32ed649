"""Solutions of the exercises of chapter 15, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="15-6ee9e8d2",
        wrong={
            "divides by one n, as for a single mean": """
                n = 2
                while quantile * deviation / math.sqrt(n) >= difference:
                    n += 1
                return n
            """,
            "stops when the margin equals the difference": """
                n = 2
                while quantile * deviation * math.sqrt(2 / n) > difference:
                    n += 1
                return n
            """,
            "allows a single seed": """
                n = 1
                while quantile * deviation * math.sqrt(2 / n) >= difference:
                    n += 1
                return n
            """,
            "takes 1.96 for every quantile": """
                n = 2
                while 1.96 * deviation * math.sqrt(2 / n) >= difference:
                    n += 1
                return n
            """,
            "rounds to the nearest": """
                return max(2, round(2 * (quantile * deviation / difference) ** 2))
            """,
            "rounds down": """
                return max(2, int(2 * (quantile * deviation / difference) ** 2))
            """,
            "forgets the root": """
                n = 2
                while quantile * deviation * 2 / n >= difference:
                    n += 1
                return n
            """,
            "loses a seed to the mean": """
                n = 2
                while quantile * deviation * math.sqrt(2 / (n - 1)) >= difference:
                    n += 1
                return n
            """,
            "counts the runs of both rows": """
                n = 2
                while quantile * deviation * math.sqrt(2 / n) >= difference:
                    n += 1
                return 2 * n
            """,
            "takes the deviation for the variance": """
                n = 2
                while quantile * math.sqrt(2 * deviation / n) >= difference:
                    n += 1
                return n
            """,
            "doubles until it is enough": """
                n = 2
                while quantile * deviation * math.sqrt(2 / n) >= difference:
                    n *= 2
                return n
            """,
            "rounds up, and takes equal for enough": """
                return max(2, math.ceil(2 * (quantile * deviation / difference) ** 2))
            """,
            "adds the deviations of both rows": """
                n = 2
                while quantile * (deviation + deviation) / math.sqrt(n) >= difference:
                    n += 1
                return n
            """,
            "looks no further than a hundred": """
                for n in range(2, 100):
                    if quantile * deviation * math.sqrt(2 / n) < difference:
                        return n
                return 100
            """,
        },
        right={
            "by the formula, one up where it is met exactly": """
                n = math.floor(2 * (quantile * deviation / difference) ** 2)
                while n < 2 or quantile * deviation * math.sqrt(2 / n) >= difference:
                    n += 1
                return n
            """,
        },
    ),
    Exercise(
        cell="15-d8233b18",
        wrong={
            "correlates the values themselves": """
                return float(np.corrcoef(ours, theirs)[0, 1])
            """,
            "breaks ties by their order": """
                ranks = [np.argsort(np.argsort(values)) for values in (ours, theirs)]
                return float(np.corrcoef(*ranks)[0, 1])
            """,
            "takes the order for the ranks": """
                ranks = [np.argsort(values, kind="stable") for values in (ours, theirs)]
                return float(np.corrcoef(*ranks)[0, 1])
            """,
            "gives ties the smallest rank": """
                ranks = [
                    pd.Series(list(v)).rank(method="min") for v in (ours, theirs)
                ]
                return float(np.corrcoef(*ranks)[0, 1])
            """,
            "uses the formula that knows no ties": """
                a, b = (pd.Series(list(v)).rank() for v in (ours, theirs))
                n = len(a)
                return float(1 - 6 * ((a - b) ** 2).sum() / (n * (n * n - 1)))
            """,
            "ranks one side only": """
                return float(np.corrcoef(pd.Series(list(ours)).rank(), theirs)[0, 1])
            """,
            "sorts the inputs": """
                ours.sort()
                theirs.sort()
                a, b = (pd.Series(list(v)).rank() for v in (ours, theirs))
                return float(np.corrcoef(a, b)[0, 1])
            """,
            "gives ties the largest rank": """
                ranks = [
                    pd.Series(list(v)).rank(method="max") for v in (ours, theirs)
                ]
                return float(np.corrcoef(*ranks)[0, 1])
            """,
            "gives all equal values one rank and goes on by one": """
                ranks = [[sorted(set(v)).index(x) for x in v] for v in (ours, theirs)]
                return float(np.corrcoef(*ranks)[0, 1])
            """,
            "leaves the ties out": """
                a, b = (pd.Series(list(v)) for v in (ours, theirs))
                keep = ~(a.duplicated(keep=False) | b.duplicated(keep=False))
                return float(np.corrcoef(a[keep].rank(), b[keep].rank())[0, 1])
            """,
            "knows lists only": """
                a, b = (
                    [sorted(v).index(x) + (v.count(x) + 1) / 2 for x in v]
                    for v in (ours, theirs)
                )
                return float(np.corrcoef(a, b)[0, 1])
            """,
            "takes the sign away": """
                a, b = (pd.Series(list(v)).rank() for v in (ours, theirs))
                return abs(float(np.corrcoef(a, b)[0, 1]))
            """,
            "takes the covariance of the ranks": """
                a, b = (pd.Series(list(v)).rank() for v in (ours, theirs))
                return float(np.cov(a, b)[0, 1])
            """,
            "counts pairs, as Kendall does": """
                n = len(ours)
                signs = [
                    np.sign((ours[i] - ours[j]) * (theirs[i] - theirs[j]))
                    for i in range(n)
                    for j in range(i)
                ]
                return float(np.mean(signs))
            """,
        },
        right={
            "ranks by counting": """
                def ranks(values):
                    values = np.asarray(values, dtype=float)
                    below = (values[None] < values[:, None]).sum(axis=1)
                    same = (values[None] == values[:, None]).sum(axis=1)
                    return below + (same + 1) / 2

                a, b = ranks(ours), ranks(theirs)
                a, b = a - a.mean(), b - b.mean()
                return float((a * b).sum() / math.sqrt((a * a).sum() * (b * b).sum()))
            """,
        },
    ),
]
