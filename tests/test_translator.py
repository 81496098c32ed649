"""Chapter 14: text to text, what its records say, and the cost of table 2."""

import json
import math
import os
import re
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st

from annotated_transformer.evaluation import bleu_from_counts
from annotated_transformer.subwords import Subwords, train_subwords
from annotated_transformer.support.records import STATISTICS, read_record
from annotated_transformer.support.test_set import book_sentences
from annotated_transformer.transformer import (
    Transformer,
    TransformerConfig,
    count_parameters,
)
from annotated_transformer.translator import (
    PRETRAINED,
    Translator,
    _read_line,
    attention_of,
    scores_by_length,
    training_flops,
    translate_lines,
)


@pytest.fixture(scope="module")
def small(subwords: Subwords) -> Translator:
    """A translator that has learned nothing and ends its sentences early."""
    torch.manual_seed(1)
    config = TransformerConfig(len(subwords), 1, 16, 32, 2, max_length=24)
    return Translator(Transformer(config), subwords, {"seed": 1})


@pytest.fixture(scope="module")
def shipped() -> Translator:
    """The translator that the package brings."""
    return Translator.load()


def test_as_many_lines_come_out_as_go_in(small: Translator) -> None:
    """Fails when an empty line is skipped, a line is answered twice, or one line's text
    lands on another."""
    lines = [
        "",
        "the dog",
        "   ",
        "\x00",
        "\u2028",
        "a " * 100,
        "犬",
        "the old woman sees the dog",
        "\t\r",
    ]
    together = list(small.translate(lines))
    assert len(together) == len(lines)
    for line, translation in zip(lines, together, strict=True):
        assert translation == next(small.translate([line]))
        assert not re.search(r"[\n\r\v\f\u2028\u2029]", translation.text)
    assert together[0].text == together[2].text == "" and together[0].target_ids == []


@given(st.lists(st.text(max_size=30), max_size=6))
def test_any_text_gives_one_line_each(subwords: Subwords, lines: list[str]) -> None:
    """Fails when some character stops the translator, and when a translation has more
    than one line."""
    torch.manual_seed(0)
    model = Transformer(
        TransformerConfig(len(subwords), 1, 8, 16, 2, max_length=12)
    ).eval()
    translations = translate_lines(model, subwords, lines, beam_size=2)
    assert len(translations) == len(lines)
    assert all(len(translation.text.splitlines()) <= 1 for translation in translations)


def test_a_long_line_is_cut_and_said(small: Translator, subwords: Subwords) -> None:
    """Fails when the end token finds no place, and when a line that fits gets a
    note."""
    ids = subwords.encode("the dog sees a cat")
    assert _read_line("the dog sees a cat", subwords, len(ids) + 1) == (ids, "")
    cut, note = _read_line("the dog sees a cat", subwords, len(ids))
    assert cut == ids[:-1] and note == f"cut from {len(ids)} to {len(ids) - 1} tokens"
    [translation] = small.translate(["dog " * 10_000])
    assert len(translation.source_ids) == 23 and "to 23 tokens" in translation.note


def test_no_more_lines_are_read_than_the_buffer_holds(small: Translator) -> None:
    """Fails when the whole input is read first: an endless one would never be
    answered."""
    taken = []

    def endless() -> Iterator[str]:
        for number in count():
            taken.append(number)
            yield "a dog"

    assert (
        len(list(islice(small.translate(endless(), beam_size=1, buffer_size=5), 7)))
        == 7
    )
    assert len(taken) == 10


@pytest.mark.parametrize("half", [False, True])
def test_what_is_saved_is_loaded(small: Translator, tmp_path: Path, half: bool) -> None:
    """Fails when a weight is lost or not rounded to 16 bits alone, and when the facts
    stay behind."""
    small.save(tmp_path, half)
    loaded = Translator.load(tmp_path)
    assert (
        loaded.facts["seed"] == 1
        and loaded.model.config == small.model.config
        and not loaded.model.training
    )
    for name, weight in small.model.state_dict().items():
        expected = weight.half().float() if half else weight
        torch.testing.assert_close(
            loaded.model.state_dict()[name], expected, atol=0, rtol=0
        )
    assert (
        next(loaded.translate(["the dog"])).source_ids
        == next(small.translate(["the dog"])).source_ids
    )


def test_another_vocabulary_is_refused(
    small: Translator, text: list[str], tmp_path: Path
) -> None:
    """Fails when only the size is compared, or nothing."""
    with pytest.raises(
        ValueError, match=r"the vocabulary has 340 tokens, the model 360"
    ):
        Translator(small.model, train_subwords(text, 340))
    small.save(tmp_path)
    train_subwords(text[:150], len(small.subwords)).save(tmp_path / "subwords.model")
    with pytest.raises(ValueError, match="not the one that its model was trained with"):
        Translator.load(tmp_path)


def test_a_damaged_folder_is_named(small: Translator, tmp_path: Path) -> None:
    """Fails when a missing or damaged file gives weights all the same."""
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors is not there"):
        Translator.load(tmp_path)
    small.save(tmp_path)
    content = bytearray((tmp_path / "model.safetensors").read_bytes())
    content[-5] ^= 1
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        Translator.load(tmp_path)


def test_attention_rows_add_up_to_one(small: Translator) -> None:
    """Also for a line without text. Fails when the target is not what the decoder
    read."""
    for line in ("the dog sees a cat", "", "dog " * 100):
        looked = attention_of(small, next(small.translate([line])))
        m, n = len(looked["target"]), len(looked["source"])
        assert looked["target"][0] == "<s>" and looked["source"][-1] == "</s>"
        assert len(looked["weights"]) == 3
        cross = torch.tensor(looked["weights"]["decoder.layers.0.cross_attention"])
        assert cross.shape == (2, m, n)
        torch.testing.assert_close(cross.sum(-1), torch.ones(2, m))


def test_scores_by_length_cover_every_sentence_once() -> None:
    """Fails when a class takes the wrong end of its range."""
    sources = ["w " * n for n in range(1, 31)]
    rows = scores_by_length(
        sources, ["a b c d e"] * 30, ["a b c d e"] * 29 + ["z"], upper=(8, 20)
    )
    assert [(row["words"], row["sentences"]) for row in rows] == [
        ([1, 8], 8),
        ([9, 20], 12),
        ([21, None], 10),
    ]
    assert (
        rows[0]["bleu"] == 100 > rows[2]["bleu"]
        and rows[0]["length_ratio"] == 1 < rows[2]["length_ratio"]
    )
    assert scores_by_length([], [], []) == []


def test_a_sentence_may_have_several_references() -> None:
    """Fails when only the first reference counts, or a sentence with one is given the
    other's."""
    sources, texts = ["w w", "w w w"], ["a b c d e", "p q r s t"]
    references = [("x y", "a b c d e"), "p q r s t"]
    (whole,) = scores_by_length(sources, texts, references)
    assert whole["bleu"] == 100 and whole["length_ratio"] == 1
    (first,) = scores_by_length(sources, texts, [("x y",), "p q r s t"])
    assert first["bleu"] < 100
    sentences = book_sentences("number")
    said = [sentence.references[0] for sentence in sentences]
    every = [sentence.references for sentence in sentences]
    rows = scores_by_length([sentence.source for sentence in sentences], said, every)
    assert all(row["bleu"] == 100 for row in rows)


def test_table_2_is_time_times_machines() -> None:
    """Fails when hours are taken for seconds or the prefix is wrong."""
    assert training_flops(12, 8, 9.5) == pytest.approx(3.28e18, rel=0.01)
    assert training_flops(84, 8, 9.5) == pytest.approx(2.3e19, rel=0.01)


def test_an_unknown_record_is_named_with_those_there_are() -> None:
    """Fails when the error says nothing of the way out."""
    with pytest.raises(
        ValueError, match=r"'nothing' is no record: expected one of .*multi30k_en_de"
    ):
        read_record("nothing")


def test_the_shipped_translator_is_small_and_translates(shipped: Translator) -> None:
    """Fails when the weights are of another run than the vocabulary, or take more than
    7 MB."""
    assert sum(path.stat().st_size for path in PRETRAINED.iterdir()) <= 7_000_000
    assert count_parameters(shipped.model) <= 3_000_000
    [translation] = shipped.translate(["Two dogs are playing in the snow."])
    assert translation.text == "Zwei Hunde spielen im Schnee."


RUNS = [
    "en_de",
    "en_de_4000_subwords",
    "en_de_8000_subwords",
    "en_de_one_core",
    "en_fr",
    "en_fr_4000_subwords",
    "en_fr_one_core",
    *(f"en_de_20_minutes_{kind}" for kind in ("seed_0", "seed_1", "seed_2")),
    *(
        f"en_de_20_minutes_{kind}"
        for kind in ("pre_norm_low_rate", "post_norm", "post_norm_high_rate")
    ),
    *(
        f"en_de_validation{kind}"
        for kind in ("", "_4000_subwords", "_8000_subwords", "_last_checkpoint")
    ),
    *(f"en_de_validation_{kind}" for kind in ("post_norm", "subword_dropout")),
]


@pytest.mark.parametrize("run", RUNS)
def test_a_record_has_its_provenance(run: str) -> None:
    """Fails when a record lacks what is needed to make it again, a score its signature,
    or a run took too long."""
    record = read_record(f"multi30k_{run}")
    program = " ".join(
        [
            "torchrun",
            "--nproc-per-node",
            str(record["workers"]),
            "-m",
            "annotated_transformer",
        ]
    )
    program = program if record["workers"] > 1 else "annotated-transformer"
    assert (
        record["command"].startswith(f"{program} train ")
        and "/" not in record["command"]
    )
    for name in (
        "seed",
        "commit",
        "versions",
        "hardware",
        "date",
        "seconds",
        "cpu_seconds",
        "averaged",
        "evaluation",
    ):
        assert record[name] is not None
    minutes = (
        20 if "minutes" in run else 2 * 90
    )  # of one core; two cores for 90 minutes
    assert record["parameters"] <= 3_000_000 and record["cpu_seconds"] <= 60 * minutes
    late = (
        0 if run in ("en_de", "en_fr") else 1
    )  # the step in which the minutes of an earlier run were over
    assert record["workers"] == 1 or record["seconds"] < 60 * 90 + late
    assert all(
        re.match(r"nrefs:1\|", score["signature"])
        for score in record["scores"].values()
    )
    assert (record["evaluation"]["part"] == "validation") == ("validation" in run)
    assert record["evaluation"]["beam"] == 4 and record["evaluation"]["alpha"] == 0.6
    sentences = {"test": 1000, "validation": 1014}[record["evaluation"]["part"]]
    assert (
        record["evaluation"]["sentences"]
        == sentences
        == sum(row["sentences"] for row in record["scores_by_length"])
    )


def counts_of(record: dict) -> np.ndarray:
    """BLEU's counts of each sentence in a record: ``(sentences, 4, 3)``."""
    rows = np.array(record["sentence_statistics"]["bleu"])
    return np.stack([rows[:, 2:6], rows[:, [0] * 4], rows[:, 6:]], axis=-1)


@pytest.mark.parametrize("name", ["multi30k_en_de", "multi30k_en_de_greedy"])
def test_sentence_statistics_give_the_score_of_the_record(name: str) -> None:
    """Fails when the statistics are of another translation than the score, or when the
    order of their numbers is another."""
    record = read_record(name)
    assert record["sentence_statistics"]["order"] == list(STATISTICS)
    assert record["command"] == read_record("multi30k_en_de")["command"]
    for kind in ("bleu", "bleu_lower_case"):
        rows = np.array(record["sentence_statistics"][kind])
        assert rows.shape == (1000, 10) and (rows[:, 6:] <= rows[:, 2:6]).all()
        total = np.stack([rows[:, 2:6], rows[:, [0] * 4], rows[:, 6:]], axis=-1).sum(0)
        assert round(bleu_from_counts(total), 2) == record["scores"][kind]["score"]


def bleu_of(name: str) -> float:
    return read_record(f"multi30k_{name}")["scores"]["bleu"]["score"]


def test_what_chapter_14_says_of_the_shipped_run(shipped: Translator) -> None:
    """Fails when weights and record are of different runs, or the curve no longer
    crosses the other after the switch to one direction."""
    run, other = (
        read_record("multi30k_en_de"),
        read_record("multi30k_en_de_8000_subwords"),
    )
    assert run["parameters"] == count_parameters(shipped.model) <= 3_000_000
    for name in ("command", "date", "step"):
        assert shipped.facts[name] == run[name]
    switch = int(run["command"].partition("--steps ")[2].split()[0])
    alone = {e["step"]: e["validation_perplexity"] for e in other["history"]}
    now = {e["step"]: e["validation_perplexity"] for e in run["history"]}
    both = now.keys() & alone.keys()
    behind = max(step for step in both if now[step] >= alone[step])
    assert switch < behind < max(both) and run["model"] == other["model"]


def test_what_chapter_14_says_of_the_recipes() -> None:
    """Fails when the four recipes are not what the table says, their test scores do not
    rise, or one step goes beyond the margin between two seeds."""
    ends = ("_one_core", "_4000_subwords", "_8000_subwords", "")
    test = [bleu_of(f"en_de{end}") for end in ends]
    assert test == sorted(test)
    second, third = (read_record(f"multi30k_en_de{end}") for end in ends[1:3])
    changed = {
        name
        for part in ("model", "training")
        for name in second[part]
        if second[part][name] != third[part][name]
    }
    assert changed == {"vocabulary_size"}
    first = read_record("multi30k_en_de_one_core")
    assert first["workers"] == 1 and first["model"]["dropout"] < 0.3
    seeds = [bleu_of(f"en_de_20_minutes_seed_{seed}") for seed in range(3)]
    margin = 4.303 * np.std(seeds, ddof=1) * math.sqrt(2)
    steps = np.diff([bleu_of(f"en_de_validation{end}") for end in ends[1:]])
    assert (0 < steps).all() and (steps < margin).all()
    single = read_record("multi30k_en_de_validation_last_checkpoint")
    assert single["averaged"] == read_record("multi30k_en_de")["averaged"][-1:]
    assert single["scores"]["bleu"]["score"] < bleu_of("en_de_validation")


def test_what_chapter_14_says_of_twenty_minutes() -> None:
    """Fails when the runs are not of one size and time, or their order is another."""
    kinds = ("pre_norm_low_rate", "post_norm", "post_norm_high_rate")
    names = [f"multi30k_en_de_20_minutes_seed_{seed}" for seed in range(3)]
    names += [f"multi30k_en_de_20_minutes_{kind}" for kind in kinds]
    runs = [read_record(name) for name in (*names, "benchmark_recurrent")]
    assert all(run["seconds"] / 60 < 21 for run in runs)
    sizes = [run["parameters"] for run in runs]
    assert max(sizes) < 1.01 * min(sizes)
    bleu = [run["scores"]["bleu"]["score"] for run in runs]
    mean, deviation = np.mean(bleu[:3]), np.std(bleu[:3], ddof=1)
    low, post, ruined, recurrent = bleu[3:]
    margin = 4.303 * deviation * math.sqrt(1 + 1 / 3)
    assert mean - low < margin < mean - max(post, recurrent) and ruined < post / 2
    assert low - post > margin and recurrent < post
    chrf = [run["scores"]["chrf"]["score"] for run in runs]
    assert chrf[6] > chrf[4]  # the recurrent model, above post-norm


def test_fused_attention_is_slow_in_sixteen_bits_on_a_cpu() -> None:
    """Fails when sixteen bits with fused attention are not the slowest way."""
    ratios = read_record("benchmark_precision")["speed_ratios"]
    slowest, *_, fastest = sorted(ratios, key=ratios.get)
    assert (slowest, fastest) == ("bf16, fused attention", "bf16")


def test_the_reference_has_the_words_of_the_published_score() -> None:
    """Fails when our reference is another than the one that Wu et al. print the length
    of."""
    folder = Path(os.environ.get("ANNOTATED_TRANSFORMER_DATA", "nowhere"))
    path = folder / "multi30k" / "test_2016_flickr.lc.norm.tok.de"
    if not path.is_file():
        pytest.skip("the tokenized reference is not at hand")
    assert len(path.read_text(encoding="utf-8").split()) == 12_103


@pytest.mark.slow
def test_what_chapter_14_says_of_other_captions(shipped: Translator) -> None:
    """Fails when the captions of the book's own test set are no longer far below
    Multi30k's, or everyday sentences no longer far below them."""
    scores = {}
    for kind in ("caption", "everyday"):
        chosen = book_sentences(kind)
        found = shipped.translate(sentence.source for sentence in chosen)
        firsts = [sentence.references[0] for sentence in chosen]
        said = [translation.text for translation in found]
        scores[kind] = sacrebleu.corpus_bleu(said, [firsts]).score
    assert scores["caption"] < bleu_of("en_de") / 2
    assert scores["everyday"] < scores["caption"] / 2


def test_the_model_card_gives_the_scores_of_the_record() -> None:
    """Fails when a number in the card is not that of the run."""
    card = (PRETRAINED / "README.md").read_text(encoding="utf-8")
    scores = read_record("multi30k_en_de")["scores"]
    for name in ("bleu", "chrf", "bleu_moses_lower_case"):
        assert (
            f"{scores[name]['score']:.2f}" in card
            and scores[name]["signature"].replace("|", ", ") in card
        )
    facts = json.loads((PRETRAINED / "model.json").read_text(encoding="utf-8"))
    assert facts["commit"] == read_record("multi30k_en_de")["commit"]
