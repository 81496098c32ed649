"""Solutions of the exercises of appendix A, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="A-eea0c35c",
        wrong={
            "stops at the first local minimum": """
                best, step = float("inf"), None
                for line in lines:
                    entry = json.loads(line)
                    if "validation_perplexity" not in entry:
                        continue
                    if entry["validation_perplexity"] > best:
                        break
                    best, step = entry["validation_perplexity"], entry["step"]
                return step
            """,
            "the last step": """
                entries = [json.loads(line) for line in lines]
                scored = [e for e in entries if "validation_perplexity" in e]
                return scored[-1]["step"]
            """,
            "the lowest loss": """
                entries = [json.loads(line) for line in lines]
                scored = [e for e in entries if "loss" in e]
                return min(scored, key=lambda entry: entry["loss"])["step"]
            """,
            "the later of two equal ones": """
                entries = [json.loads(line) for line in lines]
                scored = [e for e in entries if "validation_perplexity" in e]
                scored.reverse()
                return min(scored, key=lambda e: e["validation_perplexity"])["step"]
            """,
            "compares text": """
                entries = [json.loads(line) for line in lines]
                scored = [e for e in entries if "validation_perplexity" in e]
                value = lambda entry: str(entry["validation_perplexity"])
                return min(scored, key=value)["step"]
            """,
            "the perplexity and not its step": """
                entries = [json.loads(line) for line in lines]
                scored = [e for e in entries if "validation_perplexity" in e]
                return min(entry["validation_perplexity"] for entry in scored)
            """,
            "the number of the entry": """
                entries = [json.loads(line) for line in lines]
                scored = [e for e in entries if "validation_perplexity" in e]
                values = [entry["validation_perplexity"] for entry in scored]
                return values.index(min(values))
            """,
            "a missing perplexity is zero": """
                entries = [json.loads(line) for line in lines]
                value = lambda entry: entry.get("validation_perplexity", 0)
                return min(entries, key=value)["step"]
            """,
            "whole numbers only": """
                entries = [json.loads(line) for line in lines]
                scored = [e for e in entries if "validation_perplexity" in e]
                value = lambda entry: int(entry["validation_perplexity"])
                return min(scored, key=value)["step"]
            """,
            "a patience of two": """
                best, step, waited = float("inf"), None, 0
                for line in lines:
                    entry = json.loads(line)
                    if "validation_perplexity" not in entry:
                        continue
                    if entry["validation_perplexity"] < best:
                        best, waited = entry["validation_perplexity"], 0
                        step = entry["step"]
                    else:
                        waited += 1
                    if waited > 2:
                        break
                return step
            """,
            "begins at a perplexity of a thousand": """
                best, step = 1000.0, None
                for line in lines:
                    entry = json.loads(line)
                    value = entry.get("validation_perplexity", 1000.0)
                    if value < best:
                        best, step = value, entry["step"]
                return step
            """,
            "rounds to two decimals": """
                entries = [json.loads(line) for line in lines]
                scored = [e for e in entries if "validation_perplexity" in e]
                value = lambda entry: round(entry["validation_perplexity"], 2)
                return min(scored, key=value)["step"]
            """,
            "every second line": """
                scored = [json.loads(line) for line in lines[1::2]]
                return min(scored, key=lambda e: e["validation_perplexity"])["step"]
            """,
        },
        right={
            "keeps the best so far": """
                best = (float("inf"), 0)
                for line in lines:
                    entry = json.loads(line)
                    found = entry.get("validation_perplexity", float("inf"))
                    best = min(best, (found, entry["step"]))
                return best[1]
            """,
        },
    ),
    Exercise(
        cell="A-17366c90",
        wrong={
            "takes the row of the piece itself": """
                mean = torch.tensor(entry["weights"][name]).mean(dim=0)
                attended = [entry["source"][i] for i in mean.argmax(dim=-1).tolist()]
                return list(zip(entry["target"][1:], attended[1:], strict=True))
            """,
            "the first head alone": """
                first = torch.tensor(entry["weights"][name])[0]
                attended = [entry["source"][i] for i in first.argmax(dim=-1).tolist()]
                return list(zip(entry["target"][1:], attended, strict=False))
            """,
            "the largest weight of any head": """
                best = torch.tensor(entry["weights"][name]).amax(dim=0)
                attended = [entry["source"][i] for i in best.argmax(dim=-1).tolist()]
                return list(zip(entry["target"][1:], attended, strict=False))
            """,
            "the begin token, too": """
                mean = torch.tensor(entry["weights"][name]).mean(dim=0)
                attended = [entry["source"][i] for i in mean.argmax(dim=-1).tolist()]
                return list(zip(entry["target"], attended, strict=True))
            """,
            "positions and not pieces": """
                mean = torch.tensor(entry["weights"][name]).mean(dim=0)
                found = mean.argmax(dim=-1).tolist()
                return list(zip(entry["target"][1:], found, strict=False))
            """,
            "the smallest weight": """
                mean = torch.tensor(entry["weights"][name]).mean(dim=0)
                attended = [entry["source"][i] for i in mean.argmin(dim=-1).tolist()]
                return list(zip(entry["target"][1:], attended, strict=False))
            """,
            "always the first attention of the file": """
                heads = next(iter(entry["weights"].values()))
                mean = torch.tensor(heads).mean(dim=0)
                attended = [entry["source"][i] for i in mean.argmax(dim=-1).tolist()]
                return list(zip(entry["target"][1:], attended, strict=False))
            """,
            "from source to target": """
                mean = torch.tensor(entry["weights"][name]).mean(dim=0)
                found = mean[: len(entry["target"]) - 1].argmax(dim=0).tolist()
                written = entry["target"][1:]
                return [(written[i], s) for i, s in zip(found, entry["source"])]
            """,
            "by the vote of the heads": """
                heads = torch.tensor(entry["weights"][name]).argmax(dim=-1)
                found = heads.mode(dim=0).values.tolist()
                attended = [entry["source"][i] for i in found]
                return list(zip(entry["target"][1:], attended, strict=False))
            """,
            "the smallest weight that any head gives": """
                least = torch.tensor(entry["weights"][name]).amin(dim=0)
                attended = [entry["source"][i] for i in least.argmax(dim=-1).tolist()]
                return list(zip(entry["target"][1:], attended, strict=False))
            """,
            "the product of the heads": """
                product = torch.tensor(entry["weights"][name]).prod(dim=0)
                found = product.argmax(dim=-1).tolist()
                attended = [entry["source"][i] for i in found]
                return list(zip(entry["target"][1:], attended, strict=False))
            """,
            "a dictionary, which has each piece once": """
                mean = torch.tensor(entry["weights"][name]).mean(dim=0)
                attended = [entry["source"][i] for i in mean.argmax(dim=-1).tolist()]
                found = dict(zip(entry["target"][1:], attended, strict=False))
                return list(found.items())
            """,
            "shares among the rows of a column": """
                mean = torch.tensor(entry["weights"][name]).mean(dim=0)
                shares = mean / mean.sum(dim=0).clamp(min=1e-9)
                attended = [entry["source"][i] for i in shares.argmax(dim=-1).tolist()]
                return list(zip(entry["target"][1:], attended, strict=False))
            """,
        },
        right={
            "by loops, without tensors": """
                heads, pairs = entry["weights"][name], []
                for row, written in enumerate(entry["target"][1:]):
                    sums = [
                        sum(head[row][column] for head in heads)
                        for column in range(len(entry["source"]))
                    ]
                    pairs.append((written, entry["source"][sums.index(max(sums))]))
                return pairs
            """,
        },
    ),
]
