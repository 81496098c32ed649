"""Chapter 17: words out of pieces, the view, what heads do, and what they are worth."""

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from annotated_transformer.data import encode_pairs, make_batch
from annotated_transformer.subwords import Subwords
from annotated_transformer.support import annotated_sentences as ours
from annotated_transformer.support import head_ablation as ablation
from annotated_transformer.support.annotated_sentences import (
    Caption,
    aligned_captions,
    make_caption,
)
from annotated_transformer.support.attention_view import (
    KINDS,
    attention_view,
    percentages,
    table_of,
)
from annotated_transformer.support.head_ablation import head_ablation
from annotated_transformer.support.records import read_record
from annotated_transformer.transformer import Transformer, TransformerConfig
from annotated_transformer.translator import Translation, Translator, attention_of
from annotated_transformer.visualization import (
    MODULES,
    AttentionMaps,
    Head,
    aligned_weights,
    alignment_accuracy,
    attention_maps,
    attention_rollout,
    head_class,
    head_measures,
    heads_of,
    merge_weights,
    merge_words,
    relation_accuracy,
    switched_off,
    value_norms,
    weigh_by_value,
    word_groups,
)


@pytest.fixture(scope="module")
def small(subwords: Subwords) -> Translator:
    """A translator that has learned nothing, with weights large enough that its heads
    differ."""
    torch.manual_seed(1)
    model = Transformer(TransformerConfig(len(subwords), 2, 16, 32, 2, max_length=40))
    for name, parameter in model.named_parameters():
        if "query" in name or "key" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    return Translator(model, subwords)


@pytest.fixture(scope="module")
def shipped() -> Translator:
    """The translator that the package brings."""
    return Translator.load()


def looked_at(translator: Translator, line: str) -> AttentionMaps:
    """The maps of a line and its translation, between words."""
    [translation] = translator.translate([line], beam_size=1)
    maps = attention_maps(translator, line, translation.text)
    return merge_words(maps, translator.subwords)


class Reader(HTMLParser):
    """The elements of a page with their attributes, and the text outside of style and
    script."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements, self.text, self.inside = [], "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside not in ("style", "script"):
            self.text += data


@given(
    st.lists(
        st.sampled_from(
            ["▁the", "▁", "dog", ".", ",", "▁(", "<0xE7>", "<s>", "</s>", "-"]
        ),
        max_size=12,
    )
)
def test_every_piece_is_in_one_word(pieces: list[str]) -> None:
    """Fails when a piece is lost, doubled or moved, and when begin or end are glued to
    a word."""
    groups = word_groups(pieces)
    assert [number for group in groups for number in group] == list(range(len(pieces)))
    for group in groups:
        texts = [pieces[number] for number in group]
        assert all(not text.startswith("▁") for text in texts[1:])
        assert len(group) == 1 or not {"<s>", "</s>"} & set(texts)


def test_words_get_the_sum_and_give_the_mean() -> None:
    """Fails when sum and mean change places: rows would not add up to one."""
    weights = torch.rand(2, 3, 5, 4).softmax(dim=-1)
    merged = merge_weights(weights, [[0], [1, 2], [3, 4]], [[0, 1, 2], [3]])
    assert merged.shape == (2, 3, 3, 2)
    assert_close(merged.sum(dim=-1), torch.ones(2, 3, 3))
    assert_close(merged[..., 1, 1], weights[..., 1:3, 3].mean(dim=-1))


def test_the_maps_are_what_the_model_computes(small: Translator) -> None:
    """Fails when a layer or a kind stands in another's position, or the target lacks
    its begin token; chapter 14's lists are the reference."""
    pair = "the old dog sees a cat", "der alte Hund sieht eine Katze"
    ids = [small.subwords.encode(side) for side in pair]
    reference = attention_of(small, Translation(pair[1], *ids))
    maps = attention_maps(small, *pair)
    assert maps.source == reference["source"] and maps.target == reference["target"]
    for head in heads_of(small.model):
        expected = torch.tensor(reference["weights"][head.module][head.number])
        assert_close(maps.of(head.kind)[head[1:]], expected)


def test_a_head_has_one_address(small: Translator) -> None:
    """Fails when a head is left out, or its module is another's."""
    heads = heads_of(small.model)
    assert len(heads) == len(set(heads)) == 3 * 2 * 2
    assert {head.module for head in heads} == {
        name.format(layer) for name in MODULES.values() for layer in range(2)
    }
    assert str(Head("cross", 1, 0)) == "Cross-attention 2.1"


def test_merged_words_are_those_of_the_sentence(small: Translator) -> None:
    """Fails when a character in bytes falls apart, or an attention is merged by the
    words of the wrong side."""
    maps = looked_at(small, "the old dog sees 犬, a cat.")
    words = ["the", "old", "dog", "sees", "犬", ",", "a", "cat", ".", "end"]
    assert maps.source == words and maps.target[0] == "begin"
    for kind in KINDS:
        queries, keys = maps.sides(kind)
        assert maps.of(kind).shape == (2, 2, len(queries), len(keys))
        sums = maps.of(kind).sum(dim=-1)
        assert_close(sums, torch.ones_like(sums))


def test_the_view_holds_every_layer_and_head(small: Translator) -> None:
    """Fails when a kind, a layer or a head is left out, or a weight stands under
    another head."""
    maps = looked_at(small, "the dog sees a cat")
    chosen = Head("encoder", 1, 1)
    view = Reader(attention_view(maps, chosen, word=2, labels={chosen: "a & b"}))
    root = dict(view.elements[0][1])
    data = json.loads(root["data-attention"])
    assert data["start"] == {"kind": 0, "layer": 1, "head": 1, "word": 2}
    assert [kind["name"] for kind in data["kinds"]] == list(KINDS.values())
    for name, kind in zip(KINDS, data["kinds"], strict=True):
        shown = torch.tensor(kind["weights"]) / 100
        assert_close(shown, maps.of(name), atol=0.0051, rtol=0)
        assert shown.shape[2:] == (len(kind["queries"]), len(kind["keys"]))
    assert data["kinds"][0]["labels"] == [["", ""], ["", "a & b"]]
    assert [kind["writes"] for kind in data["kinds"]] == [False, True, True]


HOSTILE = [
    "<script>alert(1)</script>",
    "</script>",
    '"><img src=x onerror=alert(1)>',
    "'",
    "&lt;",
    "<!--",
    "]]>",
    "\\u003c",
]


@pytest.mark.parametrize("word", HOSTILE)
def test_text_stays_text(small: Translator, word: str) -> None:
    """Fails when a word of the sentence, a label or a table cell becomes an element or
    leaves its attribute."""
    maps = looked_at(small, "the dog sees a cat")
    plain = Reader(attention_view(maps))
    changed = replace(maps, source=[word, *maps.source[1:]])
    view = Reader(attention_view(changed, labels={Head("cross", 0, 0): word}))
    assert [tag for tag, _ in view.elements] == [tag for tag, _ in plain.elements]
    assert [sorted(given) for _, given in view.elements] == [
        sorted(given) for _, given in plain.elements
    ]
    data = json.loads(view.elements[0][1]["data-attention"])
    assert data["kinds"][0]["queries"][0] == word == data["kinds"][2]["labels"][0][0]
    assert word in view.text and word in view.elements[0][1]["aria-label"]


def test_the_view_asks_nobody_and_has_no_ids(small: Translator) -> None:
    """Fails when something is loaded from elsewhere, or two views on one page would
    have the same id."""
    view = attention_view(looked_at(small, "the dog sees a cat"))
    assert not re.search(
        r"""\bid=|\bsrc=|href=|url\(|@import|fetch\(|XMLHttp|import\(|innerHTML|eval\(""",
        view,
    )
    assert set(re.findall(r"https?://[^\s\"']+", view)) == {
        "http://www.w3.org/2000/svg"
    }  # a name, not an address
    selectors = re.findall(
        r"^(\S[^{}]*)\{", view.split("<style>")[1].split("</style>")[0], re.M
    )
    assert len(selectors) > 20 and all(
        selector.startswith(".attention-view") for selector in selectors
    )


def test_the_view_is_a_table_without_scripts(small: Translator) -> None:
    """Fails when a word is missing from the tables, or a cell names another word than
    the strongest."""
    maps = looked_at(small, "the dog sees a cat")
    table = table_of(percentages(maps, "cross", {}))
    rows = re.findall(r"<tr><th>([^<]*)</th><td>([^<]*) (\d+) %</td><td>", table)
    assert [html.unescape(word) for word, *_ in rows] == maps.target
    for (_, word, percent), row in zip(rows, maps.cross[0].mean(dim=0), strict=True):
        assert abs(float(row[maps.source.index(word)]) - float(row.max())) < 0.011
        assert abs(int(percent) / 100 - float(row.max())) < 0.011


def test_what_the_eye_reads_is_in_the_name_of_the_button() -> None:
    """Fails when a head's button is called otherwise than its text (WCAG 2.5.3)."""
    view = attention_view(MADE)
    assert "const name = `${text} (layer" in view and "heatMap(rows), text)" in view


@pytest.mark.parametrize("start", [Head("encoder", 2, 0), Head("encoder", 0, 2)])
def test_a_head_that_is_not_there_is_named(small: Translator, start: Head) -> None:
    """Fails when the view opens somewhere else, or nowhere."""
    maps = looked_at(small, "the dog")
    with pytest.raises(ValueError, match=re.escape(f"no head {tuple(start)}")):
        attention_view(maps, start)
    with pytest.raises(ValueError, match="there is no word 99"):
        attention_view(maps, word=99)
    with pytest.raises(
        ValueError, match="there is no 'middle': expected one of encoder"
    ):
        attention_view(maps, Head("middle", 0, 0))


def made(weights: torch.Tensor) -> AttentionMaps:
    """Maps of one layer and one head that has these weights everywhere."""
    tokens = [str(i) for i in range(len(weights))]
    return AttentionMaps(tokens, tokens, *[weights.expand(1, 1, -1, -1)] * 3)


MADE = made(torch.eye(3))


@pytest.mark.parametrize(
    ("pattern", "shift"), [("previous", -1), ("same", 0), ("next", 1)]
)
def test_a_made_head_has_its_pattern(pattern: str, shift: int) -> None:
    """Fails when a direction is turned round: previous for next, or queries for
    keys."""
    n = 6
    weights = torch.zeros(n, n)
    for i in range(n):
        weights[i, min(max(i + shift, 0), n - 1)] = 1
    found = head_measures([made(weights)], "encoder")
    measures = {name: float(value) for name, value in found.items()}
    assert head_class(measures) == pattern and measures["entropy"] < 1e-6
    expected = (n - abs(shift)) / n - (n - abs(shift)) / n / n
    assert measures[pattern] == pytest.approx(expected)


def test_an_indifferent_head_is_diffuse() -> None:
    """Fails when chance is not subtracted: in a decoder the first token gets much from
    everybody, and the first query has no choice."""
    n = 6
    weights = torch.ones(n, n).tril() / torch.arange(1, n + 1).unsqueeze(1)
    found = head_measures([made(weights)], "decoder")
    assert float(found.pop("entropy")) == pytest.approx(1)
    assert set(found) == {"previous", "same", "first"}
    assert all(abs(float(value)) < 1e-5 for value in found.values())
    assert head_class({"entropy": 1.0, "same": 0.0}) == "diffuse"
    assert head_class({"entropy": 0.5, "same": 0.1}) == "other"


def test_long_sentences_count_for_more(small: Translator) -> None:
    """Fails when the mean is taken over sentences in place of queries."""
    pairs = [
        ("the dog", "der Hund"),
        ("the old woman sees the small dog", "die alte Frau sieht den kleinen Hund"),
    ]
    maps = [attention_maps(small, *pair) for pair in pairs]
    for kind in KINDS:
        sizes = [len(m.sides(kind)[0]) - (kind == "decoder") for m in maps]
        both = head_measures(maps, kind)
        alone = [head_measures([m], kind) for m in maps]
        for name, value in both.items():
            sums = sum(n * a[name] for n, a in zip(sizes, alone, strict=True))
            assert_close(value, sums / sum(sizes))


# Values, relations, rollout -----------------------------------------------------------


def test_norms_are_those_of_what_a_key_adds(small: Translator) -> None:
    """Fails when a head gets another head's part of the output projection, or the
    layers are out of order: the sum of weight times what a key adds must be what the
    attention gives out."""
    source, target = "the old dog", "der alte Hund"
    batch = make_batch(encode_pairs([(source, target)], small.subwords))
    attention = small.model.decoder.layers[1].cross_attention
    seen = {}
    handles = [
        attention.value_projection.register_forward_hook(
            lambda _, args, out: seen.update(values=out[0])
        )
    ]
    with torch.no_grad():
        small.model(batch.source, batch.target_input)
    handles[0].remove()
    norms = value_norms(small, source, target)
    for head in range(2):
        part = slice(head * attention.d_v, (head + 1) * attention.d_v)
        weight = attention.output_projection.weight[:, part]
        added = seen["values"][:, part] @ weight.T
        assert_close(norms["cross"][1, head], added.norm(dim=-1))
    assert {
        kind: tuple(norm.shape[:2]) for kind, norm in norms.items()
    } == dict.fromkeys(KINDS, (2, 2))


def test_weighing_by_value_moves_weight_to_long_values(small: Translator) -> None:
    """Fails when queries are scaled in place of keys, or rows no longer sum to one."""
    maps = attention_maps(small, "the old dog", "der alte Hund")
    norms = value_norms(small, "the old dog", "der alte Hund")
    weighed = weigh_by_value(maps, norms)
    for kind in KINDS:
        sums = weighed.of(kind).sum(dim=-1)
        assert_close(sums, torch.ones_like(sums))
        ratio = weighed.of(kind) / maps.of(kind)
        last = ratio[0, 0, -1] / norms[kind][0, 0]
        assert_close(last[~last.isnan()], last[:1].expand(int((~last.isnan()).sum())))
    assert weighed.source == maps.source


def test_relations_are_known_by_construction() -> None:
    """Fails when a relation leads to another word than it says, or comes at one
    distance only."""
    sentences = ours.related_sentences(200)
    assert sentences == ours.related_sentences(200) != ours.related_sentences(200, 1)
    assert len({sentence.text for sentence in sentences}) == 200
    words = {
        "article → noun": ("a the".split(), None),
        "object → verb": (ours.THINGS, ours.ACTIONS),
        "subject → verb": (ours.PEOPLE, ours.ACTIONS),
        "preposition → noun": ("in on".split(), [*ours.CLOTHES, *ours.PLACES]),
        "adjective → noun": (ours.LOOKS + ours.COLORS, None),
    }
    for relation, (first, second) in words.items():
        found = [
            (s.words[i], s.words[j], j - i)
            for s in sentences
            for name, i, j in s.relations
            if name == relation
        ]
        assert {a for a, _, _ in found} <= set(first)
        assert second is None or {b for _, b, _ in found} <= set(second)
        assert len({distance for _, _, distance in found}) > 1
    for distance in (2, 5, 9):
        for sentence in ours.far_objects(distance):
            [(_, i, j)] = sentence.relations
            assert i - j == distance and sentence.words[i] in ours.THINGS
            assert sentence.words[j] in ours.ACTIONS


def test_a_relation_is_found_by_the_head_that_follows_it() -> None:
    """Fails when rows and columns change places, a word counts as its own relative, or
    the end token does."""
    sentence = ours.RelatedWords(["a", "red", "ball"], [("adjective → noun", 1, 2)])
    weights = torch.zeros(1, 2, 5, 5)
    weights[0, 0, 1] = torch.tensor([0.05, 0.3, 0.2, 0.05, 0.4])  # itself, the end
    weights[0, 1, 1, 0] = 1
    words = [*sentence.words, ".", "end"]
    maps = AttentionMaps(words, [], weights, weights, weights)
    found = relation_accuracy([maps], [sentence], "adjective → noun")
    assert found.tolist() == [[1.0, 0.0]]


def test_the_shipped_translator_follows_syntax(shipped: Translator) -> None:
    """Fails when what chapter 17 says of the last layer's heads is no longer so."""
    sentences = ours.related_sentences(60, seed=5)
    maps = [
        merge_words(attention_maps(shipped, s.text, ""), shipped.subwords)
        for s in sentences
    ]
    for relation, head in (
        ("object → verb", (3, 3)),
        ("noun → preposition", (3, 3)),
        ("preposition → noun", (3, 2)),
        ("adjective → noun", (3, 2)),
    ):
        accuracy = float(relation_accuracy(maps, sentences, relation)[head])
        baseline = ours.distance_accuracy(sentences, sentences, relation)
        assert accuracy > 0.9 and accuracy > baseline + 0.1, relation


def test_rollout() -> None:
    """Fails when layers are multiplied in the wrong order, or the residual connection
    is left out."""
    first = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    second = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    weights = torch.stack([first, second]).unsqueeze(1)  # (layers, 1, 2, 2)
    half = torch.full((2, 2), 0.5)
    expected = (second + torch.eye(2)) / 2 @ half
    assert_close(attention_rollout(weights), expected)
    two_heads = torch.rand(3, 2, 4, 4).softmax(dim=-1)
    rolled = attention_rollout(two_heads)
    assert_close(rolled.sum(dim=-1), torch.ones(4))
    assert_close(rolled, attention_rollout(two_heads.mean(dim=1, keepdim=True)))


# Alignment ----------------------------------------------------------------------------


def test_captions_link_words_that_stand_for_each_other() -> None:
    """Fails when a chunk of two words loses a link, or the German order is taken for
    the English one."""
    caption = make_caption(
        ["a:ein", "man:Mann", "is_holding:hält", "in_the:im", "park:Park"],
        [3, 4, 2, 0, 1],
    )
    assert caption.target == ["im", "Park", "hält", "ein", "Mann"]
    assert caption.links == {(0, 4), (0, 5), (1, 6), (2, 2), (2, 3), (3, 0), (4, 1)}
    assert caption.pair == ("A man is holding in the park.", "Im Park hält ein Mann.")


def test_every_word_of_every_caption_is_linked(shipped: Translator) -> None:
    """Fails when a caption is made of chunks that miss a word, or a word of ours is not
    a word of the vocabulary's."""
    captions = aligned_captions()
    assert len({caption.pair for caption in captions}) == len(captions)
    for caption in captions[::7]:
        links = caption.link_matrix
        assert links.any(dim=0).all() and links.any(dim=1).all()
        for words, sentence in zip(
            (caption.source, caption.target), caption.pair, strict=True
        ):
            assert (
                len(word_groups(shipped.subwords.pieces(sentence))) == len(words) + 1
            )  # and the period


def test_accuracy_counts_hits() -> None:
    """Fails when rows and columns change places."""
    caption = Caption(["a", "b", "c"], ["x", "y"], {(0, 1), (1, 0), (1, 2)})
    right = torch.tensor([[0.1, 0.8, 0.1], [0.1, 0.2, 0.7]])
    assert alignment_accuracy([right], [caption]) == 1
    assert alignment_accuracy([right.flip(0)], [caption]) == 0
    assert_close(
        alignment_accuracy([torch.stack([right, right.flip(0)])], [caption]),
        torch.tensor([1.0, 0.0]),
    )


def test_the_row_that_reads_is_one_below_the_row_that_writes(
    shipped: Translator,
) -> None:
    """Fails when the two are taken for each other, or the begin token is read as a
    word."""
    caption = aligned_captions()[0]
    writes, reads = (
        aligned_weights(shipped, caption, row) for row in ("writes", "reads")
    )
    layers, heads = shipped.model.config.num_layers, shipped.model.config.num_heads
    assert (
        writes.shape
        == reads.shape
        == (layers, heads, len(caption.target), len(caption.source))
    )
    pieces = shipped.subwords.pieces(caption.pair[1])
    if (
        len(pieces) == len(caption.target) + 1
    ):  # no word in several pieces: one row each
        assert_close(reads[:, :, :-1], writes[:, :, 1:])
    with pytest.raises(
        ValueError, match="row is 'both', expected one of 'writes', 'reads'"
    ):
        aligned_weights(shipped, caption, "both")


def test_the_shipped_translator_aligns_words_out_of_order(shipped: Translator) -> None:
    """Fails when its cross-attention knows no more than that sentences run from left to
    right."""
    captions = aligned_captions()[1::30]  # the place stands first in German
    best = max(
        float(
            alignment_accuracy(
                [aligned_weights(shipped, caption, row) for caption in captions],
                captions,
            ).max()
        )
        for row in ("writes", "reads")
    )
    places = [
        [torch.linspace(0, 1, len(words)) for words in (c.target, c.source)]
        for c in captions
    ]
    diagonal = [-(target.unsqueeze(1) - source).abs() for target, source in places]
    assert best > float(alignment_accuracy(diagonal, captions)) + 0.1


def test_a_head_that_is_off_adds_nothing(small: Translator, subwords: Subwords) -> None:
    """Fails when the wrong columns are zeroed, or a head stays off after the block or
    an error in it."""
    batch = make_batch(encode_pairs([("the dog sees", "der Hund sieht")], subwords))
    model, head = small.model, Head("cross", 1, 1)
    attention = model.get_submodule(head.module)

    def logits() -> torch.Tensor:
        with torch.no_grad():
            return model(batch.source, batch.target_input)

    before = logits()
    with switched_off(model, [head]):
        off = logits()
    weight = attention.output_projection.weight.data
    kept = weight.clone()
    weight[:, attention.d_v : 2 * attention.d_v] = 0
    assert_close(off, logits())
    weight.copy_(kept)
    with pytest.raises(ZeroDivisionError), switched_off(model, heads_of(model)):
        assert not torch.equal(before, logits())
        raise ZeroDivisionError
    assert torch.equal(before, logits()) and not torch.equal(before, off)
    with (
        pytest.raises(ValueError, match="head is Head.*number=2.*expected one of"),
        switched_off(model, [Head("cross", 1, 2)]),
    ):
        pass


def test_several_heads_of_an_attention_are_off_together(small: Translator) -> None:
    """Fails when the second head switched off brings the first one back."""
    both = [Head("encoder", 0, 0), Head("encoder", 0, 1)]
    tokens = torch.tensor([[5, 6, 7]])
    attention = small.model.get_submodule(both[0].module)
    seen = []
    handle = attention.output_projection.register_forward_hook(
        lambda _, args, out: seen.append(args[0])
    )
    with torch.no_grad(), switched_off(small.model, both):
        small.model.encode(tokens)
    handle.remove()
    assert not seen[0].any()


def test_a_head_is_off_in_cached_decoding_too(small: Translator) -> None:
    """Fails when the search goes round the hook: every BLEU of the record would be that
    of all heads."""
    words = ["the dog sees a cat", "the old woman"]
    whole = [found.target_ids for found in small.translate(words, beam_size=2)]
    with switched_off(small.model, heads_of(small.model)):
        assert [
            found.target_ids for found in small.translate(words, beam_size=2)
        ] != whole


def test_ablation_scores_each_head_and_changes_nothing(small: Translator) -> None:
    """Fails when a head stays off for the next one, or is compared with itself."""
    pairs = [
        ("the dog sees a cat", "der Hund sieht eine Katze"),
        ("the old woman", "die alte Frau"),
    ]
    heads = heads_of(small.model)[:3]
    found = head_ablation(small, pairs, heads, beam_size=1)
    assert [(row["attention"], row["head"]) for row in found["heads"]] == [
        (head.module, head.number) for head in heads
    ]
    assert found["sentences"] == 2 and found["beam"] == 1
    alone = head_ablation(small, pairs, heads[2:], beam_size=1)
    assert alone["heads"] == found["heads"][2:] and alone["bleu"] == found["bleu"]


def test_the_command_writes_a_record(small: Translator, tmp_path, monkeypatch) -> None:  # noqa: ANN001
    """Fails when the record lacks its provenance, or a head."""
    small.facts = {"commit": "c", "date": "d", "step": 1, "seconds": 2.0}
    monkeypatch.setattr(Translator, "load", classmethod(lambda cls: small))

    class Three:
        test = [
            ("the dog", "der Hund"),
            ("a cat", "eine Katze"),
            ("the end", "das Ende"),
        ]

    monkeypatch.setattr(ablation, "load_multi30k", Three)
    path = tmp_path / "record.json"
    arguments = [str(path), "--sentences", "2", "--beam", "1"]
    result = CliRunner().invoke(ablation.main, arguments)
    assert result.exit_code == 0, result.output
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["sentences"] == 2
    assert len(record["heads"]) == len(heads_of(small.model))
    assert record["command"].startswith(" ".join(ablation.PROGRAM))
    for name in ("commit", "versions", "hardware", "date", "translator", "beam"):
        assert record[name] is not None or name == "commit"
    assert record["translator"] == small.facts


def test_the_record_is_of_the_shipped_translator(shipped: Translator) -> None:
    """Fails when the translator is trained anew and the command of chapter 17 is not
    run again; or when the bootstrap could not show a p below Bonferroni's line."""
    record = read_record("head_ablation")
    assert {(row["attention"], row["head"]) for row in record["heads"]} == {
        (head.module, head.number) for head in heads_of(shipped.model)
    }
    assert record["translator"] == {
        name: shipped.facts[name] for name in record["translator"]
    }
    assert all(
        0 <= row["bleu"] <= 100 and 0 <= row["p"] <= 1 for row in record["heads"]
    )
    assert 1 / 1001 < 0.05 / len(record["heads"])
