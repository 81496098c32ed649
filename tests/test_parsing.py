"""Chapter 16: trees and brackets, repairs, labeled F1 beside PYEVALB, treebanks, the
parser, its records and their command."""

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from PYEVALB import parser as pyevalb_parser
from PYEVALB import scorer as pyevalb_scorer

from annotated_transformer import parsing
from annotated_transformer.data import token_batches
from annotated_transformer.parsing import (
    PUNCTUATION,
    UNTAGGED,
    BracketScore,
    ParsingVocabulary,
    counted_brackets,
    evaluate_by_length,
    evaluate_parses,
    flat_tree,
    linearize,
    parse,
    parsing_config,
    repair,
    restore,
    right_branching,
    score_trees,
    word_class,
)
from annotated_transformer.support import parsing_runs
from annotated_transformer.support.corpora import CorpusUnavailable
from annotated_transformer.support.paper import paper_facts
from annotated_transformer.support.parsing_runs import (
    describe_lines,
    run_size,
    score_baselines,
    train_parser,
)
from annotated_transformer.support.records import read_record
from annotated_transformer.support.treebanks import (
    GRAMMAR,
    LEXICON,
    OWN_TREES,
    TOP,
    Tree,
    Treebank,
    escape_brackets,
    generated_treebank,
    leaves,
    load_penn_sample,
    normalize,
    plain_label,
    preterminals,
    read_trees,
    walk,
)
from annotated_transformer.training import TrainingConfig, train
from annotated_transformer.transformer import Transformer

needs_sample = pytest.mark.skipif(
    not (
        Path(os.environ.get("ANNOTATED_TRANSFORMER_DATA", ""))
        / "treebank"
        / "treebank.zip"
    ).is_file(),
    reason=(
        "ANNOTATED_TRANSFORMER_DATA names no folder with the treebank: the sample is"
        " not gone through"
    ),
)


@pytest.fixture(scope="module")
def sample() -> Treebank:
    """The Penn Treebank sample."""
    return load_penn_sample()


labels = st.sampled_from(["S", "NP", "VP", "PP", "ADVP", "PRT", "-LRB-"])
tags = st.builds(
    lambda label, word: Tree(label, (word,)),
    st.sampled_from(["NN", "DT", ".", ",", "``", "-LRB-"]),
    st.sampled_from(
        ["the", "fox", "-LRB-", "XX", "(S".replace("(", "-LRB-"), "1\\/2", "é"]
    ),
)
nodes = st.recursive(
    tags,
    lambda below: st.builds(
        lambda label, parts: Tree(label, tuple(parts)),
        labels,
        st.lists(below, min_size=1, max_size=4),
    ),
    max_leaves=12,
)
trees = st.lists(nodes, min_size=1, max_size=3).map(
    lambda parts: Tree(TOP, tuple(parts))
)
symbols = st.sampled_from(
    ["(S", ")S", "(NP", ")NP", "(VP", ")VP", "DT", "NN", UNTAGGED]
)

# Trees and brackets -------------------------------------------------------------------


@given(tree=trees)
def test_brackets_and_back(tree: Tree) -> None:
    """Fails when a word, a tag, a unary, an escaped bracket or a second root is lost on
    the way."""
    assert read_trees(str(tree)) == [tree]
    assert restore(linearize(tree), leaves(tree)) == tree
    assert (
        len(linearize(tree))
        == len(preterminals(tree))
        + 2 * sum(kind == "open" for kind, _ in walk(tree))
        - 2
    )


@pytest.mark.slow
@needs_sample
def test_the_whole_sample_there_and_back(sample: Treebank) -> None:
    """Fails when one of the sample's trees does not come back from its brackets, or
    normalizing leaves a trace."""
    assert len(sample.trees) == 3914 and all(sample.trees)
    for tree in sample.trees:
        assert (
            restore(linearize(tree), leaves(tree)) == tree == read_trees(str(tree))[0]
        )
        assert normalize(tree) == tree and tree.label == TOP
        assert not any(
            plain_label(node.label) != node.label or node.label == "-NONE-"
            for _, node in walk(tree)
        )


@pytest.mark.slow
@needs_sample
def test_the_split_is_fixed_and_by_file(sample: Treebank) -> None:
    """Fails when a file changes sides, or the parts share trees because one is read
    twice."""
    assert [len(part) for part in (sample.train, sample.validation, sample.test)] == [
        3501,
        217,
        196,
    ]
    assert "Vinken" in leaves(sample.train[0]) and "Vinken" not in leaves(
        sample.test[0]
    )


def test_very_deep_trees() -> None:
    """Fails, by RecursionError, when anything calls itself once for each level."""
    depth = 2000
    tree = read_trees(f"( {'(X-Y ' * depth}(NN word){')' * depth})")[0]
    plain = normalize(tree)
    assert (
        restore(linearize(plain), leaves(plain)) == plain == read_trees(str(plain))[0]
    )
    assert score_trees([plain], [plain]).gold == depth and hash(plain) != hash(tree)
    assert repair(["(X"] * depth + ["NN"], leaves(plain)) == (
        plain,
        {"never closed": depth},
    )


def test_normalizing() -> None:
    """Fails when a function stays, -LRB- loses its name, or a constituent that held
    only traces is kept."""
    text = (
        "( (S-1 (NP=2 (-NONE- *)) (PRN (-LRB- -LRB-) (ADVP|PRT (RB so)) (-RRB- -RRB-))"
        " (NP-SBJ (PRP$ its) (NN end))) )"
    )
    plain = (
        "(TOP (S (PRN (-LRB- -LRB-) (ADVP (RB so)) (-RRB- -RRB-))"
        " (NP (PRP$ its) (NN end))))"
    )
    assert str(normalize(read_trees(text)[0])) == plain
    assert normalize(read_trees("( (S (NP (-NONE- *)) (VP (-NONE- *?*))) )")[0]) is None


@pytest.mark.parametrize(
    "text, message",
    [
        ("(S (NN a)", "ends with 1 brackets open"),
        ("(S (NN a)))", "outside of every tree"),
        ("word (S (NN a))", "outside of every tree"),
        ("(S)", "expected one word, or other nodes"),
        ("()", "expected one word, or other nodes"),
        ("(S (NN a) b)", "expected one word, or other nodes"),
    ],
)
def test_broken_text_is_refused(text: str, message: str) -> None:
    """Fails when a file that is cut off or holds no trees is read as if it did."""
    with pytest.raises(ValueError, match=message):
        read_trees(text)


@pytest.mark.parametrize("symbol", ["", "two words", "(", "a)", "\n"])
def test_what_breaks_the_notation_is_refused(symbol: str) -> None:
    """Fails when a tree can be made that cannot be written and read."""
    for node in (lambda: Tree("NN", (symbol,)), lambda: Tree(symbol, ("word",))):
        with pytest.raises(ValueError, match="cannot stand in a tree.*escape_brackets"):
            node()
    assert Tree("NN", (escape_brackets(":-)"),)).children == (":--RRB-",)


def test_the_line_needs_a_top() -> None:
    """Fails when the root's label is lost in silence."""
    with pytest.raises(ValueError, match="the root is S, expected a constituent TOP"):
        linearize(read_trees("(S (NN a))")[0])


# Repairs ------------------------------------------------------------------------------


@given(tokens=st.lists(symbols, max_size=20), count=st.integers(1, 5))
def test_anything_becomes_a_tree_over_the_words(tokens: list[str], count: int) -> None:
    """Fails when a word is lost, doubled or moved, or a repaired tree is not
    well-formed."""
    words = [f"w{i}" for i in range(count)]
    tree, repairs = repair(tokens, words)
    assert leaves(tree) == words and min(repairs.values(), default=1) > 0
    assert restore(linearize(tree), words) == tree
    if repairs:
        with pytest.raises(
            ValueError,
            match=f"no tree over {count} words .*expected none; repair fixes them",
        ):
            restore(tokens, words)
    else:
        assert linearize(tree) == tokens


@pytest.mark.parametrize(
    "line, expected, repairs",
    [
        ("(S T (VP T )VP T )S", "(S (T a) (VP (T b)) (T c))", {}),
        ("(S T (VP T T", "(S (T a) (VP (T b) (T c)))", {"never closed": 2}),
        ("(S T (VP T (NP T )S", "(S (T a) (VP (T b) (NP (T c))))", {"never closed": 2}),
        ("(S T )VP T T )S )S", "(S (T a) (T b) (T c))", {"never opened": 2}),
        ("(S T T T T T )S", "(S (T a) (T b) (T c))", {"word too many": 2}),
        ("(S (NP T )NP )S", "(S (NP (T a)) (XX b) (XX c))", {"word missing": 2}),
        ("(S (NP (NP )NP )NP T T T )S", "(S (T a) (T b) (T c))", {"empty": 2}),
        ("", "(XX a) (XX b) (XX c)", {"word missing": 3}),
        ("(NP T )NP T", "(NP (T a)) (T b) (XX c)", {"word missing": 1}),
        ("(VP (VP T )VP T T )VP", "(VP (VP (T a)) (T b) (T c))", {}),
    ],
)
def test_the_rule_of_repair(line: str, expected: str, repairs: dict[str, int]) -> None:
    """Fails when a case of the stated rule is repaired otherwise, or counted as another
    kind."""
    assert repair(line.split(), list("abc")) == (
        read_trees(f"(TOP {expected})")[0],
        repairs,
    )


def test_no_words_no_tree() -> None:
    """Fails when an empty sentence gets a tree."""
    with pytest.raises(ValueError, match="expected one word"):
        repair(["NN"], [])


# Scores -------------------------------------------------------------------------------


def perturbed(tree: Tree, rng: random.Random) -> Tree:
    """The tree as a bad parser would have it: brackets lost, doubled, and with another
    label."""
    line = linearize(tree)
    for _ in range(rng.randrange(8)):
        at = rng.randrange(len(line))
        line[at : at + 1] = rng.choice(
            [[], [line[at]] * 2, [rng.choice(["(NP", ")NP", "(VP", ")S", "(PP"])]]
        )
    return repair(line, leaves(tree))[0]


def as_pyevalb_reads(tree: Tree, kept: list[bool]) -> Tree | None:
    """The tree after evalb's deletions, which PYEVALB leaves to its user: no TOP, no
    punctuation, PRT as ADVP."""
    below, rest = [[]], iter(kept)
    for kind, node in walk(tree):
        if kind == "open":
            below.append([])
        elif kind == "tag":
            below[-1] += [node] * next(rest)
        elif children := below.pop():
            below[-1] += (
                children
                if node.label == TOP
                else [
                    Tree({"PRT": "ADVP"}.get(node.label, node.label), tuple(children))
                ]
            )
    return Tree("ROOT", tuple(below[0])) if below[0] else None


def compare_with_pyevalb(gold: list[Tree], predicted: list[Tree]) -> int:
    """Assert that PYEVALB counts the same brackets, pair by pair; returns how many
    pairs could be compared."""
    compared = 0
    for right, guess in zip(gold, predicted, strict=True):
        kept = [leaf.label not in PUNCTUATION for leaf in preterminals(right)]
        ours, theirs = counted_brackets(right, kept), counted_brackets(guess, kept)
        if (
            max((ours | theirs).values(), default=2) > 1
        ):  # PYEVALB matches sets: a bracket that comes twice counts once
            continue
        texts = [str(as_pyevalb_reads(tree, kept)) for tree in (right, guess)]
        result = pyevalb_scorer.Scorer().score_trees(
            *map(pyevalb_parser.create_from_bracket_string, texts)
        )
        score = score_trees([right], [guess])
        # both trees have one bracket more there: the ROOT that holds them together
        assert (result.gold_brackets, result.test_brackets) == (
            score.gold + 1,
            score.predicted + 1,
        )
        assert result.matched_brackets == score.matched + 1
        compared += 1
    return compared


def test_the_score_is_that_of_pyevalb() -> None:
    """Fails when a span is off by one, a label is not compared, or a bracket is matched
    twice."""
    rng, gold = random.Random(0), generated_treebank(300, 0).train
    assert compare_with_pyevalb(gold, [perturbed(tree, rng) for tree in gold]) > 200


@pytest.mark.slow
@needs_sample
def test_the_score_is_that_of_pyevalb_on_the_sample(sample: Treebank) -> None:
    """Fails as the test above, on trees with everything that newspapers have."""
    rng, gold = random.Random(1), sample.test + sample.validation
    assert compare_with_pyevalb(gold, [perturbed(tree, rng) for tree in gold]) > 200


def test_pyevalb_matches_sets_and_evalb_does_not() -> None:
    """Fails when a bracket that comes twice is matched by one that comes once; PYEVALB
    counts sets."""
    gold, guess = read_trees("(S (NP (NP (NN a))) (VB b)) (S (NP (NP (NN a))) (VB b))")
    result = pyevalb_scorer.Scorer().score_trees(
        *[pyevalb_parser.create_from_bracket_string(str(t)) for t in (gold, guess)]
    )
    assert (result.matched_brackets, result.gold_brackets) == (
        2,
        3,
    )  # of a tree with itself
    assert score_trees([gold], [guess]) == BracketScore(3, 3, 3, 1)
    assert score_trees([gold], read_trees("(S (NP (NN a)) (VB b))")) == BracketScore(
        3, 2, 2, 0
    )


def test_the_conventions_of_evalb() -> None:
    """Fails when TOP or a full stop counts, when PRT is not ADVP, or the predicted tags
    decide what is punctuation."""
    gold = read_trees("(TOP (S (`` ``) (VP (VB give) (PRT (RP up))) (. .)))")
    guess = read_trees(
        "(TOP (TOP (S (X (XX ``)) (VP (XX give) (ADVP (XX up)) (XX .)))))"
    )
    assert score_trees(gold, guess) == BracketScore(3, 3, 3, 1)
    assert (
        BracketScore(0, 0, 0, 0).f1
        == BracketScore(0, 0, 0, 0).precision
        == BracketScore(0, 0, 0, 0).recall
        == 0
    )
    assert (BracketScore(4, 2, 1, 0).precision, BracketScore(4, 2, 1, 0).recall) == (
        50,
        25,
    )


def test_trees_that_cannot_be_compared() -> None:
    """Fails when other words, or another number of trees, are scored as if they
    fitted."""
    first, second = read_trees("(S (NN a)) (S (NN b))")
    with pytest.raises(ValueError, match="tree 0 has other words"):
        score_trees([first], [second])
    with pytest.raises(ValueError, match="1 gold trees and 2 predicted"):
        score_trees([first], [first, first])
    with pytest.raises(ValueError, match="0 gold trees"):
        score_trees([], [])


# Treebanks ----------------------------------------------------------------------------


def test_the_generated_treebank() -> None:
    """Fails when the seed is ignored, a sentence stands in two parts, or a label has no
    rule."""
    treebank = generated_treebank(200, 20)
    assert (
        treebank == generated_treebank(200, 20) != generated_treebank(200, 20, seed=1)
    )
    sentences = [" ".join(leaves(tree)) for tree in treebank.trees]
    assert len(set(sentences)) == len(sentences) == 240
    assert all(normalize(tree) == tree for tree in treebank.trees)
    parts = {
        part for sides in GRAMMAR.values() for side in sides for part in side.split()
    }
    assert parts <= GRAMMAR.keys() | LEXICON.keys() and GRAMMAR.keys() - parts == {TOP}


def test_the_meaning_of_a_word_decides_attachment() -> None:
    """Fails when the grammar lets a tool describe a noun, or a part of a body belong to
    a verb."""
    places = {"tail": set(), "camera": set()}
    for tree in generated_treebank(2000, 0).train:
        above = []
        for kind, node in walk(tree):
            if kind == "open":
                above.append(node.label)
            elif kind == "close":
                above.pop()
            elif node.children[0] in places:
                places[node.children[0]].add(tuple(above[-3:]))
    assert {path[0] for path in places["tail"]} == {"NP"} and {
        path[0] for path in places["camera"]
    } == {"VP"}


def test_without_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when a missing sample is replaced in silence."""
    monkeypatch.setenv("ANNOTATED_TRANSFORMER_DATA", "/nonexistent")
    with pytest.raises(CorpusUnavailable):
        load_penn_sample()


# The parser ---------------------------------------------------------------------------


def test_words_and_brackets_share_a_vocabulary() -> None:
    """Fails when a bracket's id is a word's, a rare word does not get its class, or a
    held-out word an id."""
    text = (
        "(TOP (S (NN fox) (NN fox) (VB running) (VB sitting)"
        " (CD 12) (CD 13) (NN oddity)))"
    )
    vocabulary = ParsingVocabulary(read_trees(text))
    assert vocabulary.brackets == ["(S", ")S", "CD", "NN", "VB"]
    assert vocabulary.words == ["fox", "<lower ng>", "<number>"]
    assert (
        vocabulary.encode_words(["fox", "jumping", "99", "whale"]) == [9, 10, 11, 3]
        and len(vocabulary) == 12
    )
    assert vocabulary.decode([4, 7, 5, 9, 3, 0]) == ["(S", "NN", ")S"] + 3 * [UNTAGGED]
    other = read_trees("(TOP (X (NN fox)))")[0]
    assert vocabulary.encode_pair(other) == ([9], [3, 7, 3])
    assert [word_class(word) for word in ("Oddly", "mid-May", "3-year", "A")] == [
        "<capital ly>",
        "<hyphen ay>",
        "<number>",
        "<capital a>",
    ]


@pytest.fixture(scope="module")
def learned() -> tuple[Transformer, ParsingVocabulary, list[Tree]]:
    """A model that has learned a few trees exactly."""
    torch.manual_seed(0)
    trees = generated_treebank(4, 0, seed=3).train
    vocabulary = ParsingVocabulary(trees)
    model = Transformer(parsing_config(len(vocabulary)))
    train(
        model,
        token_batches([vocabulary.encode_pair(tree) for tree in trees], 2000),
        200,
        50,
        0.5,
    )
    return model, vocabulary, trees


@pytest.mark.slow
def test_a_few_trees_are_learned_exactly(learned: tuple) -> None:
    """Fails when source and target are out of step, or the search's order is not
    undone."""
    model, vocabulary, trees = learned
    parses = parse(model, vocabulary, [leaves(tree) for tree in trees], max_tokens=30)
    report = evaluate_parses(trees, parses)
    assert report["f1"] > 90 and report["well_formed"] >= 3 and report["sentences"] == 4
    assert report["exact"] == sum(
        score_trees([tree], [guess]).f1 == 100
        for tree, (guess, _) in zip(trees, parses, strict=True)
    )


@pytest.mark.slow
def test_the_search_is_the_papers(
    learned: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when another beam, alpha or maximum length than that of section 6.3 is the
    default."""
    model, vocabulary, trees = learned
    asked, real = [], parsing.beam_search

    def search(model: Transformer, source: torch.Tensor, **settings: float) -> list:
        asked.append(settings)
        return real(model, source, 1, 0.0)

    monkeypatch.setattr(parsing, "beam_search", search)
    parse(model, vocabulary, [leaves(trees[0])])
    facts = paper_facts()["parsing"]
    assert asked == [
        {"beam_size": facts["beam_size"], "alpha": facts["alpha"], "extra_length": 300}
    ]
    assert facts["max_length"] == "input length + 300"
    assert parse(model, vocabulary, []) == []
    with pytest.raises(ValueError, match="sentence 1 has no words"):
        parse(model, vocabulary, [["fox"], []])


def test_a_report_counts_what_was_repaired() -> None:
    """Fails when a repaired line counts as well-formed, or repairs of several sentences
    are not added up."""
    gold = read_trees("(TOP (S (NN a) (NN b)))") * 3
    parses = [
        repair(line.split(), ["a", "b"])
        for line in ("(S NN NN )S", "(S NN NN", "(S (NP NN")
    ]
    report = evaluate_parses(gold, parses)
    assert report["well_formed"] == 1 and report["repairs"] == {
        "never closed": 3,
        "word missing": 1,
    }
    assert (report["gold"], report["predicted"], report["matched"]) == (3, 4, 3)
    assert report["f1"] == 85.71 and json.loads(json.dumps(report)) == report


# The command --------------------------------------------------------------------------

TINY = TrainingConfig(
    steps=4, max_tokens=300, warmup_steps=2, save_every=2, keep=1, log_every=1
)


@pytest.fixture(scope="module")
def small() -> Treebank:
    return generated_treebank(30, 3)


def test_an_interrupted_run_goes_on_to_the_same_weights(
    small: Treebank, tmp_path: Path
) -> None:
    """Fails when a resumed run sees other batches, another vocabulary or other dropout
    than one that ran through."""
    through, _, finished = train_parser(
        small.train, small.validation, tmp_path / "a", TINY
    )
    assert finished and through.step == 4
    first = TrainingConfig(**(vars(TINY) | {"steps": 2}))
    train_parser(small.train, small.validation, tmp_path / "b", first)
    settings = tmp_path / "b" / "settings.json"
    settings.write_text(settings.read_text().replace('"steps": 2', '"steps": 4'))
    resumed, _, finished = train_parser(
        small.train, small.validation, tmp_path / "b", TINY
    )
    assert finished and resumed.step == 4
    for name, tensor in through.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name


def test_a_folder_of_another_run_is_refused(small: Treebank, tmp_path: Path) -> None:
    """Fails when a run goes on with other settings than it was begun with."""
    train_parser(small.train, small.validation, tmp_path, TINY)
    with pytest.raises(ValueError, match="was begun with .* name another folder"):
        train_parser(small.train[:20], small.validation, tmp_path, TINY)


def test_a_run_is_reported_once(
    small: Treebank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a finished run is parsed anew, or judged on other trees than the test
    part's."""
    monkeypatch.setattr(
        parsing_runs,
        "parse",
        lambda model, vocabulary, sentences, search=None: [
            (flat_tree([Tree(UNTAGGED, (word,)) for word in sentence]), Counter())
            for sentence in sentences
        ],
    )
    run = run_size(small, 10, tmp_path, TINY)
    assert (
        run["trees"] == 10
        and run["sentences"] == 3
        and len(run["own"]) == len(read_trees(OWN_TREES))
    )
    assert run["f1"] == round(
        score_trees(
            small.test, [flat_tree(preterminals(tree)) for tree in small.test]
        ).f1,
        2,
    )
    monkeypatch.setattr(parsing_runs, "parse", None)
    assert run_size(small, 10, tmp_path, TINY) == run


def test_an_interrupted_run_has_no_report(
    small: Treebank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a parser is judged before it is trained."""
    monkeypatch.setattr(parsing_runs.Trainer, "run", lambda self, *rest: False)
    assert run_size(small, 10, tmp_path, TINY) is None


def test_the_command(
    small: Treebank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a size is left out, the record lacks its provenance, or sizes are not
    checked."""
    monkeypatch.setattr(parsing_runs, "load_penn_sample", lambda: small)
    monkeypatch.setattr(
        parsing_runs,
        "parse",
        lambda model, vocabulary, sentences, search=None: [
            (flat_tree([Tree(UNTAGGED, (word,)) for word in sentence]), Counter())
            for sentence in sentences
        ],
    )
    options = [
        "--size",
        "20",
        "--size",
        "10",
        "--steps",
        "2",
        "--max-tokens",
        "300",
        "--record",
        str(tmp_path / "r.json"),
    ]
    result = CliRunner().invoke(
        parsing_runs.main, ["train", str(tmp_path / "runs"), *options]
    )
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "r.json").read_text())
    assert [run["trees"] for run in record["runs"]] == [10, 20] and record["training"][
        "steps"
    ] == 2
    assert {
        "command",
        "seed",
        "commit",
        "versions",
        "hardware",
        "date",
        "parts",
        "search",
    } <= record.keys()
    result = CliRunner().invoke(
        parsing_runs.main, ["train", str(tmp_path / "runs"), "--size", "31"]
    )
    assert (
        result.exit_code == 1
        and "--size 31 is more than the 30 training trees" in result.output
    )


def test_the_command_without_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a record of the generated treebank could be taken for one of the
    sample."""
    monkeypatch.setenv("ANNOTATED_TRANSFORMER_DATA", "/nonexistent")
    result = CliRunner().invoke(
        parsing_runs.main,
        ["train", str(tmp_path / "runs"), "--record", str(tmp_path / "r.json")],
    )
    assert (
        result.exit_code == 1
        and "is not there" in result.output
        and not (tmp_path / "r.json").exists()
    )


def test_an_interrupted_command_says_how_to_go_on(
    small: Treebank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a command that was stopped ends as if it were done."""
    monkeypatch.setattr(parsing_runs, "load_penn_sample", lambda: small)
    monkeypatch.setattr(parsing_runs.Trainer, "run", lambda self, *rest: False)
    result = CliRunner().invoke(
        parsing_runs.main,
        ["train", str(tmp_path), "--size", "10", "--record", str(tmp_path / "r.json")],
    )
    assert result.exit_code == 130 and "the same command goes on" in result.output
    assert not (tmp_path / "r.json").exists()


def test_our_own_trees() -> None:
    """Fails when a gold tree of ours is not in the style of the treebank: traces,
    functions, unknown labels."""
    own = read_trees(OWN_TREES)
    assert len(own) == 5 and all(
        normalize(tree) == tree and tree.label == TOP for tree in own
    )


# Baselines and records ----------------------------------------------------------------


def test_baselines_are_built_from_the_words_alone() -> None:
    """Fails when a baseline sees the gold brackets, or cannot take one word or many."""
    tags = preterminals(read_trees("(TOP (X (A a) (Y (B b) (C c))))")[0])
    assert str(right_branching(tags)) == "(TOP (S (A a) (VP (B b) (VP (C c)))))"
    assert str(right_branching(tags[:1])) == "(TOP (S (A a)))"
    assert str(flat_tree(tags)) == "(TOP (S (A a) (B b) (C c)))"
    assert preterminals(right_branching(tags * 2000)) == tags * 2000  # no recursion


@pytest.mark.slow
@needs_sample
def test_the_recorded_baselines_are_those_of_the_sample(sample: Treebank) -> None:
    """Fails when the record of the baselines is not what the sample gives."""
    record = read_record("parsing_baselines")
    assert record["baselines"] == score_baselines(sample)
    assert describe_lines(sample).items() <= record.items()


def test_by_length_adds_up_to_the_whole() -> None:
    """Fails when a sentence is in no class or in two, or an empty class is shown."""
    gold = generated_treebank(60, 0).train
    parses = [(right_branching(preterminals(tree)), Counter()) for tree in gold]
    rows = evaluate_by_length(gold, parses, upper=(1, 8, 12))
    whole = evaluate_parses(gold, parses)
    assert [row["words"] for row in rows] == [[2, 8], [9, 12], [13, None]]
    for name in ("gold", "predicted", "matched", "sentences", "well_formed"):
        assert sum(row[name] for row in rows) == whole[name]
    shortest = [tree for tree in gold if len(leaves(tree)) <= 8]
    assert rows[0]["sentences"] == len(shortest)


@pytest.mark.parametrize("name", ["parsing", "parsing_longer"])
def test_a_record_adds_up(name: str) -> None:
    """Fails when a record was edited by hand, or made with another search than the
    paper's."""
    record = read_record(name)
    facts = paper_facts()["parsing"]
    assert record["search"]["beam_size"] == facts["beam_size"]
    assert record["search"]["alpha"] == facts["alpha"]
    for run in record["runs"]:
        f1 = 200 * run["matched"] / (run["gold"] + run["predicted"])
        assert abs(f1 - run["f1"]) < 0.01
        assert run["sentences"] == record["parts"]["test"]
        assert (run["well_formed"] == run["sentences"]) == (not run["repairs"])


def test_what_the_chapter_says_of_the_records() -> None:
    """Fails when the records no longer show what the text of chapter 16 says: parsers
    that are undertrained, and some below the baseline."""
    few, many = read_record("parsing"), read_record("parsing_longer")
    [largest] = many["runs"]
    assert few["runs"][-1]["trees"] == largest["trees"] == many["parts"]["train"]
    assert many["training"]["steps"] == 5 * few["training"]["steps"]
    assert 1.7 < largest["f1"] / few["runs"][-1]["f1"] < 2.3
    assert 0.15 < largest["well_formed"] / largest["sentences"] < 0.25
    floor = read_record("parsing_baselines")["baselines"]["right-branching"]["f1"]
    assert few["runs"][0]["f1"] < floor < largest["f1"]


def test_the_claim_about_table_4() -> None:
    """Fails when the table does not show what chapter 16 reads from it."""
    rows = paper_facts()["table4"]
    ours = {
        row["training"]: row["f1"]
        for row in rows
        if row["parser"] == "Transformer (4 layers)"
    }
    better = [
        row["parser"]
        for row in rows
        if row["training"] in ours and row["f1"] > ours[row["training"]]
    ]
    assert better == ["Dyer et al. (2016)"]
    above = {row["training"] for row in rows if row["f1"] > max(ours.values())}
    assert above == {"multi-task", "generative"}
