"""Solutions of the exercises of chapter 14, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="14-57a70002",
        wrong={
            "rounds to two places": """
                reference, length, *counts = np.sum(rows, axis=0)
                precisions = np.array(counts[4:]) / np.array(counts[:4])
                brevity = min(1.0, math.exp(1 - reference / length))
                return round(100 * brevity * math.exp(np.log(precisions).mean()), 2)
            """,
            "adds one to every count": """
                reference, length, *counts = np.sum(rows, axis=0)
                precisions = (np.array(counts[4:]) + 1) / (np.array(counts[:4]) + 1)
                brevity = min(1.0, math.exp(1 - reference / length))
                return 100 * brevity * math.exp(np.log(precisions).mean())
            """,
            "caps each sentence at the length of its reference": """
                rows = np.array(rows)
                reference = rows[:, 0].sum()
                length = np.minimum(rows[:, 0], rows[:, 1]).sum()
                counts = rows[:, 2:].sum(axis=0)
                brevity = min(1.0, math.exp(1 - reference / length))
                return 100 * brevity * math.exp(np.log(counts[4:] / counts[:4]).mean())
            """,
            "the mean of the sentences' scores": """
                scores = []
                for reference, length, *counts in rows:
                    p = np.maximum(counts[4:], 1e-9) / np.maximum(counts[:4], 1)
                    brevity = min(1.0, math.exp(1 - reference / length))
                    scores.append(100 * brevity * math.exp(np.log(p).mean()))
                return float(np.mean(scores))
            """,
            "the arithmetic mean of the precisions": """
                reference, length, *counts = np.sum(rows, axis=0)
                precisions = np.array(counts[4:]) / np.array(counts[:4])
                brevity = min(1.0, math.exp(1 - reference / length))
                return 100 * brevity * precisions.mean()
            """,
            "no brevity penalty": """
                reference, length, *counts = np.sum(rows, axis=0)
                precisions = np.array(counts[4:]) / np.array(counts[:4])
                return 100 * math.exp(np.log(precisions).mean())
            """,
            "a reward for length": """
                reference, length, *counts = np.sum(rows, axis=0)
                precisions = np.array(counts[4:]) / np.array(counts[:4])
                brevity = math.exp(1 - reference / length)
                return 100 * brevity * math.exp(np.log(precisions).mean())
            """,
            "the two lengths exchanged": """
                length, reference, *counts = np.sum(rows, axis=0)
                precisions = np.array(counts[4:]) / np.array(counts[:4])
                brevity = min(1.0, math.exp(1 - reference / length))
                return 100 * brevity * math.exp(np.log(precisions).mean())
            """,
            "the penalty of each sentence, averaged": """
                table = np.array(rows)
                brevity = np.minimum(1, np.exp(1 - table[:, 0] / table[:, 1])).mean()
                sums = table.sum(axis=0)
                return 100 * brevity * math.exp(np.log(sums[6:] / sums[2:6]).mean())
            """,
            "a ratio as the penalty": """
                reference, length, *counts = np.sum(rows, axis=0)
                precisions = np.array(counts[4:]) / np.array(counts[:4])
                brevity = min(1.0, length / reference)
                return 100 * brevity * math.exp(np.log(precisions).mean())
            """,
            "a share, not 0 to 100": """
                reference, length, *counts = np.sum(rows, axis=0)
                precisions = np.array(counts[4:]) / np.array(counts[:4])
                brevity = min(1.0, math.exp(1 - reference / length))
                return brevity * math.exp(np.log(precisions).mean())
            """,
            "asks the package": """
                sums = np.sum(rows, axis=0)
                return bleu_from_counts(
                    np.stack([sums[2:6], np.repeat(sums[0], 4), sums[6:]], axis=-1)
                )
            """,
            "totals and matches interleaved": """
                reference, length, *counts = np.sum(rows, axis=0)
                precisions = np.array(counts[1::2]) / np.array(counts[::2])
                brevity = min(1.0, math.exp(1 - reference / length))
                return 100 * brevity * math.exp(np.log(precisions).mean())
            """,
            "bigrams at most": """
                reference, length, *counts = np.sum(rows, axis=0)
                precisions = np.array(counts[4:6]) / np.array(counts[:2])
                brevity = min(1.0, math.exp(1 - reference / length))
                return 100 * brevity * math.exp(np.log(precisions).mean())
            """,
        },
        right={
            "in logarithms, by hand": """
                sums = [sum(column) for column in zip(*rows)]
                log = min(0.0, 1 - sums[0] / sums[1])
                for total, match in zip(sums[2:6], sums[6:10]):
                    log += math.log(match / total) / 4
                return 100 * math.exp(log)
            """,
        },
    ),
    Exercise(
        cell="14-7ae356b9",
        wrong={
            "leaves out words of a single letter": """
                said = set(re.findall(r"\\w\\w+", text))
                return [word for word in re.findall(r"\\w\\w+", source) if word in said]
            """,
            "the longest common sequence of words": """
                import difflib
                a, b = re.findall(r"\\w+", source), re.findall(r"\\w+", text)
                blocks = difflib.SequenceMatcher(None, a, b).get_matching_blocks()
                return [word for m in blocks for word in a[m.a : m.a + m.size]]
            """,
            "words that only begin alike": """
                said = re.findall(r"\\w+", text)
                return [word for word in re.findall(r"\\w+", source)
                        if any(other.startswith(word) for other in said)]
            """,
            "parts of words count": """
                return [w for w in re.findall(r"\\w+", source) if w in text]
            """,
            "splits at spaces, so that punctuation sticks": """
                return [w for w in source.split() if w in text.split()]
            """,
            "small letters count as capitals": """
                said = re.findall(r"\\w+", text.lower())
                return [w for w in re.findall(r"\\w+", source) if w.lower() in said]
            """,
            "a set: each once, in any order": """
                said = set(re.findall(r"\\w+", text))
                return sorted(set(re.findall(r"\\w+", source)) & said)
            """,
            "in the order of the translation": """
                read = re.findall(r"\\w+", source)
                return [w for w in re.findall(r"\\w+", text) if w in read]
            """,
            "each once": """
                said = set(re.findall(r"\\w+", text))
                found = [w for w in re.findall(r"\\w+", source) if w in said]
                return list(dict.fromkeys(found))
            """,
            "letters of the English alphabet only": """
                said = set(re.findall(r"[A-Za-z]+", text))
                return [w for w in re.findall(r"[A-Za-z]+", source) if w in said]
            """,
            "capitalized words only": """
                said = set(re.findall(r"\\w+", text))
                return [w for w in re.findall(r"[A-Z]\\w+", source) if w in said]
            """,
            "all words of the source": """
                return re.findall(r"\\w+", source)
            """,
            "one for one, used up": """
                said = re.findall(r"\\w+", text)
                found = []
                for w in re.findall(r"\\w+", source):
                    if w in said:
                        said.remove(w)
                        found.append(w)
                return found
            """,
        },
        right={
            "word by word, with boundaries": """
                return [
                    word
                    for word in re.split(r"\\W+", source)
                    if word and re.search(rf"(?<!\\w){re.escape(word)}(?!\\w)", text)
                ]
            """,
        },
    ),
    Exercise(
        cell="14-0fd1dfb0",
        wrong={
            "through sixteen bits on the way": """
                model = Transformer(translator.model.config)
                weights = translator.model.state_dict()
                weights = {k: w.half().to(kind).float() for k, w in weights.items()}
                model.load_state_dict(weights)
                return Translator(model, translator.subwords)
            """,
            "scales each matrix by its largest weight first": """
                model = Transformer(translator.model.config)
                weights = {}
                for name, weight in translator.model.state_dict().items():
                    most = weight.abs().max()
                    weights[name] = (weight / most).to(kind).float() * most
                model.load_state_dict(weights)
                return Translator(model, translator.subwords)
            """,
            "leaves the model in training": """
                model = Transformer(translator.model.config)
                weights = translator.model.state_dict()
                weights = {name: w.to(kind).float() for name, w in weights.items()}
                model.load_state_dict(weights)
                twin = Translator(model, translator.subwords)
                twin.model.train()
                return twin
            """,
            "rounds the embedding only": """
                model = Transformer(translator.model.config)
                weights = dict(translator.model.state_dict())
                name = "embedding.weight"
                weights[name] = weights[name].to(kind).float()
                model.load_state_dict(weights)
                return Translator(model, translator.subwords)
            """,
            "rounds the translator that is handed over": """
                for weight in translator.model.parameters():
                    weight.data = weight.data.to(kind).float()
                return Translator(translator.model, translator.subwords)
            """,
            "rounds in place, and copies": """
                import copy
                for weight in translator.model.parameters():
                    weight.data.copy_(weight.data.to(kind).float())
                return Translator(copy.deepcopy(translator.model), translator.subwords)
            """,
            "always sixteen bits": """
                model = Transformer(translator.model.config)
                weights = translator.model.state_dict()
                weights = {name: w.half().float() for name, w in weights.items()}
                model.load_state_dict(weights)
                return Translator(model, translator.subwords)
            """,
            "stays in the small type": """
                import copy
                model = copy.deepcopy(translator.model).to(kind)
                return Translator(model, translator.subwords)
            """,
            "matrices only": """
                import copy
                model = copy.deepcopy(translator.model)
                for weight in model.parameters():
                    if weight.dim() > 1:
                        weight.data = weight.data.to(kind).float()
                return Translator(model, translator.subwords)
            """,
            "a new model, not loaded": """
                model = Transformer(translator.model.config)
                for weight in model.parameters():
                    weight.data = weight.data.to(kind).float()
                return Translator(model, translator.subwords)
            """,
            "the shipped translator, whatever is handed over": """
                shipped = Translator.load()
                for weight in shipped.model.parameters():
                    weight.data = weight.data.to(kind).float()
                return Translator(shipped.model, translator.subwords)
            """,
            "rounds to a hundredth": """
                model = Transformer(translator.model.config)
                weights = translator.model.state_dict()
                weights = {n: (w * 100).round() / 100 for n, w in weights.items()}
                model.load_state_dict(weights)
                return Translator(model, translator.subwords)
            """,
        },
        right={
            "a deep copy of the whole translator": """
                from copy import deepcopy

                twin = deepcopy(translator)
                twin.model.to(kind).float()
                return twin
            """,
            "a copy, weight by weight": """
                import copy
                model = copy.deepcopy(translator.model)
                with torch.no_grad():
                    for weight in model.parameters():
                        weight.copy_(weight.to(kind))
                return Translator(model, translator.subwords, translator.facts)
            """,
        },
    ),
]
