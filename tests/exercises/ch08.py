"""Solutions of the exercises of chapter 8, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="08-09743968",
        wrong={
            "counts each word once": """
                best = best_pair(pair_counts(pieces, dict.fromkeys(words, 1)))
                return best, {w: merge(parts, best) for w, parts in pieces.items()}
            """,
            "breaks ties by the first seen": """
                best = pair_counts(pieces, words).most_common(1)[0][0]
                return best, {w: merge(parts, best) for w, parts in pieces.items()}
            """,
            "starts from letters each time": """
                letters = {word: tuple(word) for word in words}
                best = best_pair(pair_counts(letters, words))
                return best, {w: merge(parts, best) for w, parts in letters.items()}
            """,
            "changes the pieces in place": """
                best = best_pair(pair_counts(pieces, words))
                for word, parts in pieces.items():
                    pieces[word] = merge(parts, best)
                return best, pieces
            """,
            "breaks ties by the longer piece": """
                counts = pair_counts(pieces, words)
                best = min(
                    counts, key=lambda p: (-counts[p], -len("".join(p)), "".join(p))
                )
                return best, {w: merge(parts, best) for w, parts in pieces.items()}
            """,
            "merges the first place of a word only": """
                best = best_pair(pair_counts(pieces, words))
                new = {}
                for word, parts in pieces.items():
                    pairs = list(zip(parts, parts[1:]))
                    if best in pairs:
                        i = pairs.index(best)
                        parts = (*parts[:i], "".join(best), *parts[i + 2 :])
                    new[word] = parts
                return best, new
            """,
            "merges from the right": """
                best = best_pair(pair_counts(pieces, words))
                new = {}
                for word, parts in pieces.items():
                    done = []
                    for part in reversed(parts):
                        if done and (part, done[0]) == best:
                            done[0] = part + done[0]
                        else:
                            done.insert(0, part)
                    new[word] = tuple(done)
                return best, new
            """,
            "leaves out words that do not change": """
                best = best_pair(pair_counts(pieces, words))
                new = {w: merge(parts, best) for w, parts in pieces.items()}
                return best, {w: new[w] for w in new if new[w] != pieces[w]}
            """,
            "replaces in a string": """
                best = best_pair(pair_counts(pieces, words))
                new = {}
                for word, parts in pieces.items():
                    text = " ".join(parts).replace(" ".join(best), "".join(best))
                    new[word] = tuple(text.split())
                return best, new
            """,
            "a pair once in a word": """
                counts = Counter()
                for word, parts in pieces.items():
                    for pair in set(zip(parts, parts[1:], strict=False)):
                        counts[pair] += words[word]
                best = best_pair(counts)
                return best, {w: merge(parts, best) for w, parts in pieces.items()}
            """,
            "breaks ties by the two parts": """
                counts = pair_counts(pieces, words)
                best = min(counts, key=lambda pair: (-counts[pair], pair))
                return best, {w: merge(parts, best) for w, parts in pieces.items()}
            """,
            "loses a last part that stays alone": """
                best = best_pair(pair_counts(pieces, words))
                new = {}
                for word, parts in pieces.items():
                    i, out = 0, []
                    while i < len(parts) - 1:
                        joined = (parts[i], parts[i + 1]) == best
                        out.append(parts[i] + parts[i + 1] if joined else parts[i])
                        i += 2 if joined else 1
                    new[word] = tuple(out)
                return best, new
            """,
        },
        right={
            "without pair_counts": """
                counts = Counter()
                for word, parts in pieces.items():
                    for i in range(len(parts) - 1):
                        counts[parts[i], parts[i + 1]] += words[word]
                best = best_pair(counts)
                return best, {w: merge(parts, best) for w, parts in pieces.items()}
            """,
        },
    ),
    Exercise(
        cell="08-c7e684ee",
        wrong={
            "the shortest first": """
                parts = []
                while word:
                    ends = range(2, len(word) + 1)
                    end = next((end for end in ends if word[:end] in pieces), 1)
                    parts.append(word[:end])
                    word = word[end:]
                return tuple(parts)
            """,
            "from the right": """
                parts = []
                while word:
                    last = len(word) - 1
                    start = next((s for s in range(last) if word[s:] in pieces), last)
                    parts.insert(0, word[start:])
                    word = word[:start]
                return tuple(parts)
            """,
            "the longest anywhere in the word": """
                if len(word) < 2:
                    return (word,) if word else ()
                for size in range(len(word), 1, -1):
                    for i in range(len(word) - size + 1):
                        if word[i : i + size] in pieces:
                            left = longest_first(word[:i], pieces)
                            right = longest_first(word[i + size :], pieces)
                            return (*left, word[i : i + size], *right)
                return tuple(word)
            """,
            "the fewest parts": """
                best = [()]
                for end in range(1, len(word) + 1):
                    starts = [
                        s for s in range(end) if end - s == 1 or word[s:end] in pieces
                    ]
                    best.append(
                        min(((*best[s], word[s:end]) for s in starts), key=len)
                    )
                return best[-1]
            """,
            "never the whole word": """
                parts = []
                while word:
                    ends = range(len(word) - 1, 1, -1)
                    end = next((end for end in ends if word[:end] in pieces), 1)
                    parts.append(word[:end])
                    word = word[end:]
                return tuple(parts)
            """,
            "at most three letters": """
                parts = []
                while word:
                    ends = range(min(3, len(word)), 1, -1)
                    end = next((end for end in ends if word[:end] in pieces), 1)
                    parts.append(word[:end])
                    word = word[end:]
                return tuple(parts)
            """,
            "gives up at the first unknown letter": """
                parts = []
                while word:
                    ends = range(len(word), 0, -1)
                    end = next((end for end in ends if word[:end] in pieces), len(word))
                    parts.append(word[:end])
                    word = word[end:]
                return tuple(parts)
            """,
            "a regular expression without escapes": """
                longest = sorted(pieces, key=len, reverse=True)
                return tuple(re.findall("|".join([*longest, "."]), word))
            """,
            "grows while it is a piece": """
                parts = []
                while word:
                    end = 1
                    while end < len(word) and word[: end + 1] in pieces:
                        end += 1
                    parts.append(word[:end])
                    word = word[end:]
                return tuple(parts)
            """,
            "never twice the same piece": """
                parts = []
                while word:
                    fits = [p for p in pieces if word.startswith(p) and p not in parts]
                    parts.append(max(fits, key=len, default=word[0]))
                    word = word[len(parts[-1]) :]
                return tuple(parts)
            """,
            "the end of a word is left over": """
                parts, at = [], 0
                while at < len(word) - 1:
                    ends = range(len(word), at + 1, -1)
                    end = next((e for e in ends if word[at:e] in pieces), at + 1)
                    parts.append(word[at:end])
                    at = end
                return tuple(parts)
            """,
        },
        right={
            "as a regular expression": """
                ordered = sorted(pieces, key=len, reverse=True)
                pattern = "|".join([*map(re.escape, ordered), "."])
                return tuple(re.findall(pattern, word, flags=re.DOTALL))
            """,
        },
    ),
    Exercise(
        cell="08-72ad087b",
        wrong={
            "the first sentence only": """
                used = set(subwords.encode(sentences[0])) if sentences else set()
                return set(range(260, len(subwords))) - used
            """,
            "the last sentence only": """
                used = set()
                for sentence in sentences:
                    used = set(subwords.encode(sentence))
                return set(range(260, len(subwords))) - used
            """,
            "one size of vocabulary": """
                used = {t for sentence in sentences for t in subwords.encode(sentence)}
                return set(range(260, 600)) - used
            """,
            "with the bytes": """
                used = {t for sentence in sentences for t in subwords.encode(sentence)}
                return set(range(4, len(subwords))) - used
            """,
            "the used ones": """
                used = {t for sentence in sentences for t in subwords.encode(sentence)}
                return {token for token in used if token >= 260}
            """,
            "looks for the pieces in the text": """
                text = " ".join(sentences).replace(" ", "▁")
                piece = subwords.processor.id_to_piece
                ids = range(260, len(subwords))
                return {token for token in ids if piece(token) not in text}
            """,
            "what no single sentence holds": """
                idle = set(range(260, len(subwords)))
                found = [idle - set(subwords.encode(line)) for line in sentences]
                return set().union(*found) if found else idle
            """,
            "one off at the start": """
                used = {t for sentence in sentences for t in subwords.encode(sentence)}
                return set(range(261, len(subwords))) - used
            """,
            "up to the last one used": """
                used = {t for sentence in sentences for t in subwords.encode(sentence)}
                return set(range(260, max(used, default=len(subwords)))) - used
            """,
            "counts the steps on the way as used": """
                pieces = {p for s in sentences for p in subwords.pieces(s)}
                name = subwords.processor.id_to_piece
                ids = range(260, len(subwords))
                return {i for i in ids if not any(name(i) in p for p in pieces)}
            """,
            "takes the first id for a begin": """
                words = [word for sentence in sentences for word in sentence.split()]
                used = {t for word in words for t in subwords.encode(word)[1:]}
                return set(range(260, len(subwords))) - used
            """,
        },
        right={
            "one by one": """
                idle = list(range(260, len(subwords)))
                for sentence in sentences:
                    for token in subwords.encode(sentence):
                        if token in idle:
                            idle.remove(token)
                return set(idle)
            """,
        },
    ),
]
