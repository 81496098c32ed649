"""Solutions of the exercises of chapter 16, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="16-34802dc9",
        wrong={
            "leaves out constituents over a single word": """
                matched = total = 0
                for pair in zip(gold, predicted, strict=True):
                    kept = [n.label not in PUNCTUATION for n in preterminals(pair[0])]
                    a, b = (Counter((i, j) for _, i, j in
                                    counted_brackets(tree, kept).elements()
                                    if j - i > 1)
                            for tree in pair)
                    matched += (a & b).total()
                    total += (a + b).total()
                return 200 * matched / max(total, 1)
            """,
            "the plain mean of precision and recall": """
                matched = right = guessed = 0
                for pair in zip(gold, predicted, strict=True):
                    kept = [n.label not in PUNCTUATION for n in preterminals(pair[0])]
                    a, b = (Counter((i, j) for _, i, j in
                                    counted_brackets(tree, kept).elements())
                            for tree in pair)
                    matched += (a & b).total()
                    right += a.total()
                    guessed += b.total()
                return 50 * (matched / max(guessed, 1) + matched / max(right, 1))
            """,
            "asks for each predicted bracket whether the gold tree has it": """
                matched = total = 0
                for pair in zip(gold, predicted, strict=True):
                    kept = [n.label not in PUNCTUATION for n in preterminals(pair[0])]
                    a, b = ([(i, j) for _, i, j in
                             counted_brackets(tree, kept).elements()] for tree in pair)
                    matched += sum(span in a for span in b)
                    total += len(a) + len(b)
                return 200 * matched / max(total, 1)
            """,
            "compares the labels too": """
                return score_trees(gold, predicted).f1
            """,
            "matches sets, so that a unary chain counts once": """
                matched = total = 0
                for pair in zip(gold, predicted, strict=True):
                    kept = [n.label not in PUNCTUATION for n in preterminals(pair[0])]
                    a, b = ({(i, j) for _, i, j in counted_brackets(tree, kept)}
                            for tree in pair)
                    matched, total = matched + len(a & b), total + len(a) + len(b)
                return 200 * matched / max(total, 1)
            """,
            "takes the mean of the sentences' scores": """
                scores = []
                for pair in zip(gold, predicted, strict=True):
                    kept = [n.label not in PUNCTUATION for n in preterminals(pair[0])]
                    a, b = (Counter((i, j) for _, i, j in
                                    counted_brackets(tree, kept).elements())
                            for tree in pair)
                    scores.append(200 * (a & b).total() / max((a + b).total(), 1))
                return sum(scores) / len(scores)
            """,
            "counts punctuation as words": """
                matched = total = 0
                for pair in zip(gold, predicted, strict=True):
                    kept = [True for _ in preterminals(pair[0])]
                    a, b = (Counter((i, j) for _, i, j in
                                    counted_brackets(tree, kept).elements())
                            for tree in pair)
                    matched += (a & b).total()
                    total += (a + b).total()
                return 200 * matched / max(total, 1)
            """,
            "asks each tree for its own punctuation": """
                matched = total = 0
                for pair in zip(gold, predicted, strict=True):
                    found = []
                    for tree in pair:
                        kept = [n.label not in PUNCTUATION for n in preterminals(tree)]
                        found.append(Counter((i, j) for _, i, j in
                                     counted_brackets(tree, kept).elements()))
                    matched += (found[0] & found[1]).total()
                    total += (found[0] + found[1]).total()
                return 200 * matched / max(total, 1)
            """,
            "gives precision": """
                matched = guessed = 0
                for pair in zip(gold, predicted, strict=True):
                    kept = [n.label not in PUNCTUATION for n in preterminals(pair[0])]
                    a, b = (Counter((i, j) for _, i, j in
                                    counted_brackets(tree, kept).elements())
                            for tree in pair)
                    matched, guessed = matched + (a & b).total(), guessed + b.total()
                return 100 * matched / max(guessed, 1)
            """,
            "takes the label off but keeps one count for each label": """
                matched = total = 0
                for pair in zip(gold, predicted, strict=True):
                    kept = [n.label not in PUNCTUATION for n in preterminals(pair[0])]
                    a, b = ({(i, j): n for (_, i, j), n in
                             counted_brackets(tree, kept).items()} for tree in pair)
                    a, b = Counter(a), Counter(b)
                    matched += (a & b).total()
                    total += (a + b).total()
                return 200 * matched / max(total, 1)
            """,
            "compares the first sentence only": """
                kept = [n.label not in PUNCTUATION for n in preterminals(gold[0])]
                a, b = (Counter((i, j) for _, i, j in
                                counted_brackets(tree, kept).elements())
                        for tree in (gold[0], predicted[0]))
                return 200 * (a & b).total() / max((a + b).total(), 1)
            """,
            "divides by zero where there is no bracket": """
                matched = total = 0
                for pair in zip(gold, predicted, strict=True):
                    kept = [n.label not in PUNCTUATION for n in preterminals(pair[0])]
                    a, b = (Counter((i, j) for _, i, j in
                                    counted_brackets(tree, kept).elements())
                            for tree in pair)
                    matched += (a & b).total()
                    total += (a + b).total()
                return 200 * matched / total
            """,
        },
        right={
            "from new trees, in which every label is X": """
                def renamed(tree):
                    below = [[]]
                    for kind, node in walk(tree):
                        if kind == "open":
                            below.append([])
                        elif kind == "tag":
                            below[-1].append(node)
                        else:
                            label = TOP if node.label == TOP else "X"
                            parts = tuple(below.pop())
                            below[-1].append(Tree(label, parts))
                    return below[0][0]

                gold = [renamed(tree) for tree in gold]
                return score_trees(gold, [renamed(tree) for tree in predicted]).f1
            """,
        },
    ),
    Exercise(
        cell="16-9b7e41d3",
        wrong={
            "takes for a tag only what is written in letters": """
                opened, left = [], n
                for t in line:
                    if t[0] == "(":
                        opened.append(t[1:])
                    elif t[0] == ")":
                        opened.pop()
                    else:
                        left -= 1

                if token == END:
                    return not opened and left == 0
                if token[0] == ")":
                    fits = bool(opened) and opened[-1] == token[1:]
                    return fits and line[-1][0] != "("
                return left > 0 and (token[0] == "(" or token.isalpha())
            """,
            "wants a single constituent over everything": """
                opened, left = [], n
                for t in line:
                    if t[0] == "(":
                        opened.append(t[1:])
                    elif t[0] == ")":
                        opened.pop()
                    else:
                        left -= 1

                if token == END:
                    return not opened and left == 0
                if line and not opened:
                    return False
                if token[0] == ")":
                    fits = bool(opened) and opened[-1] == token[1:]
                    return fits and line[-1][0] != "("
                return left > 0
            """,
            "wants a word for each bracket that is open": """
                opened, left = [], n
                for t in line:
                    if t[0] == "(":
                        opened.append(t[1:])
                    elif t[0] == ")":
                        opened.pop()
                    else:
                        left -= 1

                if token == END:
                    return not opened and left == 0
                if token[0] == ")":
                    fits = bool(opened) and opened[-1] == token[1:]
                    return fits and line[-1][0] != "("
                return left > (len(opened) if token[0] == "(" else 0)
            """,
            "closes a constituent without a word": """
                opened, left = [], n
                for t in line:
                    if t[0] == "(":
                        opened.append(t[1:])
                    elif t[0] == ")":
                        opened.pop()
                    else:
                        left -= 1
                if token == END:
                    return not opened and left == 0
                if token[0] == ")":
                    return bool(opened) and opened[-1] == token[1:]
                return left > 0
            """,
            "closes any constituent that is open": """
                opened, left = [], n
                for t in line:
                    if t[0] == "(":
                        opened.append(t[1:])
                    elif t[0] == ")":
                        opened.pop()
                    else:
                        left -= 1
                if token == END:
                    return not opened and left == 0
                if token[0] == ")":
                    return token[1:] in opened and line[-1][0] != "("
                return left > 0
            """,
            "only counts brackets, whatever their labels": """
                depth = sum(t[0] == "(" for t in line) - sum(t[0] == ")" for t in line)
                left = n - sum(t[0] not in "()" for t in line)
                if token == END:
                    return depth == 0 and left == 0
                if token[0] == ")":
                    return depth > 0 and line[-1][0] != "("
                return left > 0
            """,
            "opens a constituent when no word is left": """
                opened, left = [], n
                for t in line:
                    if t[0] == "(":
                        opened.append(t[1:])
                    elif t[0] == ")":
                        opened.pop()
                    else:
                        left -= 1
                if token == END:
                    return not opened and left == 0
                if token[0] == "(":
                    return True
                if token[0] == ")":
                    fits = bool(opened) and opened[-1] == token[1:]
                    return fits and line[-1][0] != "("
                return left > 0
            """,
            "ends while a bracket is open": """
                opened, left = [], n
                for t in line:
                    if t[0] == "(":
                        opened.append(t[1:])
                    elif t[0] == ")":
                        opened.pop()
                    else:
                        left -= 1
                if token == END:
                    return left == 0
                if token[0] == ")":
                    fits = bool(opened) and opened[-1] == token[1:]
                    return fits and line[-1][0] != "("
                return left > 0
            """,
            "ends while words are left": """
                opened, left = [], n
                for t in line:
                    if t[0] == "(":
                        opened.append(t[1:])
                    elif t[0] == ")":
                        opened.pop()
                    else:
                        left -= 1
                if token == END:
                    return not opened
                if token[0] == ")":
                    fits = bool(opened) and opened[-1] == token[1:]
                    return fits and line[-1][0] != "("
                return left > 0
            """,
            "closes the outermost bracket only after the last word": """
                opened, left = [], n
                for t in line:
                    if t[0] == "(":
                        opened.append(t[1:])
                    elif t[0] == ")":
                        opened.pop()
                    else:
                        left -= 1
                if token == END:
                    return not opened and left == 0
                if token[0] == ")":
                    fits = bool(opened) and opened[-1] == token[1:]
                    fits = fits and line[-1][0] != "("
                    return fits and (len(opened) > 1 or left == 0)
                return left > 0
            """,
            "eats up the line that it was given": """
                opened, left = [], n
                while line:
                    t = line.pop(0)
                    last = t
                    if t[0] == "(":
                        opened.append(t[1:])
                    elif t[0] == ")":
                        opened.pop()
                    else:
                        left -= 1
                if token == END:
                    return not opened and left == 0
                if token[0] == ")":
                    return bool(opened) and opened[-1] == token[1:] and last[0] != "("
                return left > 0
            """,
            "allows one word too many": """
                opened, left = [], n
                for t in line:
                    if t[0] == "(":
                        opened.append(t[1:])
                    elif t[0] == ")":
                        opened.pop()
                    else:
                        left -= 1
                if token == END:
                    return not opened and left == 0
                if token[0] == ")":
                    fits = bool(opened) and opened[-1] == token[1:]
                    return fits and line[-1][0] != "("
                return left >= 0
            """,
        },
        right={
            "by the innermost bracket that nothing closes": """
                words = sum(t[:1] not in ("(", ")") for t in line)
                depth, innermost = 0, None
                for t in reversed(line):
                    depth += (t[0] == ")") - (t[0] == "(")
                    if depth < 0 and innermost is None:
                        innermost = t[1:]
                if token == END:
                    return innermost is None and words == n
                if token.startswith(")"):
                    return innermost == token[1:] and not line[-1].startswith("(")
                return words < n
            """,
        },
    ),
]
