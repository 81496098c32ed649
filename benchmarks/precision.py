"""Training in 32 bits and in bfloat16 on a CPU, with two ways to compute
attention: tokens per second."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest.mock import patch

import click
import torch
from contest import median_ratio, summary, write_record
from training import (
    TAUGHT,
    describe_contest,
    make_contestant,
    race,
    random_batches,
    trainer,
    training_options,
)

from annotated_transformer.data import Batch
from annotated_transformer.training import mixed_precision
from annotated_transformer.transformer import TransformerConfig


def autocast_alone(device: torch.device, precision: str) -> AbstractContextManager:
    """What ``mixed_precision`` would be if it left the choice of attention's kernel to
    PyTorch."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


CONTESTANTS = {
    "fp32": ("fp32", mixed_precision),
    "bf16": ("bf16", mixed_precision),
    "bf16, fused attention": ("bf16", autocast_alone),
}


def training_in(
    name: str, config: TransformerConfig, batches: list[Batch], seed: int
) -> Callable[[], list[float]]:
    """A function that trains a model once on ``batches`` in the way called ``name``,
    and returns the losses."""
    precision, context = CONTESTANTS[name]
    train = trainer(make_contestant(TAUGHT, config, seed), batches, precision)

    def train_so() -> list[float]:
        with patch("annotated_transformer.training.mixed_precision", context):
            return train()

    return train_so


def check_near(config: TransformerConfig, batches: list[Batch], seed: int) -> None:
    """ClickException unless, without the chance of dropout, all contestants have about
    the same loss at every step."""
    steady = replace(config, dropout=0.0)
    losses = [
        torch.tensor(training_in(name, steady, batches, seed)()) for name in CONTESTANTS
    ]
    if not all(torch.allclose(losses[0], other, rtol=0.02) for other in losses[1:]):
        raise click.ClickException(f"the losses differ by more than 2 %: {losses}")


@click.command(epilog="Example: python benchmarks/precision.py --rounds 9 --record")
@training_options
def main(
    max_tokens: int,
    steps: int,
    threads: int,
    rounds: int,
    record: bool,
    **choices: int | float | str,
) -> None:
    """Train the same model in 32 bits and in mixed precision in turn: tokens per
    second.

    The shapes are those of the book's translator unless given.
    """
    seed = 0
    torch.set_num_threads(threads)
    config = TransformerConfig(**choices, max_length=256)
    batches = random_batches(config, max_tokens, steps, seed)
    check_near(config, batches, seed)
    facts = describe_contest(config, batches, max_tokens)
    trainers = {name: training_in(name, config, batches, seed) for name in CONTESTANTS}
    speed = race(trainers, facts["batches"]["tokens"], rounds)
    ratios = {
        name: round(median_ratio(values, speed["fp32"]), 3)
        for name, values in speed.items()
    }
    click.echo(f"times as fast as fp32 (median of the rounds): {ratios}")
    if record:
        facts |= {
            "tokens_per_second": {
                name: summary(values) for name, values in speed.items()
            },
            "speed_ratios": ratios,
        }
        write_record("precision", facts, seed)


if __name__ == "__main__":
    main()
