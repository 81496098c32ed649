"""The benchmarks' contestants have the same weights and compute the same; nothing is
timed here."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from conftest import gradients
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import base_model  # noqa: E402
import contest  # noqa: E402
import decoding  # noqa: E402
import memory  # noqa: E402
import precision  # noqa: E402
import training  # noqa: E402

from annotated_transformer.subwords import BOS_ID  # noqa: E402
from annotated_transformer.support.records import read_record  # noqa: E402
from annotated_transformer.transformer import TransformerConfig  # noqa: E402
from annotated_transformer.translator import Translator  # noqa: E402

SMALL = TransformerConfig(
    50, num_layers=2, d_model=16, d_ff=32, num_heads=4, dropout=0.0, max_length=40
)


def small(**changes: object) -> TransformerConfig:
    return TransformerConfig(**(vars(SMALL) | changes))


class CountDropout(TorchDispatchMode):
    """Counts, by size, the tensors whose numbers are drawn by ``bernoulli_``, as
    dropout on the CPU does."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: Counter[int] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        if function.overloadpacket is torch.ops.aten.bernoulli_:
            self.sizes[args[0].numel()] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_training_contestants_have_the_same_loss_and_gradients(norm: str) -> None:
    """Fails when ``PyTorchTransformer`` keeps its final norms with post-norm, or swaps
    two of the weights."""
    config = small(norm=norm)
    batch = training.random_batches(config, 60, 1, seed=0)[0]
    models = [
        training.make_contestant(name, config, 0)
        for name in (training.TAUGHT, training.THEIRS)
    ]
    outputs = [model(batch.source, batch.target_input) for model in models]
    words = (
        batch.target_output != config.pad_id
    )  # after the end, masks leave each contestant what it likes
    assert_close(outputs[0][words], outputs[1][words], atol=1e-5, rtol=1e-4)
    found = [
        gradients(logits[words], model.embedding.weight)[0]
        for logits, model in zip(outputs, models, strict=True)
    ]
    assert_close(*found, atol=1e-4, rtol=1e-3)
    training.check_equal_work(config, [batch] * 3, seed=0)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_training_contestants_drop_at_the_same_places() -> None:
    """Fails when the dropout inside the feed-forward network of ``nn.Transformer``
    stays on."""
    config = small(dropout=0.3)
    batch = training.random_batches(config, 60, 1, seed=0)[0]
    counts = []
    for name in (training.TAUGHT, training.THEIRS):
        model = training.make_contestant(name, config, 0)
        with CountDropout() as counter:
            model(batch.source, batch.target_input)
        counts.append(counter.sizes)
    assert counts[0] == counts[1]
    assert counts[0].total() == 2 + 2 * config.num_layers + 3 * config.num_layers


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_unequal_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when ``training.py`` measures contestants of different weights without a
    word."""
    monkeypatch.setattr(
        training.PyTorchTransformer, "copy_weights", lambda self, ours: None
    )
    batches = training.random_batches(SMALL, 60, 2, seed=0)
    with pytest.raises(Exception, match="the losses differ"):
        training.check_equal_work(SMALL, batches, seed=0)


class NamesOfKernels(TorchDispatchMode):
    """Keeps the names of all operations that reach PyTorch's dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        self.names.add(str(function.overloadpacket))
        return function(*args, **(kwargs or {}))


def test_precisions_learn_alike_with_the_kernels_they_name() -> None:
    """Fails when ``update`` leaves attention in 16 bits to the fused kernel on a
    processor, or a contest changes it."""
    batches = precision.random_batches(SMALL, 60, 2, seed=0)
    precision.check_near(SMALL, batches, seed=0)
    fused = {}
    for name in precision.CONTESTANTS:
        with NamesOfKernels() as kernels:
            precision.training_in(name, SMALL, batches, seed=0)()
        fused[name] = any(
            "flash_attention_for_cpu" in kernel for kernel in kernels.names
        )
    assert fused == {"fp32": True, "bf16": False, "bf16, fused attention": True}


def test_marian_gives_our_logits() -> None:
    """Fails when Marian keeps its own table of positions, or its embeddings are not
    scaled."""
    ours = decoding.model_without_end(SMALL, seed=0)
    source = decoding.random_sources(SMALL, 3, 7, seed=0)
    target = torch.cat([torch.full((3, 1), BOS_ID), source[:, :-1]], dim=1)
    with torch.no_grad():
        expected = decoding.marian_of(ours)(
            input_ids=source, decoder_input_ids=target
        ).logits
        assert_close(ours(source, target), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_decoding_contestants_write_the_same(beam_size: int) -> None:
    """Fails when ``generate`` may write one word less, or when the end token can
    win."""
    source = decoding.random_sources(SMALL, 6, 7, seed=1)
    found = {
        name: search(source)
        for name, search in decoding.searchers(SMALL, 9, beam_size, seed=0).items()
    }
    assert decoding.check_equal_work(found, words=9) == 1
    with pytest.raises(Exception, match="not every output has 10"):
        decoding.check_equal_work(found, words=10)
    found["another"] = [[ids[0], *ids[:-1]] for ids in found["ours, cache"]]
    with pytest.raises(Exception, match="are the same"):
        decoding.check_equal_work(found, words=9)


@pytest.mark.slow
def test_the_base_model_is_measured_in_small() -> None:
    """Fails when the command that a GPU waits for does not run: as taught, fast, and
    compiled, with the operations of a step counted."""
    small_one = "--num-layers 1 --d-model 16 --d-ff 32 --num-heads 2 --rounds 1"
    words = f"{small_one} --vocabulary-size 50 --max-tokens 60 --steps 2".split()
    machine = "--device cpu --precision fp32 --backend eager --peak-teraflops 1"
    result = CliRunner().invoke(base_model.main, [*words, *machine.split()])
    assert result.exit_code == 0, result.output
    assert "on eight P100: 0.4 seconds a step" in result.output
    for name in (base_model.TAUGHT, base_model.FAST, base_model.COMPILED):
        line = next(
            x for x in result.output.splitlines() if x.startswith(f"{name}: {{")
        )
        assert "'teraflops_per_second'" in line and "'share_of_peak'" in line


def test_the_operations_of_a_step_are_counted() -> None:
    """Fails when the count leaves out the backward pass: it has twice the products."""
    config = small(num_layers=1)
    batch = training.random_batches(config, 60, 1, seed=0)[0]
    model = training.make_contestant(training.TAUGHT, config, 0).to("meta")
    with FlopCounterMode(display=False) as counter:
        model(batch.source.to("meta"), batch.target_input.to("meta"))
    forward = counter.get_total_flops()
    whole = base_model.flops_of_a_step(config, [batch])
    assert 2.5 * forward < whole < 3.6 * forward


def test_contestants_take_turns() -> None:
    """Fails when one contestant does all its rounds before the next, or the warm-up
    counts."""
    order: list[str] = []
    clock = iter(range(100))

    def contestant(name: str) -> float:
        order.append(name)
        return float(next(clock))

    results = contest.take_turns(
        {"A": lambda: contestant("A"), "B": lambda: contestant("B")}, rounds=2
    )
    assert "".join(order) == "ABABAB" and results == {"A": [2, 4], "B": [3, 5]}
    assert contest.median_ratio([2, 9, 2], [1, 3, 4]) == 2


@pytest.mark.slow
def test_translate_in_memory_that_does_not_grow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Runs ``memory.py`` small. Fails when it loses lines, or when it accepts a growth
    above the bound."""
    monkeypatch.setattr(contest, "RECORDS", tmp_path / "records")
    arguments = ["--lines", "1000", "--record"]
    done = CliRunner().invoke(memory.main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "records" / "benchmark_memory.json").read_text())
    assert list(record["peak_mebibytes"]) == ["1000"]
    assert {"command", "commit", "versions", "hardware", "date"} <= record.keys()
    grown = iter([100.0, 120.0])
    monkeypatch.setattr(memory, "measure", lambda *arguments: next(grown))
    assert (
        CliRunner()
        .invoke(memory.main, ["--lines", "1000", "--lines", "2000"])
        .exit_code
        == 1
    )


def test_the_records_are_of_the_translator_that_ships() -> None:
    """Fails when the translator changes and its benchmarks were not run again, and when
    one of them missed its mark."""
    whole, losses, words = (
        read_record(f"benchmark_{name}")
        for name in ("test_2016", "training", "decoding")
    )
    assert whole["model"] == Translator.load().facts["model"] and whole["beam"] == 4
    assert (
        whole["seconds"]["median"] <= whole["at_most"] <= 10
        and whole["loading_seconds"] < 1
    )
    assert whole["command_ratio"] <= whole["command_at_most"] <= 1.5
    start = read_record("benchmark_startup")
    assert start["seconds"]["difference"]["median"] <= start["at_most"] <= 0.6
    for record in (losses, words, read_record("benchmark_precision")):
        assert contest.SHAPES.items() <= record["config"].items()
    assert losses["ratios"]["fp32"] >= 1.6 and losses["ratios"]["memory"] <= 0.7
    assert min(words["speed_ratio"].values()) >= 1
