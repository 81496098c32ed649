"""The paper's base model on one GPU: seconds a step, tokens per second, share of the
peak, memory; as taught, fast, and fast with torch.compile."""

import statistics
from collections.abc import Callable
from time import perf_counter

import click
import torch
from contest import (
    record_option,
    rounds_option,
    show,
    summary,
    take_turns,
    write_record,
)
from torch.utils.flop_counter import FlopCounterMode
from training import describe_contest, random_batches

from annotated_transformer.data import Batch
from annotated_transformer.optimization import transformer_optimizer
from annotated_transformer.speed import FastTraining, packed_loss
from annotated_transformer.support.paper import paper_facts
from annotated_transformer.support.precision import choose_precision
from annotated_transformer.support.runs import choose_device
from annotated_transformer.training import TrainingConfig, batch_loss, step_gradient
from annotated_transformer.transformer import Transformer, TransformerConfig

TAUGHT, FAST, COMPILED = "as taught", "fast", "fast, compiled"


def wait_for(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def trainer(
    name: str,
    config: TransformerConfig,
    batches: list[Batch],
    device: torch.device,
    precision: str,
    backend: str,
) -> Callable[[], float]:
    """A function that trains on all batches once and returns the seconds of a step;
    no step reads a number back."""
    torch.manual_seed(0)
    model = Transformer(config).to(device).train()
    loss_of = batch_loss if name == TAUGHT else packed_loss
    if name != TAUGHT:
        model = FastTraining(model).train()
    optimizer = transformer_optimizer(model, fused=True)
    if name == COMPILED:
        model.compile(backend=backend, dynamic=True)
    training, steps = TrainingConfig(precision=precision), 0

    def train() -> float:
        nonlocal steps
        wait_for(device)
        start = perf_counter()
        for batch in batches:
            steps += 1
            step_gradient(model, optimizer, [batch], steps, training, loss_of)
            optimizer.step()
        wait_for(device)
        return (perf_counter() - start) / len(batches)

    return train


def flops_of_a_step(config: TransformerConfig, batches: list[Batch]) -> float:
    """Operations of the forward and backward pass of a batch as taught, padding and
    all, counted on the meta device: the mean of ``batches``."""
    with torch.device("meta"):
        model = Transformer(config).train()
    with FlopCounterMode(display=False) as counter:
        for batch in batches:
            batch_loss(model, batch.to("meta"), 0.1)[0].backward()
    return counter.get_total_flops() / len(batches)


@click.command(
    epilog="Example: python benchmarks/base_model.py --peak-teraflops 989 --record"
)
@click.option("--device", default="auto", help="auto, cpu, cuda or mps.")
@click.option("--precision", default="auto", help="auto, fp32 or bf16.")
@click.option("--vocabulary-size", default=37_000, show_default=True)
@click.option("--num-layers", default=6, show_default=True)
@click.option("--d-model", default=512, show_default=True)
@click.option("--d-ff", default=2048, show_default=True)
@click.option("--num-heads", default=8, show_default=True)
@click.option(
    "--max-tokens", default=25_000, show_default=True, help="Of a batch, on each side."
)
@click.option("--steps", default=10, show_default=True, help="In one turn.")
@click.option(
    "--backend", default="inductor", show_default=True, help="Of torch.compile."
)
@click.option("--peak-teraflops", type=float, help="Of the device, as its maker says.")
@rounds_option
@record_option
def main(
    device: str,
    precision: str,
    max_tokens: int,
    steps: int,
    backend: str,
    peak_teraflops: float | None,
    rounds: int,
    record: bool,
    **choices: int,
) -> None:
    """Train the paper's base model on random sentences, in the paper's batches."""
    chosen = choose_device(device)
    precision, why = choose_precision(precision, chosen)
    click.echo(why or f"precision {precision}")
    config = TransformerConfig(**choices)
    batches = random_batches(config, max_tokens, steps, seed=0)
    facts = describe_contest(config, batches, max_tokens)
    turns = {
        name: trainer(name, config, batches, chosen, precision, backend)
        for name in (TAUGHT, FAST, COMPILED)
    }
    seconds = take_turns(turns, rounds)
    show("seconds a step", seconds)
    paper = paper_facts()["base"]["seconds_per_step"]
    click.echo(f"the paper's base model, on eight P100: {paper} seconds a step")
    tokens, flops = facts["batches"]["tokens"] / steps, flops_of_a_step(config, batches)
    results = {}
    for name, values in seconds.items():
        middle = statistics.median(values)
        results[name] = {
            "seconds": summary(values),
            "tokens_per_second": round(tokens / middle),
            "teraflops_per_second": round(flops / middle / 1e12, 3),
        }
        if peak_teraflops:
            share = flops / middle / 1e12 / peak_teraflops
            results[name]["share_of_peak"] = round(share, 4)
        click.echo(f"{name}: {results[name]}")
    if chosen.type == "cuda":
        facts["peak_gibibytes"] = torch.cuda.max_memory_allocated(chosen) / 2**30
        click.echo(f"peak memory of all three: {facts['peak_gibibytes']:.1f} GiB")
    if record:
        facts |= {"precision": precision, "peak_teraflops": peak_teraflops}
        facts |= {"results": results}
        write_record("base_model", facts, 0, chosen)


if __name__ == "__main__":
    main()
