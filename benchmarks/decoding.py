"""Decoding: sentences per second with and without cache and batches, of transformers'
``generate``, and of CTranslate2 where it is installed."""

import os
import signal
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.util import find_spec
from multiprocessing import get_context
from time import perf_counter

os.environ["HF_HUB_OFFLINE"] = "1"  # everything is built here

import click
import torch
import transformers
from contest import (
    at_least_option,
    demand,
    median_ratio,
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
from transformers import MarianConfig, MarianMTModel

from annotated_transformer.decoding import beam_search, greedy_search
from annotated_transformer.multi_head import MultiHeadAttention
from annotated_transformer.subwords import BOS_ID, EOS_ID, PAD_ID
from annotated_transformer.transformer import Transformer, TransformerConfig


def model_without_end(config: TransformerConfig, seed: int) -> Transformer:
    """A model with random weights that never names the end token, nor padding or the
    begin token.

    So every contestant writes as many words as it may, and all do the same work. How:
    the last layer norm moves all states in one direction, and the vectors of the three
    tokens point the other way.
    """
    torch.manual_seed(seed)
    model = Transformer(config).eval()
    direction = 5 * nn.functional.normalize(torch.randn(config.d_model), dim=0)
    with torch.no_grad():
        model.decoder.layers[-1].feed_forward_residual.layer_norm.bias += direction
        model.embedding.weight[[PAD_ID, BOS_ID, EOS_ID]] = -direction
    return model


def marian_of(ours: Transformer) -> MarianMTModel:
    """The Marian model of ``transformers`` with our weights: the same logits for the
    same tokens.

    ``ours`` is post-norm, the only order that Marian knows. Marian's biases of
    attention and of the logits are set to zero. Its sinusoids stand in another order,
    sines first; the table is ours instead.
    """
    c = ours.config
    if (
        c.norm != "post"
        or c.positions != "sinusoidal"
        or (c.d_k, c.d_v) != (None, None)
    ):
        raise ValueError(
            f"{c}: Marian has post-norm, sinusoids and heads of d_model / num_heads"
        )
    marian = MarianMTModel(
        MarianConfig(
            vocab_size=c.vocabulary_size,
            d_model=c.d_model,
            max_position_embeddings=c.max_length,
            encoder_layers=c.num_layers,
            encoder_attention_heads=c.num_heads,
            encoder_ffn_dim=c.d_ff,
            decoder_layers=c.num_layers,
            decoder_attention_heads=c.num_heads,
            decoder_ffn_dim=c.d_ff,
            activation_function="relu",
            dropout=0.0,
            scale_embedding=True,
            pad_token_id=PAD_ID,
            decoder_start_token_id=BOS_ID,
            eos_token_id=EOS_ID,
            forced_eos_token_id=None,
        )
    ).eval()
    with torch.no_grad():
        marian.model.shared.weight.copy_(ours.embedding.weight)
        for theirs, stack in (
            (marian.model.encoder, ours.encoder),
            (marian.model.decoder, ours.decoder),
        ):
            theirs.embed_positions.weight.copy_(ours.positions.table)
            for layer, own in zip(theirs.layers, stack.layers, strict=True):
                copy_layer(layer, own)
    return marian


def copy_layer(marian: nn.Module, ours: nn.Module) -> None:
    """The weights of one layer of encoder or decoder."""
    copy_attention(marian.self_attn, ours.self_attention)
    pairs = [
        (marian.self_attn_layer_norm, ours.self_attention_residual.layer_norm),
        (marian.fc1, ours.feed_forward.expand),
        (marian.fc2, ours.feed_forward.contract),
        (marian.final_layer_norm, ours.feed_forward_residual.layer_norm),
    ]
    if hasattr(ours, "cross_attention"):
        copy_attention(marian.encoder_attn, ours.cross_attention)
        pairs.append(
            (marian.encoder_attn_layer_norm, ours.cross_attention_residual.layer_norm)
        )
    for theirs, own in pairs:
        theirs.weight.copy_(own.weight)
        theirs.bias.copy_(own.bias)


def copy_attention(marian: nn.Module, ours: MultiHeadAttention) -> None:
    """The four projections of one attention; their biases become zero."""
    for theirs, own in (
        (marian.q_proj, ours.query_projection),
        (marian.k_proj, ours.key_projection),
        (marian.v_proj, ours.value_projection),
        (marian.out_proj, ours.output_projection),
    ):
        theirs.weight.copy_(own.weight)
        theirs.bias.zero_()


def search(
    model: Transformer, source: Tensor, words: int, beam_size: int, cache: bool
) -> list[list[int]]:
    """Our search, ``words`` tokens for each source: the best hypothesis."""
    extra = words - source.size(
        1
    )  # the limit is the source's own length + extra, and no source is padded
    if beam_size == 1:
        return greedy_search(model, source, extra, cache)
    return [
        found[0].ids
        for found in beam_search(
            model, source, beam_size, extra_length=extra, cache=cache
        )
    ]


def generate(
    marian: MarianMTModel, source: Tensor, words: int, beam_size: int
) -> list[list[int]]:
    """The search of ``transformers``, with its cache."""
    found = marian.generate(
        input_ids=source,
        attention_mask=(source != PAD_ID).long(),
        num_beams=beam_size,
        do_sample=False,
        max_new_tokens=words,
        use_cache=True,
    )
    return found[:, 1:].tolist()  # without the begin token


Searcher = Callable[[Tensor], list[list[int]]]


OURS, NO_CACHE, MARIAN = "ours, cache", "ours, no cache", "generate of Marian"
CTRANSLATE2 = "CTranslate2"
MARKS = {
    MARIAN: {"greedy": 1.3, "beam 4": 1.3},
    CTRANSLATE2: {"greedy": 0.85, "beam 4": 0.75},
}
"""What we aim at; CTranslate2 is written in C++ for this alone."""


def searchers(
    config: TransformerConfig, words: int, beam_size: int, seed: int
) -> dict[str, Searcher]:
    """Functions from sources to outputs, by name: the same weights, the same number of
    words."""
    ours = model_without_end(config, seed)
    marian = marian_of(ours)
    found = {
        OURS: lambda source: search(ours, source, words, beam_size, cache=True),
        NO_CACHE: lambda source: search(ours, source, words, beam_size, cache=False),
        MARIAN: lambda source: generate(marian, source, words, beam_size),
    }
    if find_spec("ctranslate2"):
        from ctranslate import translator_of

        other = translator_of(ours, torch.get_num_threads())
        found[CTRANSLATE2] = lambda source: other(source, words, beam_size)
    return found


def random_sources(
    config: TransformerConfig, sentences: int, length: int, seed: int
) -> Tensor:
    """Sources ``(sentences, length)``, the end token at the end of each."""
    numbers = torch.Generator().manual_seed(seed)
    source = torch.randint(
        4, config.vocabulary_size, (sentences, length), generator=numbers
    )
    source[:, -1] = EOS_ID
    return source


def measure(searcher: Searcher, batches: list[Tensor]) -> float:
    """Sentences per second."""
    start = perf_counter()
    for batch in batches:
        searcher(batch)
    return sum(len(batch) for batch in batches) / (perf_counter() - start)


class Apart:
    """A searcher in a process of its own, stopped while it is not its turn.

    Threads of OpenMP wait for work by spinning: idle contestants in the same process,
    or awake in another one, would slow down the one that is measured.
    """

    searcher: Searcher

    @classmethod
    def start(cls, name: str, threads: int, *of_searchers: object) -> None:
        """In the new process: make the searcher called ``name``."""
        torch.set_num_threads(threads)
        cls.searcher = staticmethod(searchers(*of_searchers)[name])

    def __init__(self, name: str, threads: int, *of_searchers: object) -> None:
        arguments = (name, threads, *of_searchers)
        self.pool = ProcessPoolExecutor(
            1, get_context("spawn"), initializer=Apart.start, initargs=arguments
        )
        self.process = self.pool.submit(os.getpid).result()
        os.kill(self.process, signal.SIGSTOP)

    def call(self, function: Callable, *arguments: object) -> object:
        """``function`` of the arguments, in the process, awake meanwhile."""
        os.kill(self.process, signal.SIGCONT)
        result = self.pool.submit(function, *arguments).result()
        os.kill(self.process, signal.SIGSTOP)
        return result

    def close(self) -> None:
        """End the process."""
        os.kill(self.process, signal.SIGCONT)
        self.pool.shutdown()


def outputs_of(source: Tensor) -> list[list[int]]:
    """What the searcher of this process writes."""
    return Apart.searcher(source)


def speed_of(batches: list[Tensor]) -> float:
    """Sentences per second of the searcher of this process."""
    return measure(Apart.searcher, batches)


def check_equal_work(found: dict[str, list[list[int]]], words: int) -> float:
    """The share of sentences that come out the same for all; ClickException where
    lengths or more than a few differ."""
    if {len(ids) for outputs in found.values() for ids in outputs} != {words}:
        raise click.ClickException(
            f"not every output has {words} tokens, so the work is not the same"
        )
    outputs = list(zip(*found.values(), strict=True))
    same = sum(all(ids == others[0] for ids in others) for others in outputs) / len(
        outputs
    )
    if (
        same < 0.95
    ):  # two words of equal score may change places by rounding, here and there
        raise click.ClickException(
            f"only {same:.0%} of the outputs are the same, so the weights are not"
        )
    return same


@click.command(epilog="Example: python benchmarks/decoding.py --rounds 9 --record")
@shape_options
@click.option(
    "--sentences",
    default=128,
    show_default=True,
    help="In the batch that is searched at once.",
)
@click.option(
    "--alone",
    default=8,
    show_default=True,
    help="How many of them are also searched one by one.",
)
@click.option("--length", default=15, show_default=True, help="Tokens of each source.")
@click.option(
    "--words", default=15, show_default=True, help="Tokens that are written for each."
)
@threads_option
@rounds_option
@record_option
@at_least_option
def main(
    sentences: int,
    alone: int,
    length: int,
    words: int,
    threads: int,
    rounds: int,
    record: bool,
    at_least: float,
    **choices: int,
) -> None:
    """Search greedily and with beam 4: with and without cache, together and one by one,
    and with `generate`.

    The shapes are those of the book's translator unless given, but post-norm, as Marian
    is.
    """
    seed = 0
    os.environ["OMP_NUM_THREADS"] = str(threads)  # of the contestants' processes
    config = TransformerConfig(**choices, dropout=0.0, max_length=256)
    source = random_sources(config, sentences, length, seed)
    speed: dict[str, list[float]] = {}
    ratios: dict[str, dict[str, float]] = {MARIAN: {}, CTRANSLATE2: {}}
    same = {}
    for kind, beam_size in (("greedy", 1), ("beam 4", 4)):
        names = [OURS, NO_CACHE, MARIAN]
        names += [CTRANSLATE2] if find_spec("ctranslate2") else []
        found = {
            name: Apart(name, threads, config, words, beam_size, seed) for name in names
        }
        same[kind] = check_equal_work(
            {name: one.call(outputs_of, source) for name, one in found.items()}, words
        )
        for way, batches in (
            ("together", [source]),
            ("one by one", list(source[:alone].split(1))),
        ):
            turns = {
                name: lambda one=one, b=batches: one.call(speed_of, b)
                for name, one in found.items()
            }
            measured = take_turns(turns, rounds)
            speed |= {f"{kind}, {way}: {n}": values for n, values in measured.items()}
            for name in (MARIAN, CTRANSLATE2):
                if name in measured:
                    ratio = median_ratio(measured[OURS], measured[name])
                    ratios[name][f"{kind}, {way}"] = round(ratio, 3)
        for one in found.values():
            one.close()
    show("sentences per second", speed)
    for other, of_other in ratios.items():
        for name, ratio in of_other.items():
            mark = MARKS[other][name.split(",")[0]]
            show_mark(f"{name}, times {other}", ratio, mark)
    if not ratios[CTRANSLATE2]:
        click.echo("CTranslate2 is missing: pip install -r benchmarks/requirements.txt")
    alone_ms = {
        name: 1000 / statistics.median(values)
        for name, values in speed.items()
        if "one by one" in name
    }
    for name, milliseconds in alone_ms.items():
        click.echo(f"{name}: {milliseconds:.0f} ms a sentence")
    if record:
        facts = {
            "config": asdict(config),
            "sources": {
                "sentences": sentences,
                "alone": alone,
                "length": length,
                "words": words,
            },
            "same_output": same,
            "sentences_per_second": {
                name: summary(values) for name, values in speed.items()
            },
            "speed_ratio": ratios[MARIAN],
            "ctranslate2_ratio": ratios[CTRANSLATE2],
            "milliseconds_a_sentence": {n: round(x, 1) for n, x in alone_ms.items()},
            "transformers": transformers.__version__,
        }
        write_record("decoding", facts, seed)
    demand(min(ratios[MARIAN].values()), at_least)


if __name__ == "__main__":
    main()
