"""Solutions of the exercises of chapter 7, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="07-86629ff5",
        wrong={
            "forgets that all see the first position": """
                connected = connections(n, range(-(r // 2), r // 2 + 1))
                connected[0, :] = True
                return connected
            """,
            "takes r for the positions on each side": """
                connected = connections(n, range(-r, r + 1))
                connected[0, :] = connected[:, 0] = True
                return connected
            """,
            "makes the last position global": """
                connected = connections(n, range(-(r // 2), r // 2 + 1))
                connected[-1, :] = connected[:, -1] = True
                return connected
            """,
            "a window that looks left only": """
                connected = connections(n, range(1 - r, 1))
                connected[0, :] = connected[:, 0] = True
                return connected
            """,
            "connects everything": """
                return torch.ones(n, n, dtype=torch.bool)
            """,
            "numbers in place of booleans": """
                connected = connections(n, range(-(r // 2), r // 2 + 1)).float()
                connected[0, :] = connected[:, 0] = 1
                return connected
            """,
            "one position short on the right": """
                connected = connections(n, range(-(r // 2), r // 2))
                connected[0, :] = True
                connected[:, 0] = True
                return connected
            """,
            "one more offset for each length, none for the first": """
                offsets = [*range(-(r // 2), r // 2 + 1), -(n - 1), n - 1]
                return connections(n, offsets)
            """,
            "global for neighbors only": """
                connected = connections(n, range(-(r // 2), r // 2 + 1))
                connected[0, : r + 1] = True
                connected[: r + 1, 0] = True
                return connected
            """,
        },
        right={
            "by distances": """
                i = torch.arange(n)
                near = (i[:, None] - i).abs() <= (r - 1) // 2
                return near | (i == 0) | (i == 0)[:, None]
            """,
        },
    ),
    Exercise(
        cell="07-ac1eaaa4",
        wrong={
            "a loop over t": """
                states = [x[0]]
                for t in range(1, len(x)):
                    states.append(a[t] * states[-1] + x[t])
                return torch.stack(states)
            """,
            "divides by products, which a zero spoils": """
                product = a.cumprod(0)
                return product * (x / product).cumsum(0)
            """,
            "joins the pairs the wrong way round": """
                distance = 1
                while distance < len(x):
                    earlier_a = F.pad(a, (distance, 0), value=1.0)[: len(a)]
                    earlier_x = F.pad(x, (distance, 0), value=0.0)[: len(x)]
                    a, x = earlier_a * a, earlier_a * x + earlier_x
                    distance *= 2
                return x
            """,
            "always 1 to the left": """
                for _ in range(7):
                    earlier_a = F.pad(a, (1, 0), value=1.0)[: len(a)]
                    earlier_x = F.pad(x, (1, 0), value=0.0)[: len(x)]
                    a, x = earlier_a * a, a * earlier_x + x
                return x
            """,
            "one round too few": """
                distance = 1
                while 2 * distance < len(x):
                    earlier_a = F.pad(a, (distance, 0), value=1.0)[: len(a)]
                    earlier_x = F.pad(x, (distance, 0), value=0.0)[: len(x)]
                    a, x = earlier_a * a, a * earlier_x + x
                    distance *= 2
                return x
            """,
            "pads with pairs that forget": """
                distance = 1
                while distance < len(x):
                    earlier_a = F.pad(a, (distance, 0), value=0.0)[: len(a)]
                    earlier_x = F.pad(x, (distance, 0), value=1.0)[: len(x)]
                    a, x = earlier_a * a, a * earlier_x + x
                    distance *= 2
                return x
            """,
            "rolls, so that the end feeds the start": """
                distance = 1
                while distance < len(x):
                    a, x = a.roll(distance) * a, a * x.roll(distance) + x
                    distance *= 2
                return x
            """,
            "one to the left more each round": """
                for distance in range(1, len(x)):
                    earlier_a = F.pad(a, (distance, 0), value=1.0)[: len(a)]
                    earlier_x = F.pad(x, (distance, 0), value=0.0)[: len(x)]
                    a, x = earlier_a * a, a * earlier_x + x
                return x
            """,
            "forgets to join the factors": """
                distance = 1
                while distance < len(x):
                    earlier_x = F.pad(x, (distance, 0), value=0.0)[: len(x)]
                    x = a * earlier_x + x
                    distance *= 2
                return x
            """,
            "by logarithms": """
                logs = (a + 1e-12).log().cumsum(0)
                powers = (logs[:, None] - logs).tril().exp().tril()
                return powers @ x
            """,
            "the factors by a loop, the states at once": """
                rows = []
                for t in range(len(x)):
                    row = torch.zeros_like(x)
                    row[t] = 1
                    for s in range(t - 1, -1, -1):
                        row[s] = row[s + 1] * a[s + 1]
                    rows.append(row)
                return torch.stack(rows) @ x
            """,
        },
        right={
            "by halves": """
                n = len(x)
                A, X = a.clone(), x.clone()
                step = 1
                while step < n:
                    X = torch.cat([X[:step], A[step:] * X[:-step] + X[step:]])
                    A = torch.cat([A[:step], A[step:] * A[:-step]])
                    step *= 2
                return X
            """,
        },
    ),
]
