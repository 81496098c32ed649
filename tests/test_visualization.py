"""Chapter 17: words out of pieces, the view, what heads do, and what they are worth."""

import html
import json
import re
from html.parser import HTMLParser

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import annotated_transformer.visualization as visualization
from annotated_transformer.data import encode_pairs, make_batch
from annotated_transformer.subwords import Subwords
from annotated_transformer.transformer import Transformer, TransformerConfig
from annotated_transformer.support.records import read_record
from annotated_transformer.translator import Translator, attention_of
from annotated_transformer.visualization import (
    KINDS,
    Caption,
    aligned_captions,
    aligned_weights,
    alignment_accuracy,
    allowed_keys,
    attention_view,
    head_ablation,
    head_class,
    head_measures,
    heads_of,
    layers_of,
    link_matrix,
    make_caption,
    measure_heads,
    merge_weights,
    merge_words,
    patterns_of,
    percentages,
    record_ablation,
    sides_of,
    switched_off,
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


def looked_at(translator: Translator, line: str) -> dict:
    return merge_words(
        attention_of(translator, next(translator.translate([line], beam_size=1))),
        translator.subwords,
    )


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


def test_merged_words_are_those_of_the_sentence(small: Translator) -> None:
    """Fails when a character in bytes falls apart, or an attention is merged by the
    words of the wrong side."""
    looked = looked_at(small, "the old dog sees 犬, a cat.")
    assert looked["source"] == [
        "the",
        "old",
        "dog",
        "sees",
        "犬",
        ",",
        "a",
        "cat",
        ".",
        "end",
    ]
    assert looked["target"][0] == "begin"
    for name, weights in looked["weights"].items():
        queries, keys = sides_of(name)
        heads = torch.tensor(weights)
        assert heads.shape == (2, len(looked[queries]), len(looked[keys]))
        assert_close(heads.sum(dim=-1), torch.ones(heads.shape[:2]))


def test_the_view_holds_every_layer_and_head(small: Translator) -> None:
    """Fails when a kind, a layer or a head is left out, or a weight stands under
    another head."""
    looked = looked_at(small, "the dog sees a cat")
    chosen = ("encoder.layers.1.self_attention", 1)
    view = Reader(attention_view(looked, chosen, word=2, labels={chosen: "a & b"}))
    root = dict(view.elements[0][1])
    data = json.loads(root["data-attention"])
    assert data["start"] == {"kind": 0, "layer": 1, "head": 1, "word": 2}
    assert [kind["name"] for kind in data["kinds"]] == list(KINDS)
    for kind in data["kinds"]:
        names = layers_of(kind["name"], looked["weights"])
        assert len(names) == 2
        expected = torch.tensor([looked["weights"][name] for name in names])
        assert_close(torch.tensor(kind["weights"]) / 100, expected, atol=0.0051, rtol=0)
        assert expected.shape[2:] == (len(kind["queries"]), len(kind["keys"]))
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
    looked = looked_at(small, "the dog sees a cat")
    plain = Reader(attention_view(looked))
    changed = {**looked, "source": [word, *looked["source"][1:]]}
    head = (layers_of("Cross-attention", looked["weights"])[0], 0)
    view = Reader(attention_view(changed, labels={head: word}))
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
    looked = looked_at(small, "the dog sees a cat")
    kind = percentages(looked, "Cross-attention", {})
    table = visualization.table_of(kind)
    rows = re.findall(r"<tr><th>([^<]*)</th><td>([^<]*) (\d+) %</td><td>", table)
    assert [html.unescape(word) for word, *_ in rows] == looked["target"]
    weights = torch.tensor(looked["weights"]["decoder.layers.0.cross_attention"]).mean(
        dim=0
    )
    for (_, word, percent), row in zip(rows, weights, strict=True):
        assert abs(float(row[looked["source"].index(word)]) - float(row.max())) < 0.011
        assert abs(int(percent) / 100 - float(row.max())) < 0.011


@pytest.mark.parametrize(
    ("start", "word"),
    [
        (("encoder.layers.2.self_attention", 0), 0),
        (("encoder.layers.0.self_attention", 2), 0),
    ],
)
def test_a_head_that_is_not_there_is_named(
    small: Translator, start: tuple, word: int
) -> None:
    """Fails when the view opens somewhere else, or nowhere."""
    looked = looked_at(small, "the dog")
    with pytest.raises(ValueError, match=re.escape(f"there is no head {start}")):
        attention_view(looked, start)
    with pytest.raises(ValueError, match="there is no word 99"):
        attention_view(looked, word=99)


@pytest.mark.parametrize(
    ("pattern", "shift"), [("previous word", -1), ("same word", 0), ("next word", 1)]
)
def test_a_made_head_has_its_pattern(pattern: str, shift: int) -> None:
    """Fails when a direction is turned round: previous for next, or queries for
    keys."""
    n, name = 6, "encoder.layers.0.self_attention"
    keys = torch.ones(1, n, dtype=torch.bool)
    weights = torch.zeros(1, 1, n, n)
    for i in range(n):
        weights[0, 0, i, min(max(i + shift, 0), n - 1)] = 1
    found = measure_heads(
        weights, allowed_keys(name, keys, keys), patterns_of(name, keys, n)
    )
    measures = {
        what: value / found[0, "queries"]
        for (_, what), value in found.items()
        if what != "queries"
    }
    assert head_class(measures) == pattern and measures["entropy"] < 1e-6
    assert measures[pattern] == pytest.approx(
        (n - abs(shift)) / n - (n - abs(shift)) / n / n
    )


def test_an_indifferent_head_is_diffuse() -> None:
    """Fails when chance is not subtracted: in a decoder the first word gets much from
    everybody."""
    n, name = 6, "decoder.layers.0.self_attention"
    keys = torch.ones(1, n, dtype=torch.bool)
    allowed = allowed_keys(name, keys, keys)
    assert allowed[0].sum(dim=-1).tolist() == [
        0,
        2,
        3,
        4,
        5,
        6,
    ]  # the first query has no choice
    weights = torch.ones(n, n).tril() / torch.arange(1, n + 1).unsqueeze(1)
    found = measure_heads(weights.view(1, 1, n, n), allowed, patterns_of(name, keys, n))
    assert found[0, "queries"] == 5
    assert found[0, "entropy"] / 5 == pytest.approx(1)
    assert all(
        abs(value) < 1e-5
        for (_, what), value in found.items()
        if what not in ("entropy", "queries")
    )
    assert head_class({"entropy": 1.0, "same word": 0.0}) == "diffuse"
    assert head_class({"entropy": 0.5, "same word": 0.1}) == "mixed"


def test_measures_do_not_depend_on_the_batch(
    small: Translator, subwords: Subwords
) -> None:
    """Fails when padding counts as a key or a query, or the mean is taken over batches
    in place of words."""
    sentences = [
        ("the dog", "der Hund"),
        ("the old woman sees the small dog", "die alte Frau sieht den kleinen Hund"),
    ]
    encoded = encode_pairs(sentences * 2, subwords)
    together, alone = (
        head_measures(small, encoded),
        head_measures(small, encoded, max_tokens=30),
    )
    assert set(together) == set(heads_of(small.model))
    for head, measures in together.items():
        assert measures == pytest.approx(alone[head], abs=1e-5)


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
        links = link_matrix(caption)
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
    with pytest.raises(ValueError, match="row is 'both', expected 'writes' or 'reads'"):
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
    model, head = small.model, ("decoder.layers.1.cross_attention", 1)
    attention = model.get_submodule(head[0])

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
        pytest.raises(ValueError, match=r"there is no head .*, 2\)"),
        switched_off(model, [(head[0], 2)]),
    ):
        pass


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
    assert [(row["attention"], row["head"]) for row in found["heads"]] == heads
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

    monkeypatch.setattr(visualization, "load_multi30k", Three)
    path = tmp_path / "record.json"
    result = CliRunner().invoke(
        record_ablation, [str(path), "--sentences", "2", "--beam", "1"]
    )
    assert result.exit_code == 0, result.output
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["sentences"] == 2 and len(record["heads"]) == len(
        heads_of(small.model)
    )
    assert record["command"].startswith("python -m annotated_transformer.visualization")
    for name in ("commit", "versions", "hardware", "date", "translator", "beam"):
        assert record[name] is not None or name == "commit"
    assert record["translator"] == small.facts


def test_the_record_is_of_the_shipped_translator(shipped: Translator) -> None:
    """Fails when the translator is trained anew and the command of chapter 17 is not
    run again."""
    record = read_record("head_ablation")
    assert {(row["attention"], row["head"]) for row in record["heads"]} == set(
        heads_of(shipped.model)
    )
    assert record["translator"] == {
        name: shipped.facts[name] for name in record["translator"]
    }
    assert all(
        0 <= row["bleu"] <= 100 and 0 <= row["p"] <= 1 for row in record["heads"]
    )
