"""Chapter 12: greedy search, beam search and the cache."""

from random import Random
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from conftest import VOCABULARY_SIZE, rectangle, sentences
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from annotated_transformer import decoding
from annotated_transformer.decoding import (
    CachedDecoder,
    LiveHypotheses,
    PrefixDecoder,
    beam_search,
    greedy_search,
    length_penalty,
    up_to_end,
)
from annotated_transformer.subwords import BOS_ID, EOS_ID, PAD_ID
from annotated_transformer.support.search_tree import draw_search_tree
from annotated_transformer.transformer import Transformer, TransformerConfig

rows = st.lists(sentences, min_size=1, max_size=4)
seeds = st.integers(0, 99)


class Copier(nn.Module):
    """A model that says its source again, and then the last token of its row forever;
    it counts its steps."""

    def __init__(self, max_length: int = 100) -> None:
        super().__init__()
        self.config, self.steps = SimpleNamespace(max_length=max_length), 0

    def encode(self, source: Tensor) -> Tensor:
        return source

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        self.steps += 1
        last = (memory != PAD_ID).sum(dim=1, keepdim=True) - 1
        said = memory.gather(
            1, torch.arange(target.size(1)).expand(len(memory), -1).minimum(last)
        )
        return F.one_hot(said, VOCABULARY_SIZE).double()


@given(rows=rows)
def test_each_sentence_ends_at_its_own_end(rows: list[list[int]]) -> None:
    """Fails when words go on after the end, and when the search goes on after all have
    ended."""
    model = Copier()
    assert (
        greedy_search(model, rectangle([[*row, EOS_ID] for row in rows]), cache=False)
        == rows
    )
    assert model.steps == max(len(row) for row in rows) + 1


@given(rows=rows, extra=st.integers(0, 4))
def test_a_sentence_without_end_is_as_long_as_its_source_and_a_bit(
    rows: list[list[int]], extra: int
) -> None:
    """Fails when the limit is that of the longest source in the batch, or one word
    short."""
    assert [
        len(said)
        for said in greedy_search(Copier(), rectangle(rows), extra, cache=False)
    ] == [len(row) + extra for row in rows]


def test_the_model_sets_the_last_limit() -> None:
    """Fails when ``max_length`` is not looked at: the positions would run out."""
    assert [
        len(said)
        for said in greedy_search(
            Copier(max_length=5), rectangle([[7, 8, 9]]), cache=False
        )
    ] == [5]
    config = TransformerConfig(VOCABULARY_SIZE, 1, 8, 16, 2, max_length=6)
    [said] = greedy_search(Transformer(config), torch.tensor([[5, 6, 7]]))
    assert len(said) <= 6


def small(seed: int = 0, norm: str = "post") -> Transformer:
    """A small model with large random positions: it says nonsense, changes its mind
    often, and sometimes ends."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        VOCABULARY_SIZE,
        2,
        16,
        32,
        4,
        dropout=0.5,
        norm=norm,
        positions="learned",
        max_length=40,
    )
    model = Transformer(config)
    torch.nn.init.normal_(model.positions.table, std=8.0)
    return model


@given(rows=rows, seed=seeds)
def test_every_word_is_the_most_likely_one_after_the_words_before(
    rows: list[list[int]], seed: int
) -> None:
    """Fails when dropout is on, when the wrong position is read, and when padding or
    begin may be said."""
    model, source = small(seed), rectangle(rows)
    for i, said in enumerate(greedy_search(model, source, extra_length=3)):
        scores = model(source[i : i + 1], torch.tensor([[BOS_ID, *said]]))[0]
        scores[:, [PAD_ID, BOS_ID]] = -torch.inf
        best = scores.argmax(dim=-1).tolist()
        assert said == best[: len(said)] and EOS_ID not in said
        assert best[len(said)] == EOS_ID or len(said) >= len(rows[i]) + 3


@given(rows=rows, seed=seeds, padding=st.integers(0, 3))
def test_a_batch_says_what_its_sentences_say_alone(
    rows: list[list[int]], seed: int, padding: int
) -> None:
    """Fails when the limit depends on the padding, and when the source's padding is
    attended to."""
    model = small(seed)
    alone = [greedy_search(model, rectangle([row]), extra_length=3)[0] for row in rows]
    assert greedy_search(model, rectangle(rows, padding), extra_length=3) == alone


def test_the_model_is_left_in_evaluation_mode() -> None:
    """Fails when dropout stays on."""
    model = small().train()
    greedy_search(model, torch.tensor([[5, 6]]))
    assert not model.training


@given(words=sentences, rest=st.lists(st.integers(0, VOCABULARY_SIZE - 1), max_size=3))
def test_what_stands_behind_the_end_is_cut(words: list[int], rest: list[int]) -> None:
    """Fails when the end token itself is kept, and when padding does not end a
    sentence."""
    assert up_to_end(words) == words
    for end in (EOS_ID, PAD_ID):
        assert up_to_end([*words, end, *rest]) == words


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (torch.zeros(0, 3, dtype=torch.long), r"shape \(0, 3\).*empty batches"),
        (torch.tensor([5, 6]), r"shape \(2,\), expected \(batch, length\)"),
        (torch.full((1, 41), 5), "41 tokens is longer than max_length 40"),
    ],
)
def test_bad_sources_are_named(source: Tensor, message: str) -> None:
    """Fails when the model's own checks are passed by."""
    for search in (greedy_search, beam_search):
        with pytest.raises(ValueError, match=message):
            search(small(), source)


def test_an_id_that_is_no_token_is_refused() -> None:
    """Fails when a token beyond the vocabulary is searched for all the same."""
    for search in (greedy_search, beam_search):
        with pytest.raises(IndexError):
            search(small(), torch.tensor([[VOCABULARY_SIZE]]))


def test_a_limit_below_one_is_refused() -> None:
    """Fails when a sentence without room is searched all the same, or comes out without
    a hypothesis."""
    for search in (greedy_search, beam_search):
        with pytest.raises(
            ValueError,
            match="extra_length -2 leaves sentence 1 0 tokens, expected at least 1",
        ):
            search(small(), rectangle([[5, 6, 7], [8, 9]]), extra_length=-2)
        with pytest.raises(
            ValueError, match="leave sources out that hold padding alone"
        ):
            search(small(), torch.tensor([[5], [PAD_ID]]), extra_length=0)


@pytest.mark.parametrize(
    ("beam_size", "alpha"), [(0, 0.6), (-1, 0.6), (4, -0.1), (4, 11), (4, float("nan"))]
)
def test_bad_arguments_of_beam_search_are_named(beam_size: int, alpha: float) -> None:
    """Fails when an empty beam is searched, or an alpha taken for which the bound is
    none, or which overflows."""
    with pytest.raises(
        ValueError,
        match=f"beam_size is {beam_size} and alpha {alpha}, expected at least 1, and 0",
    ):
        beam_search(small(), torch.tensor([[5, 6]]), beam_size, alpha)


@given(rows=rows, extra=st.integers(0, 3), beam_size=st.integers(1, 4))
def test_what_never_ends_is_cut_at_its_limit(
    rows: list[list[int]], extra: int, beam_size: int
) -> None:
    """Fails when a sentence without a finished hypothesis is lost, or has another
    sentence's limit."""
    for (best, *_), row in zip(
        beam_search(Copier(), rectangle(rows), beam_size, 0.6, extra, False),
        rows,
        strict=True,
    ):
        assert len(best.ids) == len(row) + extra
    [[best, *_]] = beam_search(
        Copier(max_length=5), rectangle([[7, 8, 9]]), beam_size, cache=False
    )
    assert len(best.ids) == 5


@given(
    rows=rows,
    seed=seeds,
    norm=st.sampled_from(["post", "pre"]),
    order=st.randoms(use_true_random=False),
)
def test_a_cache_gives_the_scores_of_the_prefix(
    rows: list[list[int]], seed: int, norm: str, order: Random
) -> None:
    """Fails when a position, a mask or a layer norm is missed, and when the cache does
    not follow its hypotheses."""
    model, source = small(seed, norm).eval(), rectangle(rows)
    plain, cached = PrefixDecoder(model, source), CachedDecoder(model, source)
    kept, beams = len(rows), 1
    with torch.no_grad():
        for _ in range(5):
            words = torch.randint(3, VOCABULARY_SIZE, (kept, beams))
            torch.testing.assert_close(
                cached.step(words), plain.step(words), atol=1e-4, rtol=1e-4
            )
            sentences = torch.tensor(
                sorted(order.sample(range(kept), order.randint(1, kept)))
            )
            kept, old, beams = len(sentences), beams, order.randint(1, 3)
            parents = torch.randint(0, old, (kept, beams))
            for decoder in (plain, cached):
                decoder.select(sentences, parents)


@given(length=st.integers(1, 200), alpha=st.floats(0, 2))
def test_length_penalty_is_one_for_one_token_and_grows(
    length: int, alpha: float
) -> None:
    """Fails when the 5 or the 6 changes, or when alpha 0 is not neutral."""
    assert length_penalty(1, alpha) == 1 == length_penalty(length, 0.0)
    assert length_penalty(7, 1.0) == 2
    assert length_penalty(length + 1, alpha) >= length_penalty(length, alpha)
    torch.testing.assert_close(
        length_penalty(torch.tensor([7, 19]), 0.5), torch.tensor([2**0.5, 2.0])
    )


def exhaustive(
    model: Transformer, source: Tensor, alpha: float, extra_length: int
) -> list[tuple[float, list[int]]]:
    """Every sentence that ends within the limit, best first: the search without a
    search."""
    limit = source.size(1) + extra_length
    every, open_ids = [], [([], 0.0)]
    for length in range(1, limit + 1):
        nexts = []
        for ids, log_p in open_ids:
            logits = model.eval()(source, torch.tensor([[BOS_ID, *ids]]))[
                0, -1
            ].detach()
            logits[[PAD_ID, BOS_ID]] = -torch.inf
            for word, p in enumerate(logits.log_softmax(dim=-1).tolist()):
                if word == EOS_ID:
                    every.append(((log_p + p) / ((5 + length) / 6) ** alpha, ids))
                elif p > -1e9:
                    nexts.append(([*ids, word], log_p + p))
        open_ids = nexts
    return sorted(every, key=lambda pair: -pair[0])


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_as_wide_as_the_search_space_finds_the_best_of_all(seed: int) -> None:
    """Fails when the search stops too early, ranks by another score, or loses a
    hypothesis on the way."""
    torch.manual_seed(seed)
    model = Transformer(
        TransformerConfig(7, 1, 8, 16, 2, positions="learned", max_length=40)
    )
    torch.nn.init.normal_(model.positions.table, std=8.0)
    source = torch.tensor([[4, 5]])
    for alpha in (0.0, 0.6, 2.0):
        every = exhaustive(model, source, alpha, 2)
        [found] = beam_search(
            model, source, beam_size=5 * 4**3, alpha=alpha, extra_length=2
        )
        assert len(every) == 1 + 4 + 4**2 + 4**3
        assert found[0].ids == every[0][1] and found[0].score == pytest.approx(
            every[0][0], abs=1e-4
        )
        scores = {tuple(ids): score for score, ids in every}
        for (
            hypothesis
        ) in found:  # not all that there are: the search stops when the first is sure
            assert hypothesis.score == pytest.approx(
                scores[tuple(hypothesis.ids)], abs=1e-4
            )


@given(
    rows=rows,
    seed=seeds,
    beam_size=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.6, 1.5]),
)
def test_stopping_early_never_changes_the_best(
    rows: list[list[int]], seed: int, beam_size: int, alpha: float
) -> None:
    """Fails when a sentence is given up while an live hypothesis of it is still on the
    way to the best score."""

    class Patient(LiveHypotheses):
        """Goes on to the limit: nothing that has ended is good enough."""

        def keep(self, alpha: float) -> tuple[Tensor, Tensor]:
            best, self.best = self.best, torch.full_like(self.best, -torch.inf)
            rows, parents = super().keep(alpha)
            self.best = best[rows]
            return rows, parents

    model, source = small(seed), rectangle(rows)
    stopped = beam_search(model, source, beam_size, alpha, extra_length=6)
    with patch.object(decoding, "LiveHypotheses", Patient):
        patient = beam_search(model, source, beam_size, alpha, extra_length=6)
    for ours, theirs in zip(stopped, patient, strict=True):
        assert ours[0].ids == theirs[0].ids and ours[0].score == pytest.approx(
            theirs[0].score, abs=1e-4
        )


@given(
    rows=rows,
    seed=seeds,
    beam_size=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.6, 1.5]),
)
def test_cache_and_batch_change_nothing(
    rows: list[list[int]], seed: int, beam_size: int, alpha: float
) -> None:
    """Fails when the cache stays behind its hypotheses, or a sentence depends on its
    neighbors."""
    model, source = small(seed), rectangle(rows)
    together = beam_search(model, source, beam_size, alpha, extra_length=3)
    plain = beam_search(model, source, beam_size, alpha, extra_length=3, cache=False)
    alone = [
        beam_search(model, rectangle([row]), beam_size, alpha, extra_length=3)[0]
        for row in rows
    ]
    for other in (plain, alone):
        assert [[h.ids for h in hs] for hs in together] == [
            [h.ids for h in hs] for hs in other
        ]
        for ours, theirs in zip(sum(together, []), sum(other, []), strict=True):
            assert ours.score == pytest.approx(theirs.score, abs=1e-4)


@given(rows=rows, seed=seeds, alpha=st.sampled_from([0.0, 0.6, 1.5]))
def test_a_beam_of_one_is_greedy_search(
    rows: list[list[int]], seed: int, alpha: float
) -> None:
    """Fails when one of the two takes another word, another limit, or keeps the end
    token."""
    model, source = small(seed), rectangle(rows)
    found = beam_search(model, source, 1, alpha, extra_length=3)
    assert [[h.ids for h in hypotheses] for hypotheses in found] == [
        [ids] for ids in greedy_search(model, source, 3)
    ]


@given(rows=rows, seed=seeds, beam_size=st.integers(1, 5))
def test_hypotheses_are_sorted_differ_and_carry_their_own_score(
    rows: list[list[int]], seed: int, beam_size: int
) -> None:
    """Fails when a hypothesis is found twice, more are returned than asked for, or the
    end token does not count."""
    model, source = small(seed), rectangle(rows)
    for i, hypotheses in enumerate(
        beam_search(model, source, beam_size, 0.6, extra_length=3)
    ):
        assert 1 <= len(hypotheses) <= beam_size
        assert [h.score for h in hypotheses] == sorted(
            (h.score for h in hypotheses), reverse=True
        )
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses)
        for h in hypotheses:
            logits = model(source[i : i + 1], torch.tensor([[BOS_ID, *h.ids]]))[0]
            logits[:, [PAD_ID, BOS_ID]] = -torch.inf
            steps = logits.log_softmax(dim=-1)
            said = sum(steps[t, word].item() for t, word in enumerate(h.ids))
            ended = said + steps[-1, EOS_ID].item(), len(h.ids) + 1
            cut = said, len(h.ids)  # at the limit, where nothing ended
            log_p, length = ended if abs(ended[0] - h.log_probability) < 1e-3 else cut
            assert h.log_probability == pytest.approx(log_p, abs=1e-3) and (
                length == ended[1] or length == len(rows[i]) + 3
            )
            assert h.score == pytest.approx(log_p / ((5 + length) / 6) ** 0.6, abs=1e-3)


class LateWinner(Copier):
    """It may end at once (0.4), or say 5 (0.35) and then surely 5, 5 and the end: less
    likely, but longer."""

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        p = torch.full((*target.shape, VOCABULARY_SIZE), 1e-9)
        p[:, 0, [EOS_ID, 5, 6]] = torch.tensor([0.4, 0.35, 0.25])
        p[:, 1:, 5] = 1.0
        p[:, 3:, 5], p[:, 3:, EOS_ID] = 1e-9, 1.0
        return p.log()


def test_a_live_hypothesis_that_can_still_win_is_waited_for() -> None:
    """Fails when the bound divides by the penalty of the present length: the short one
    has the better score then."""
    [[best, *others]] = beam_search(
        LateWinner(), torch.tensor([[7]]), 2, 0.6, extra_length=5, cache=False
    )
    assert best.ids == [5, 5, 5] and others[0].ids == []


def test_the_drawing_of_a_tree_shows_the_way_to_the_best() -> None:
    """Fails when a piece of text gets into the page as markup, the way to the winner is
    closed, or more pruned branches are listed than asked for."""

    def node(ids: list[str], log_p: float, fate: str, *children) -> SimpleNamespace:
        return SimpleNamespace(
            ids=ids,
            log_p=log_p,
            fate=fate,
            children=children,
            score=lambda alpha: log_p / (len(ids) or 1) ** alpha,
        )

    best = node(["<b>", "end"], -0.5, "finished")
    others = [node(["<b>", f"w{i}"], -3.0 - i, "pruned") for i in range(5)]
    kept = node(["<b>"], -0.25, "live", best, *others)
    html = draw_search_tree(node([], 0.0, "live", kept), best, str, alpha=0.0, shown=2)
    tree = html.partition("</p>")[2]
    assert "&lt;b&gt;" in tree and "<b>" not in tree
    assert tree.startswith("<details open") and tree.count("pruned") == 2
    assert "finished, score -0.50" in tree and "w0" in tree and "w2" not in tree
