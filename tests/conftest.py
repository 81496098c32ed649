"""What the tests share: one torch thread, randomness that repeats itself, small models'
inputs and their checks."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import register_random, settings
from hypothesis import strategies as st
from torch import Tensor

from annotated_transformer.subwords import Subwords, train_subwords
from annotated_transformer.support.corpora import miniature_corpus

torch.set_num_threads(1)


class TorchRandom:
    """PyTorch's generator under Hypothesis, which starts every example from the same
    seed."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


TORCH_RANDOM = TorchRandom()  # Hypothesis keeps a weak reference only
register_random(TORCH_RANDOM)
settings.register_profile("book", deadline=None, max_examples=15, derandomize=True)
settings.load_profile("book")

VOCABULARY_SIZE = 20
"""The vocabulary of the small models: 0 to 3 are padding, begin, end and unknown, as in
the package."""

sizes = st.integers(1, 5)
words = st.integers(3, VOCABULARY_SIZE - 1)
sentences = st.lists(words, min_size=1, max_size=6)
pairs = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=4)


def rectangle(rows: Sequence[Sequence[int]], extra: int = 0, fill: int = 0) -> Tensor:
    """Rows of token ids to ``(batch, longest + extra)``, filled up at the end."""
    width = max(len(row) for row in rows) + extra
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def random_mask(*shape: int) -> Tensor:
    """A boolean mask in which the very first row may attend to nothing."""
    mask = torch.rand(shape) < 0.6
    mask.view(-1, shape[-1])[0] = False
    return mask


def gradients(output: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """The gradients of a random weighting of ``output``, the same weighting for each
    output of one shape."""
    weighting = torch.randn(
        output.shape, generator=torch.Generator().manual_seed(0), dtype=output.dtype
    )
    return torch.autograd.grad((output * weighting).sum(), inputs, retain_graph=True)


def assert_padding_invariant(
    model: Callable[[Tensor, Tensor], Tensor], pairs: list, extra: tuple[int, int]
) -> None:
    """Assert that the logits of each pair are the same alone, in a batch, and in a
    batch padded further."""
    sources, targets = zip(*pairs, strict=True)
    together = model(rectangle(sources), rectangle(targets))
    further = model(rectangle(sources, extra[0]), rectangle(targets, extra[1]))
    for i, (source, target) in enumerate(pairs):
        alone = model(rectangle([source]), rectangle([target]))[0]
        torch.testing.assert_close(
            together[i, : len(target)], alone, atol=1e-5, rtol=1e-4
        )
        torch.testing.assert_close(
            further[i, : len(target)], alone, atol=1e-5, rtol=1e-4
        )


def assert_causal(
    model: Callable[[Tensor, Tensor], Tensor],
    source: list[int],
    target: list[int],
    at: int,
) -> None:
    """Assert that another token ``at`` a place of the target changes the logits from
    there on, and none before."""
    changed = [*target]
    changed[at] = 3 + (target[at] - 2) % (VOCABULARY_SIZE - 3)  # the next word
    before, after = (
        model(rectangle([source]), rectangle([row]))[0] for row in (target, changed)
    )
    torch.testing.assert_close(after[:at], before[:at], atol=0, rtol=0)
    assert (after[at] - before[at]).abs().max() > 1e-4


@pytest.fixture(autouse=True)
def seed() -> None:
    """Every test starts from the same seed."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def text() -> list[str]:
    """Sentences of both languages of the miniature corpus."""
    return [sentence for pair in miniature_corpus(200, 0).train for sentence in pair]


@pytest.fixture(scope="session")
def subwords(text: list[str]) -> Subwords:
    """A small vocabulary of ``text``."""
    return train_subwords(text, 360)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the minutes go: seconds of each file, of tests and notebooks."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    long = [(file, took) for file, took in seconds.most_common() if took >= 5]
    if seconds.total() < 60 or len(long) < 2:
        return
    terminalreporter.section("where the minutes go")
    for file, took in long:
        terminalreporter.write_line(f"{took:7.1f} s  {file}")
    rest = seconds.total() - sum(took for _, took in long)
    terminalreporter.write_line(
        f"{rest:7.1f} s  {len(seconds) - len(long)} other files"
    )
    for kind in ("tests", "notebooks"):
        took = sum(took for file, took in seconds.items() if file.startswith(kind))
        terminalreporter.write_line(f"{took / 60:7.1f} minutes of {kind}")
