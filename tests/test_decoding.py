"""Chapter 12: greedy search."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from conftest import VOCABULARY_SIZE, rectangle, sentences
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from annotated_transformer.decoding import beam_search, greedy_search, up_to_end
from annotated_transformer.subwords import BOS_ID, EOS_ID, PAD_ID
from annotated_transformer.transformer import Transformer, TransformerConfig

rows = st.lists(sentences, min_size=1, max_size=4)
seeds = st.integers(0, 99)


class Copier(nn.Module):
    """A model that says its source again, and then the last token of its row forever; it counts its steps."""

    def __init__(self, max_length: int = 100) -> None:
        super().__init__()
        self.config, self.steps = SimpleNamespace(max_length=max_length), 0

    def encode(self, source: Tensor) -> Tensor:
        return source

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        self.steps += 1
        last = (memory != PAD_ID).sum(dim=1, keepdim=True) - 1
        said = memory.gather(1, torch.arange(target.size(1)).expand(len(memory), -1).minimum(last))
        return F.one_hot(said, VOCABULARY_SIZE).double()


@given(rows=rows)
def test_each_sentence_ends_at_its_own_end(rows: list[list[int]]) -> None:
    """Fails when words go on after the end, and when the search goes on after all have ended."""
    model = Copier()
    assert greedy_search(model, rectangle([[*row, EOS_ID] for row in rows]), cache=False) == rows
    assert model.steps == max(len(row) for row in rows) + 1


@given(rows=rows, extra=st.integers(0, 4))
def test_a_sentence_without_end_is_as_long_as_its_source_and_a_bit(rows: list[list[int]], extra: int) -> None:
    """Fails when the limit is that of the longest source in the batch, or one word short."""
    assert [len(said) for said in greedy_search(Copier(), rectangle(rows), extra, cache=False)] == [len(row) + extra for row in rows]


def test_the_model_sets_the_last_limit() -> None:
    """Fails when ``max_length`` is not looked at: the positions would run out."""
    assert [len(said) for said in greedy_search(Copier(max_length=5), rectangle([[7, 8, 9]]), cache=False)] == [5]
    config = TransformerConfig(VOCABULARY_SIZE, 1, 8, 16, 2, max_length=6)
    [said] = greedy_search(Transformer(config), torch.tensor([[5, 6, 7]]))
    assert len(said) <= 6


def small(seed: int = 0) -> Transformer:
    """A small model with large random positions: it says nonsense, changes its mind often, and sometimes ends."""
    torch.manual_seed(seed)
    config = TransformerConfig(VOCABULARY_SIZE, 2, 16, 32, 4, dropout=0.5, positions="learned", max_length=40)
    model = Transformer(config)
    torch.nn.init.normal_(model.positions.table, std=8.0)
    return model


@given(rows=rows, seed=seeds)
def test_every_word_is_the_most_likely_one_after_the_words_before(rows: list[list[int]], seed: int) -> None:
    """Fails when dropout is on, when the wrong position is read, and when padding or begin may be said."""
    model, source = small(seed), rectangle(rows)
    for i, said in enumerate(greedy_search(model, source, extra_length=3)):
        scores = model(source[i : i + 1], torch.tensor([[BOS_ID, *said]]))[0]
        scores[:, [PAD_ID, BOS_ID]] = -torch.inf
        best = scores.argmax(dim=-1).tolist()
        assert said == best[: len(said)] and EOS_ID not in said
        assert best[len(said)] == EOS_ID or len(said) >= len(rows[i]) + 3


@given(rows=rows, seed=seeds, padding=st.integers(0, 3))
def test_a_batch_says_what_its_sentences_say_alone(rows: list[list[int]], seed: int, padding: int) -> None:
    """Fails when the limit depends on the padding, and when the source's padding is attended to."""
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
    """Fails when the end token itself is kept, and when padding does not end a sentence."""
    assert up_to_end(words) == words
    for end in (EOS_ID, PAD_ID):
        assert up_to_end([*words, end, *rest]) == words


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (torch.zeros(0, 3, dtype=torch.long), r"shape \(0, 3\).*empty batches"),
        (torch.tensor([5, 6]), r"shape \(2,\), expected \(batch, length\)"),
        (torch.full((1, 41), 5), "41 tokens is longer than max_length 40"),
        (torch.tensor([[VOCABULARY_SIZE]]), "ids from 20 to 20, expected 0 to 19"),
    ],
)
def test_bad_sources_are_named(source: Tensor, message: str) -> None:
    """Fails when the model's own checks are passed by."""
    with pytest.raises(ValueError, match=message):
        greedy_search(small(), source)


def exhaustive(model: Transformer, source: Tensor, alpha: float, extra_length: int) -> list[tuple[float, list[int]]]:
    """Every sentence that ends within the limit, best first: the search without a search."""
    limit = source.size(1) + extra_length
    every, open_ids = [], [([], 0.0)]
    for length in range(1, limit + 1):
        nexts = []
        for ids, log_p in open_ids:
            logits = model.eval()(source, torch.tensor([[BOS_ID, *ids]]))[0, -1].detach()
            logits[[PAD_ID, BOS_ID]] = -torch.inf
            for word, p in enumerate(logits.log_softmax(dim=-1).tolist()):
                if word == EOS_ID:
                    every.append(((log_p + p) / ((5 + length) / 6) ** alpha, ids))
                elif p > -1e9:
                    nexts.append(([*ids, word], log_p + p))
        open_ids = nexts
    return sorted(every, key=lambda pair: -pair[0])


def test_a_beam_as_wide_as_the_search_space_finds_the_best_of_all() -> None:
    for seed in range(6):
        torch.manual_seed(seed)
        model = Transformer(TransformerConfig(7, 1, 8, 16, 2, positions="learned", max_length=40))
        torch.nn.init.normal_(model.positions.table, std=8.0)
        source = torch.tensor([[4, 5]])
        for alpha in (0.0, 0.6, 2.0):
            best = exhaustive(model, source, alpha, 2)[0]
            [[first, *_]] = beam_search(model, source, beam_size=5**4, alpha=alpha, extra_length=2)
            assert first.ids == best[1] and first.score == pytest.approx(best[0], abs=1e-4)


@given(rows=rows, seed=seeds, beam_size=st.integers(1, 5), alpha=st.sampled_from([0.0, 0.6, 1.5]))
def test_cache_and_batch_change_nothing(rows: list[list[int]], seed: int, beam_size: int, alpha: float) -> None:
    model, source = small(seed), rectangle(rows)
    together = beam_search(model, source, beam_size, alpha, extra_length=3)
    plain = beam_search(model, source, beam_size, alpha, extra_length=3, cache=False)
    alone = [beam_search(model, rectangle([row]), beam_size, alpha, extra_length=3)[0] for row in rows]
    for other in (plain, alone):
        assert [[h.ids for h in hs] for hs in together] == [[h.ids for h in hs] for hs in other]
        for ours, theirs in zip(sum(together, []), sum(other, []), strict=True):
            assert ours.score == pytest.approx(theirs.score, abs=1e-4)
    if beam_size == 1:
        assert [hs[0].ids for hs in together] == greedy_search(model, source, extra_length=3)
