"""Training: tokens per second and peak memory of our Transformer, as taught and made
fast, and of torch.nn.Transformer, at equal work."""

import copy
import random
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import reduce
from itertools import islice
from multiprocessing import get_context
from time import perf_counter

import click
import torch
from contest import (
    demand,
    median_ratio,
    peak_memory,
    record_option,
    rounds_option,
    shape_options,
    show,
    show_mark,
    summary,
    take_turns,
    threads_option,
    write_record,
)
from torch import Tensor, nn

from annotated_transformer.attention import causal_mask
from annotated_transformer.data import Batch, token_batches
from annotated_transformer.optimization import transformer_optimizer
from annotated_transformer.speed import FastTraining, packed_loss
from annotated_transformer.support.precision import choose_precision
from annotated_transformer.training import TrainingConfig, batch_loss, update
from annotated_transformer.transformer import (
    DecoderLayer,
    EncoderLayer,
    Transformer,
    TransformerConfig,
)

warnings.filterwarnings(
    "ignore", "enable_nested_tensor"
)  # a short cut for evaluation, which is not measured


def weights_in_their_order(layer: EncoderLayer | DecoderLayer) -> Iterator[Tensor]:
    """The weights of one of our layers as the layers of ``nn.Transformer`` list
    theirs."""
    decoder = isinstance(layer, DecoderLayer)
    for attention in [layer.self_attention] + (
        [layer.cross_attention] if decoder else []
    ):
        query, key, value, output = (
            projection.weight for projection in attention.children()
        )
        yield from (torch.cat([query, key, value]), output)
    yield from layer.feed_forward.parameters()
    middle = [layer.cross_attention_residual] if decoder else []
    for residual in [
        layer.self_attention_residual,
        *middle,
        layer.feed_forward_residual,
    ]:
        yield from residual.layer_norm.parameters()


class PyTorchTransformer(nn.Module):
    """``torch.nn.Transformer`` with the weights of our ``Transformer``, made to do the
    same work and no more.

    Embedding, positions and pre-softmax layer are copies of ours. Attention has no
    biases; dropout inside attention and inside the feed-forward network is off, so that
    what is left are our sites; with post-norm, the norm at the end of each stack is
    taken out.
    """

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        c = ours.config
        self.d_model, self.pad_id = c.d_model, c.pad_id
        self.embedding, self.positions = (
            copy.deepcopy(ours.embedding),
            copy.deepcopy(ours.positions),
        )
        self.dropout = nn.Dropout(c.dropout)
        self.stacks = nn.Transformer(
            c.d_model,
            c.num_heads,
            c.num_layers,
            c.num_layers,
            c.d_ff,
            c.dropout,
            batch_first=True,
            norm_first=c.norm == "pre",
        )
        for layer in [*self.stacks.encoder.layers, *self.stacks.decoder.layers]:
            layer.dropout.p = 0.0  # the one inside the feed-forward network
            for name in {"self_attn", "multihead_attn"} & dict(
                layer.named_children()
            ).keys():
                setattr(
                    layer,
                    name,
                    nn.MultiheadAttention(
                        c.d_model, c.num_heads, bias=False, batch_first=True
                    ),
                )
        if c.norm == "post":
            self.stacks.encoder.norm = self.stacks.decoder.norm = None
        self.copy_weights(ours)

    @torch.no_grad()
    def copy_weights(self, ours: Transformer) -> None:
        """Take over the weights of both stacks."""
        for theirs, stack in (
            (self.stacks.encoder, ours.encoder),
            (self.stacks.decoder, ours.decoder),
        ):
            weights = [
                weight
                for layer in stack.layers
                for weight in weights_in_their_order(layer)
            ]
            for parameter, weight in zip(
                theirs.parameters(),
                [*weights, *stack.final_norm.parameters()],
                strict=True,
            ):
                if parameter.shape != weight.shape:
                    raise ValueError(
                        f"a weight of shape {tuple(weight.shape)} for one of"
                        f" {tuple(parameter.shape)}"
                    )
                parameter.copy_(weight)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.positions(self.embedding(tokens)))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """As ``Transformer.forward``, with the masks that ``nn.Transformer`` documents:
        True may *not* be attended."""
        hidden, later = source == self.pad_id, ~causal_mask(target.size(1))
        memory = self.stacks.encoder(self.embed(source), src_key_padding_mask=hidden)
        states = self.stacks.decoder(
            self.embed(target),
            memory,
            tgt_mask=later,
            tgt_is_causal=True,
            tgt_key_padding_mask=target == self.pad_id,
            memory_key_padding_mask=hidden,
        )
        return self.embedding.logits(states)


CONTESTANTS = {
    "annotated_transformer": FastTraining,  # appendix D
    "as taught": lambda ours: ours,  # chapters 2 to 11
    "torch.nn.Transformer": PyTorchTransformer,
}
OURS, TAUGHT, THEIRS = CONTESTANTS
MARKS = {"fp32": 1.6, "bf16": 2.5, "memory": 0.7}
"""What we aim at, against ``nn.Transformer`` in its faster precision."""


def random_batches(
    config: TransformerConfig, max_tokens: int, number: int, seed: int
) -> list[Batch]:
    """Batches of random tokens, in lengths as those of Multi30k: 5 to 30 subwords, most
    of them near 14."""
    rng = random.Random(seed)

    def sentence() -> list[int]:
        return [
            rng.randrange(4, config.vocabulary_size)
            for _ in range(round(rng.triangular(5, 30, 10)))
        ]

    pairs = [(sentence(), sentence()) for _ in range(number * max_tokens // 15)]
    return list(islice(token_batches(pairs, max_tokens, seed), number))


def make_contestant(name: str, config: TransformerConfig, seed: int) -> nn.Module:
    """One of the models, with the same weights for the same seed."""
    torch.manual_seed(seed)
    return CONTESTANTS[name](Transformer(config)).train()


def trainer(
    model: nn.Module, batches: list[Batch], precision: str = "fp32"
) -> Callable[[], list[float]]:
    """A function that trains the model on all batches once, and returns the losses;
    each call goes on."""
    fast = isinstance(model, FastTraining)
    optimizer = transformer_optimizer(model, fused=True if fast else None)
    training, steps = TrainingConfig(precision=precision), 0
    loss_of = packed_loss if fast else batch_loss

    def train() -> list[float]:
        nonlocal steps
        losses = []
        for batch in batches:
            steps += 1
            report = update(model, optimizer, [batch], steps, training, loss_of)
            losses.append(report.loss)
        return losses

    return train


def measure_memory(
    name: str, config: TransformerConfig, batches: list[Batch], seed: int, threads: int
) -> float:
    """What training adds to the peak memory of a fresh process, in MiB: weights,
    gradients, optimizer, activations."""
    torch.set_num_threads(threads)
    before = peak_memory()
    trainer(make_contestant(name, config, seed), batches)()
    return peak_memory() - before


def in_a_fresh_process(function: Callable, *arguments: object) -> float:
    """The result of ``function`` in a Python started for it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measure_speed(train: Callable[[], list[float]], tokens: int) -> float:
    """Tokens per second of one turn."""
    start = perf_counter()
    train()
    return tokens / (perf_counter() - start)


def race(
    trainers: dict[str, Callable[[], list[float]]], tokens: int, rounds: int
) -> dict[str, list[float]]:
    """Tokens per second of each trainer in each round, shown and returned."""
    turns = {
        name: lambda train=train: measure_speed(train, tokens)
        for name, train in trainers.items()
    }
    speed = take_turns(turns, rounds)
    show("tokens per second, source and target, padding aside", speed)
    return speed


def check_equal_work(
    config: TransformerConfig, batches: list[Batch], seed: int
) -> None:
    """ClickException unless all contestants, without the chance of dropout, have the
    same loss at every step."""
    steady = replace(config, dropout=0.0)
    ours, *others = (
        torch.tensor(trainer(make_contestant(name, steady, seed), batches)())
        for name in CONTESTANTS
    )
    for theirs in others:
        if not torch.allclose(ours, theirs, rtol=1e-4):
            raise click.ClickException(
                f"the losses differ, so the work is not the same: {ours} and {theirs}"
            )


def training_options(command: Callable) -> Callable:
    """The options of a contest in training."""
    options = [
        shape_options,
        click.option("--dropout", default=0.3, show_default=True),
        click.option(
            "--norm",
            type=click.Choice(["pre", "post"]),
            default="pre",
            show_default=True,
        ),
        click.option(
            "--max-tokens",
            default=2048,
            show_default=True,
            help="Tokens a side in each batch.",
        ),
        click.option(
            "--steps",
            default=10,
            show_default=True,
            help="Steps of the optimizer in one turn.",
        ),
        threads_option,
        rounds_option,
        record_option,
    ]
    return reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


def describe_contest(
    config: TransformerConfig, batches: list[Batch], max_tokens: int
) -> dict:
    """What was trained, and on how many tokens, source and target, padding aside."""
    tokens = sum(
        batch.tokens + int((batch.source != config.pad_id).sum()) for batch in batches
    )
    return {
        "config": asdict(config),
        "batches": {"max_tokens": max_tokens, "number": len(batches), "tokens": tokens},
    }


def measured_memory(
    config: TransformerConfig, batches: list[Batch], seed: int, threads: int
) -> dict[str, list[float]]:
    """MiB that training adds at its peak, for each contestant, three times."""
    turns = {
        name: lambda name=name: in_a_fresh_process(
            measure_memory, name, config, batches, seed, threads
        )
        for name in CONTESTANTS
    }
    return take_turns(turns, rounds=3, warm_up=False)


@click.command(epilog="Example: python benchmarks/training.py --rounds 9 --record")
@training_options
@click.option("--at-least", type=float, help="Times as fast in fp32.  [default: 1.6]")
def main(
    max_tokens: int,
    steps: int,
    threads: int,
    rounds: int,
    record: bool,
    at_least: float | None,
    **choices: int | float | str,
) -> None:
    """Train our Transformer, as taught and made fast, and torch.nn.Transformer in turn,
    at equal work: tokens per second and peak memory.

    Where this CPU is fast in bfloat16, each contestant runs in both precisions, and the
    mark is the faster one of torch.nn.Transformer. The shapes are those of the book's
    translator unless given.
    """
    seed = 0
    torch.set_num_threads(threads)
    config = TransformerConfig(**choices, max_length=256)
    batches = random_batches(config, max_tokens, steps, seed)
    check_equal_work(config, batches, seed)
    memory = measured_memory(config, batches, seed, threads)
    facts = describe_contest(config, batches, max_tokens)
    chosen, why = choose_precision("auto", torch.device("cpu"))
    click.echo(why)
    trainers = {
        f"{name}, {precision}": trainer(
            make_contestant(name, config, seed), batches, precision
        )
        for precision in dict.fromkeys(["fp32", chosen])
        for name in CONTESTANTS
    }
    speed = race(trainers, facts["batches"]["tokens"], rounds)
    theirs, fast = speed[f"{THEIRS}, fp32"], speed[f"{OURS}, fp32"]
    ratios = {"fp32": median_ratio(fast, theirs)}
    if chosen == "bf16":
        faster = max((speed[f"{THEIRS}, {name}"] for name in ("fp32", "bf16")), key=sum)
        ratios["bf16"] = median_ratio(speed[f"{OURS}, bf16"], faster)
    show("MiB that training adds at its peak", memory)
    ratios["memory"] = median_ratio(memory[OURS], memory[THEIRS])
    click.echo("times torch.nn.Transformer, the median of the rounds:")
    for what, ratio in ratios.items():
        show_mark(what, ratio, MARKS[what], lower=what == "memory")
    if record:
        facts |= {
            "tokens_per_second": {n: summary(values) for n, values in speed.items()},
            "peak_mebibytes": {n: summary(values) for n, values in memory.items()},
            "ratios": {what: round(ratio, 3) for what, ratio in ratios.items()},
            "precision": why,
        }
        write_record("training", facts, seed)
    demand(ratios["fp32"], MARKS["fp32"] if at_least is None else at_least)


if __name__ == "__main__":
    main()
