"""Solutions of the exercises of chapter 19, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="19-b2903f7d",
        wrong={
            "forgets the biases of attention": """
                layer = 4 * d_model**2 + 2 * d_model * d_ff + d_ff + 5 * d_model
                tables = (vocabulary_size + max_length) * d_model
                return num_layers * layer + tables + 2 * d_model
            """,
            "forgets the last norm": """
                layer = 4 * (d_model**2 + d_model) + 2 * d_model * d_ff
                layer += d_ff + d_model + 4 * d_model
                return num_layers * layer + (vocabulary_size + max_length) * d_model
            """,
            "takes d_ff for 4 d_model": """
                layer = 12 * d_model**2 + 13 * d_model
                tables = (vocabulary_size + max_length) * d_model
                return num_layers * layer + tables + 2 * d_model
            """,
            "counts the shared matrix twice": """
                layer = 4 * (d_model**2 + d_model) + 2 * d_model * d_ff
                layer += d_ff + 5 * d_model
                tables = (2 * vocabulary_size + max_length) * d_model
                return num_layers * layer + tables + 2 * d_model
            """,
            "norms of one vector each": """
                layer = 4 * (d_model**2 + d_model) + 2 * d_model * d_ff
                layer += d_ff + d_model + 2 * d_model
                tables = (vocabulary_size + max_length) * d_model
                return num_layers * layer + tables + d_model
            """,
            "no table of positions": """
                layer = 4 * d_model**2 + 2 * d_model * d_ff + 9 * d_model + d_ff
                return num_layers * layer + vocabulary_size * d_model + 2 * d_model
            """,
            "three matrices of attention": """
                attention = 3 * (d_model**2 + d_model)
                layer = attention + 2 * d_model * d_ff + d_ff + 5 * d_model
                embeddings = (vocabulary_size + max_length) * d_model
                return num_layers * layer + embeddings + 2 * d_model
            """,
            "one bias in the feed-forward network": """
                attention = 4 * (d_model**2 + d_model)
                layer = attention + 2 * d_model * d_ff + d_model + 4 * d_model
                embeddings = (vocabulary_size + max_length) * d_model
                return num_layers * layer + embeddings + 2 * d_model
            """,
            "a cross-attention in each layer": """
                attention = 4 * (d_model**2 + d_model)
                layer = 2 * attention + 2 * d_model * d_ff + d_ff + 7 * d_model
                embeddings = (vocabulary_size + max_length) * d_model
                return num_layers * layer + embeddings + 2 * d_model
            """,
        },
        right={
            "part by part": """
                def linear(inputs, outputs):
                    return inputs * outputs + outputs

                norm = 2 * d_model
                layer = 4 * linear(d_model, d_model) + 2 * norm
                layer += linear(d_model, d_ff) + linear(d_ff, d_model)
                tables = d_model * vocabulary_size + d_model * max_length
                return tables + num_layers * layer + norm
            """,
        },
    ),
    Exercise(
        cell="19-71cc9fd6",
        wrong={
            "no last sentinel": """
                source, target, done = [], [], 0
                for sentinel, (start, end) in enumerate(spans, start=first_sentinel):
                    source += [*ids[done:start], sentinel]
                    target += [sentinel, *ids[start:end]]
                    done = end
                return [*source, *ids[done:]], target
            """,
            "loses what stands after the last span": """
                source, target, done = [], [], 0
                for sentinel, (start, end) in enumerate(spans, start=first_sentinel):
                    source += [*ids[done:start], sentinel]
                    target += [sentinel, *ids[start:end]]
                    done = end
                return source, [*target, first_sentinel + len(spans)]
            """,
            "a sentinel for each hidden token": """
                source, target, done, sentinel = [], [], 0, first_sentinel
                for start, end in spans:
                    source += ids[done:start]
                    for token in ids[start:end]:
                        source.append(sentinel)
                        target += [sentinel, token]
                        sentinel += 1
                    done = end
                return [*source, *ids[done:]], [*target, sentinel]
            """,
            "one sentinel for all spans": """
                source, target, done = [], [], 0
                for start, end in spans:
                    source += [*ids[done:start], first_sentinel]
                    target += [first_sentinel, *ids[start:end]]
                    done = end
                last = first_sentinel + len(spans)
                return [*source, *ids[done:]], [*target, last]
            """,
            "removes by value, so that other copies go too": """
                source, target = list(ids), []
                for i, (start, end) in enumerate(spans):
                    hidden = ids[start:end]
                    target += [first_sentinel + i, *hidden]
                    source = [
                        token for token in source if token not in hidden
                    ]
                    source.insert(start, first_sentinel + i)
                return source, [*target, first_sentinel + len(spans)]
            """,
            "changes the list that it was given": """
                target = []
                for i, (start, end) in reversed(list(enumerate(spans))):
                    target = [first_sentinel + i, *ids[start:end], *target]
                    ids[start:end] = [first_sentinel + i]
                return ids, [*target, first_sentinel + len(spans)]
            """,
            "ends taken as included": """
                source, target, done = [], [], 0
                for sentinel, (start, end) in enumerate(spans, start=first_sentinel):
                    source += [*ids[done:start], sentinel]
                    target += [sentinel, *ids[start : end + 1]]
                    done = end + 1
                return [*source, *ids[done:]], [*target, first_sentinel + len(spans)]
            """,
            "sentinels from 100, whatever is asked": """
                source, target, done = [], [], 0
                for sentinel, (start, end) in enumerate(spans, start=100):
                    source += [*ids[done:start], sentinel]
                    target += [sentinel, *ids[start:end]]
                    done = end
                return [*source, *ids[done:]], [*target, 100 + len(spans)]
            """,
            "sentinels that count down": """
                source, target, done, sentinel = [], [], 0, first_sentinel
                for start, end in spans:
                    source += [*ids[done:start], sentinel]
                    target += [sentinel, *ids[start:end]]
                    done, sentinel = end, sentinel - 1
                return [*source, *ids[done:]], [*target, sentinel]
            """,
            "the last sentinel in the source, too": """
                source, target, done = [], [], 0
                for sentinel, (start, end) in enumerate(spans, start=first_sentinel):
                    source += [*ids[done:start], sentinel]
                    target += [sentinel, *ids[start:end]]
                    done = end
                last = first_sentinel + len(spans)
                return [*source, *ids[done:], last], [*target, last]
            """,
            "the spans grow on a second call": """
                spans.append((len(ids), len(ids)))
                source, target, done = [], [], 0
                for sentinel, (start, end) in enumerate(spans, start=first_sentinel):
                    source += [*ids[done:start], sentinel]
                    target += [sentinel, *ids[start:end]]
                    done = end
                return source[:-1], target
            """,
        },
        right={
            "from the back": """
                source, target = list(ids), [first_sentinel + len(spans)]
                for i in reversed(range(len(spans))):
                    start, end = spans[i]
                    target = [first_sentinel + i] + source[start:end] + target
                    source[start:end] = [first_sentinel + i]
                return source, target
            """,
        },
    ),
]
