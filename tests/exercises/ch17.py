"""Solutions of the exercises of chapter 17, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="17-5a496cc6",
        wrong={
            "takes the mean of the captions' rates": """
                rates = []
                for weight, caption in zip(weights, captions, strict=True):
                    links = set(enumerate(weight.argmax(dim=-1).tolist()))
                    common = len(links & caption.links)
                    rates.append(1 - 2 * common / (len(links) + len(caption.links)))
                return sum(rates) / len(rates)
            """,
            "writes links English first": """
                common = found = true = 0
                for weight, caption in zip(weights, captions, strict=True):
                    links = {(j, i) for i, j in enumerate(weight.argmax(-1).tolist())}
                    common += len(links & caption.links)
                    found, true = found + len(links), true + len(caption.links)
                return 1 - 2 * common / (found + true)
            """,
            "looks for the strongest German word of each English one": """
                common = found = true = 0
                for weight, caption in zip(weights, captions, strict=True):
                    best = weight.argmax(dim=0).tolist()
                    links = {(i, j) for j, i in enumerate(best)}
                    common += len(links & caption.links)
                    found, true = found + len(links), true + len(caption.links)
                return 1 - 2 * common / (found + true)
            """,
            "counts the share of wrong links only": """
                common = found = 0
                for weight, caption in zip(weights, captions, strict=True):
                    links = set(enumerate(weight.argmax(dim=-1).tolist()))
                    common += len(links & caption.links)
                    found += len(links)
                return 1 - common / found
            """,
            "counts the share of missing links only": """
                common = true = 0
                for weight, caption in zip(weights, captions, strict=True):
                    links = set(enumerate(weight.argmax(dim=-1).tolist()))
                    common += len(links & caption.links)
                    true += len(caption.links)
                return 1 - common / true
            """,
            "gives the agreement instead of the error": """
                common = found = true = 0
                for weight, caption in zip(weights, captions, strict=True):
                    links = set(enumerate(weight.argmax(dim=-1).tolist()))
                    common += len(links & caption.links)
                    found, true = found + len(links), true + len(caption.links)
                return 2 * common / (found + true)
            """,
            "forgets the factor of two": """
                common = found = true = 0
                for weight, caption in zip(weights, captions, strict=True):
                    links = set(enumerate(weight.argmax(dim=-1).tolist()))
                    common += len(links & caption.links)
                    found, true = found + len(links), true + len(caption.links)
                return 1 - common / (found + true)
            """,
            "divides by the union, as Jaccard does": """
                common = union = 0
                for weight, caption in zip(weights, captions, strict=True):
                    links = set(enumerate(weight.argmax(dim=-1).tolist()))
                    common += len(links & caption.links)
                    union += len(links | caption.links)
                return 1 - common / union
            """,
            "one hit for each German word that has a link": """
                common = found = 0
                for weight, caption in zip(weights, captions, strict=True):
                    for i, j in enumerate(weight.argmax(dim=-1).tolist()):
                        linked = {t for s, t in caption.links if s == i}
                        found += bool(linked)
                        common += j in linked
                return 1 - common / found
            """,
            "takes every weight above a half for a link": """
                common = found = true = 0
                for weight, caption in zip(weights, captions, strict=True):
                    links = {tuple(link) for link in (weight > 0.5).nonzero().tolist()}
                    common += len(links & caption.links)
                    found, true = found + len(links), true + len(caption.links)
                return 1 - 2 * common / (found + true)
            """,
            "keeps links that are strongest from both sides": """
                common = found = true = 0
                for weight, caption in zip(weights, captions, strict=True):
                    best = weight.argmax(dim=0).tolist()
                    links = set(enumerate(weight.argmax(dim=-1).tolist()))
                    links = {(i, j) for i, j in links if best[j] == i}
                    common += len(links & caption.links)
                    found, true = found + len(links), true + len(caption.links)
                return 1 - 2 * common / (found + true)
            """,
            "leaves out words that have no link": """
                common = found = true = 0
                for weight, caption in zip(weights, captions, strict=True):
                    linked = {i for i, _ in caption.links}
                    links = set(enumerate(weight.argmax(dim=-1).tolist()))
                    links = {(i, j) for i, j in links if i in linked}
                    common += len(links & caption.links)
                    found, true = found + len(links), true + len(caption.links)
                return 1 - 2 * common / (found + true)
            """,
            "takes the mean over captions, by their words": """
                total = words = 0
                for weight, caption in zip(weights, captions, strict=True):
                    links = set(enumerate(weight.argmax(dim=-1).tolist()))
                    common = len(links & caption.links)
                    rate = 1 - 2 * common / (len(links) + len(caption.links))
                    total, words = total + len(weight) * rate, words + len(weight)
                return total / words
            """,
            "forgets which caption a link is of": """
                found, true = set(), set()
                for weight, caption in zip(weights, captions, strict=True):
                    found |= set(enumerate(weight.argmax(dim=-1).tolist()))
                    true |= caption.links
                return 1 - 2 * len(found & true) / (len(found) + len(true))
            """,
            "gives each English word away once": """
                common = found = true = 0
                for weight, caption in zip(weights, captions, strict=True):
                    left, links = weight.clone(), set()
                    for i in range(min(weight.shape)):
                        j = int(left[i].argmax())
                        left[:, j] = -1
                        links.add((i, j))
                    common += len(links & caption.links)
                    found, true = found + len(links), true + len(caption.links)
                return 1 - 2 * common / (found + true)
            """,
            "takes the links out of the caption that it was given": """
                common = found = true = 0
                for weight, caption in zip(weights, captions, strict=True):
                    found, true = found + len(weight), true + len(caption.links)
                    for link in enumerate(weight.argmax(dim=-1).tolist()):
                        if link in caption.links:
                            caption.links.remove(link)
                            common += 1
                return 1 - 2 * common / (found + true)
            """,
        },
        right={
            "with matrices of links": """
                sums = torch.zeros(3)
                for weight, caption in zip(weights, captions, strict=True):
                    n = weight.size(-1)
                    links = torch.nn.functional.one_hot(weight.argmax(-1), n).bool()
                    true = caption.link_matrix
                    counts = (links & true).sum(), links.sum(), true.sum()
                    sums += torch.tensor(counts)
                return float(1 - 2 * sums[0] / (sums[1] + sums[2]))
            """,
        },
    ),
    Exercise(
        cell="17-8022ac68",
        wrong={
            "keeps the least needed head": """
                kept = {}
                for head in damage:
                    best = kept.setdefault(head.module, head)
                    if damage[head] < damage[best]:
                        kept[head.module] = head
                return [head for head in damage if kept[head.module] != head]
            """,
            "keeps one head of each kind": """
                kept = {}
                for head in damage:
                    best = kept.setdefault(head.kind, head)
                    if damage[head] > damage[best]:
                        kept[head.kind] = head
                return [head for head in damage if kept[head.kind] != head]
            """,
            "keeps one head of each layer": """
                kept = {}
                for head in damage:
                    best = kept.setdefault(head.layer, head)
                    if damage[head] > damage[best]:
                        kept[head.layer] = head
                return [head for head in damage if kept[head.layer] != head]
            """,
            "keeps as many heads, but those that hurt most of all": """
                number = 3 * len({head.layer for head in damage})
                keep = sorted(damage, key=damage.get)[-number:]
                return [head for head in damage if head not in keep]
            """,
            "keeps the head that comes last among equals": """
                kept = {}
                for head in damage:
                    best = kept.setdefault(head.module, head)
                    if damage[head] >= damage[best]:
                        kept[head.module] = head
                return [head for head in damage if kept[head.module] != head]
            """,
            "keeps all heads that hurt most": """
                most = {}
                for head in damage:
                    most[head.module] = max(most.get(head.module, -9), damage[head])
                return [head for head in damage if damage[head] < most[head.module]]
            """,
            "gives the heads that are kept": """
                kept = {}
                for head in damage:
                    best = kept.setdefault(head.module, head)
                    if damage[head] > damage[best]:
                        kept[head.module] = head
                return list(kept.values())
            """,
            "keeps the first head of each attention": """
                return [head for head in damage if head.number > 0]
            """,
            "takes no negative damage for the largest": """
                kept, most = {}, {}
                for head in damage:
                    if damage[head] > most.get(head.module, 0):
                        kept[head.module], most[head.module] = head, damage[head]
                return [head for head in damage if kept.get(head.module) != head]
            """,
            "takes the size of the damage, without its sign": """
                kept = {}
                for head in damage:
                    best = kept.setdefault(head.module, head)
                    if abs(damage[head]) > abs(damage[best]):
                        kept[head.module] = head
                return [head for head in damage if kept[head.module] != head]
            """,
            "keeps one head of each number": """
                kept = {}
                for head in damage:
                    key = head.kind, head.number
                    if damage[head] > damage[kept.setdefault(key, head)]:
                        kept[key] = head
                return [head for head in damage if head not in kept.values()]
            """,
            "begins the search at minus one": """
                kept, most = {}, {}
                for head in damage:
                    if damage[head] > most.get(head.module, -1):
                        kept[head.module], most[head.module] = head, damage[head]
                return [head for head in damage if kept.get(head.module) != head]
            """,
            "keeps whatever hurts as much as some best head": """
                most = {}
                for head in damage:
                    most[head.module] = max(most.get(head.module, -9), damage[head])
                return [head for head in damage if damage[head] not in most.values()]
            """,
            "takes neighbors in the dictionary for one attention": """
                from itertools import groupby

                off = []
                for _, group in groupby(damage, key=lambda head: head.module):
                    group = list(group)
                    best = max(group, key=damage.get)
                    off += [head for head in group if head != best]
                return off
            """,
            "compares with the head before only": """
                off, before = [], {}
                for head in damage:
                    rival = before.get(head.module)
                    if rival is not None:
                        off.append(min(head, rival, key=damage.get))
                    before[head.module] = head
                return off
            """,
            "empties the dictionary that it was given": """
                kept = {}
                heads = list(damage)
                values = {head: damage.pop(head) for head in heads}
                for head in heads:
                    best = kept.setdefault(head.module, head)
                    if values[head] > values[best]:
                        kept[head.module] = head
                return [head for head in heads if kept[head.module] != head]
            """,
        },
        right={
            "sorted by attention, then by damage": """
                order = {head: i for i, head in enumerate(damage)}
                ranked = sorted(damage, key=lambda h: (h[:2], -damage[h], order[h]))
                off = []
                for before, head in zip(ranked, ranked[1:]):
                    if before[:2] == head[:2]:
                        off.append(head)
                return off
            """,
        },
    ),
]
