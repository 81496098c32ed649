"""Solutions of the exercise of the tour, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="00-7877ba4b",
        wrong={
            "returns the token at the same position": """
                return read[i]
            """,
            "asks one head only": """
                return read[int(cross[0, i].argmax())]
            """,
            "takes the maximum over heads, not the mean": """
                return read[int(cross[:, i].amax(dim=0).argmax())]
            """,
            "takes the largest entry of the flattened weights": """
                return read[int(cross[:, i].argmax()) % len(read)]
            """,
            "looks from the read token": """
                return read[int(cross[:, :, i].mean(dim=0).argmax())]
            """,
            "multiplies the heads": """
                return read[int(cross[:, i].prod(dim=0).argmax())]
            """,
            "takes the median over heads": """
                return read[int(cross[:, i].median(dim=0).values.argmax())]
            """,
            "averages over the written tokens too": """
                return read[int(cross.mean(dim=(0, 1)).argmax())]
            """,
            "normalizes in place": """
                cross /= cross.sum(dim=0, keepdim=True)
                return read[int(cross[:, i].mean(dim=0).argmax())]
            """,
            "keeps one weight for each word": """
                weights = dict(zip(read, cross[:, i].mean(dim=0).tolist()))
                return max(weights, key=weights.get)
            """,
            "adds up the weights of equal words": """
                total = dict.fromkeys(read, 0.0)
                for word, weight in zip(read, cross[:, i].mean(dim=0).tolist()):
                    total[word] += weight
                return max(total, key=total.get)
            """,
            "asks the head that is surest": """
                head = int(cross[:, i].amax(dim=-1).argmax())
                return read[int(cross[head, i].argmax())]
            """,
            "takes the softmax once more": """
                again = cross.softmax(dim=-1)
                return read[int(again[:, i].mean(dim=0).argmax())]
            """,
            "reads the row of the token before": """
                return read[int(cross[:, i - 1].mean(dim=0).argmax())]
            """,
            "takes the first axis for the written tokens": """
                return read[int(cross[i].mean(dim=0).argmax())]
            """,
            "leaves out the last token": """
                return read[int(cross[:, i, :-1].mean(dim=0).argmax())]
            """,
            "counts the heads' votes": """
                return read[int(cross[:, i].argmax(dim=-1).mode().values)]
            """,
        },
        right={
            "adds every head of a row that it turned round": """
                row = cross.transpose(0, 1)[i].sum(0)
                best, where = row.max(dim=-1)
                return read[where]
            """,
            "adds the heads in a loop": """
                total = [0.0] * len(read)
                for head in cross:
                    for j, weight in enumerate(head[i].tolist()):
                        total[j] += weight
                return read[max(range(len(read)), key=total.__getitem__)]
            """,
        },
    ),
]
