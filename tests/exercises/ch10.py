"""Solutions of the exercises of chapter 10, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="10-4e9ccc8d",
        wrong={
            "leaves the bias correction out": """
                total = 0.0
                for age in range(t):
                    a = (1 - beta_1) * beta_1**age
                    b = (1 - beta_2) * beta_2**age
                    total += a**2 / b
                return math.sqrt(total)
            """,
            "the limit of many steps, whatever t is": """
                ratio = beta_1**2 / beta_2
                return (1 - beta_1) / math.sqrt((1 - beta_2) * (1 - ratio))
            """,
            "forgets the root": """
                total = 0.0
                for age in range(t):
                    a = (1 - beta_1) * beta_1**age / (1 - beta_1**t)
                    b = (1 - beta_2) * beta_2**age / (1 - beta_2**t)
                    total += a**2 / b
                return total
            """,
            "the paper's constants only": """
                total = 0.0
                for age in range(t):
                    a = 0.1 * 0.9**age / (1 - 0.9**t)
                    b = 0.02 * 0.98**age / (1 - 0.98**t)
                    total += a**2 / b
                return math.sqrt(total)
            """,
            "one gradient too few": """
                total = 0.0
                for age in range(1, t):
                    a = (1 - beta_1) * beta_1**age / (1 - beta_1**t)
                    b = (1 - beta_2) * beta_2**age / (1 - beta_2**t)
                    total += a**2 / b
                return math.sqrt(total)
            """,
            "corrects the first moment only": """
                total = 0.0
                for age in range(t):
                    a = (1 - beta_1) * beta_1**age / (1 - beta_1**t)
                    b = (1 - beta_2) * beta_2**age
                    total += a**2 / b
                return math.sqrt(total)
            """,
            "swaps the two betas": """
                total = 0.0
                for age in range(t):
                    a = (1 - beta_2) * beta_2**age / (1 - beta_2**t)
                    b = (1 - beta_1) * beta_1**age / (1 - beta_1**t)
                    total += a**2 / b
                return math.sqrt(total)
            """,
            "squares the quotient": """
                total = 0.0
                for age in range(t):
                    a = (1 - beta_1) * beta_1**age / (1 - beta_1**t)
                    b = (1 - beta_2) * beta_2**age / (1 - beta_2**t)
                    total += (a / b) ** 2
                return math.sqrt(total)
            """,
            "ages from 1": """
                total = 0.0
                for age in range(1, t + 1):
                    a = (1 - beta_1) * beta_1**age / (1 - beta_1**t)
                    b = (1 - beta_2) * beta_2**age / (1 - beta_2**t)
                    total += a**2 / b
                return math.sqrt(total)
            """,
            "the step of equal gradients": """
                return (1 - beta_1**t) / math.sqrt(1 - beta_2**t)
            """,
        },
        right={
            "a geometric sum": """
                ratio = beta_1**2 / beta_2
                total = (1 - ratio**t) / (1 - ratio)
                first = (1 - beta_1) / (1 - beta_1**t)
                second = (1 - beta_2) / (1 - beta_2**t)
                return first * math.sqrt(total / second)
            """,
        },
    ),
    Exercise(
        cell="10-ede41348",
        wrong={
            "eleven words, whatever the vocabulary": """
                others = log_p.sum() - log_p[right]
                return -(1 - smoothing) * log_p[right] - smoothing * others / 10
            """,
            "shares with the right word, too": """
                return -(1 - smoothing) * log_p[right] - smoothing * log_p.mean()
            """,
            "divides by V": """
                others = log_p.sum() - log_p[right]
                share = smoothing / len(log_p)
                return -(1 - smoothing) * log_p[right] - share * others
            """,
            "always a tenth": """
                others = log_p.sum() - log_p[right]
                return -0.9 * log_p[right] - 0.1 * others / (len(log_p) - 1)
            """,
            "the sum of the others, undivided": """
                others = log_p.sum() - log_p[right]
                return -(1 - smoothing) * log_p[right] - smoothing * others
            """,
            "changes its input": """
                picked = log_p[right].clone()
                log_p[right] = 0
                rest = log_p.sum() / (len(log_p) - 1)
                return -(1 - smoothing) * picked - smoothing * rest
            """,
            "drops every word as likely as the right one": """
                others = log_p[log_p != log_p[right]].sum()
                rest = smoothing * others / (len(log_p) - 1)
                return -(1 - smoothing) * log_p[right] - rest
            """,
            "takes the likeliest word for the right one": """
                best = log_p.argmax()
                others = log_p.sum() - log_p[best]
                rest = smoothing * others / (len(log_p) - 1)
                return -(1 - smoothing) * log_p[best] - rest
            """,
            "cuts the graph by counting in Python numbers": """
                others = log_p.sum().item() - log_p[right].item()
                share = smoothing * others / (len(log_p) - 1)
                return torch.tensor(-(1 - smoothing) * log_p[right].item() - share)
            """,
            "the log of the mean in place of the mean of logs": """
                p = log_p.exp()
                others = (p.sum() - p[right]) / (len(log_p) - 1)
                return -(1 - smoothing) * log_p[right] - smoothing * others.log()
            """,
        },
        right={
            "by ours": """
                wider = smoothing * len(log_p) / (len(log_p) - 1)
                return -(1 - wider) * log_p[right] - wider * log_p.mean()
            """,
        },
    ),
]
