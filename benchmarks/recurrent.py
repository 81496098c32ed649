"""The recurrent translator of chapter 1, trained and scored like the Transformer: same
data, batches and loop."""

import json
from pathlib import Path
from time import perf_counter

import click
import torch
from contest import threads_option, write_record

from annotated_transformer.data import make_batch
from annotated_transformer.decoding import up_to_end
from annotated_transformer.evaluation import average_checkpoints, score
from annotated_transformer.recurrence import RecurrentTranslator
from annotated_transformer.subwords import Subwords
from annotated_transformer.support.checkpoints import find_checkpoints
from annotated_transformer.support.cli_options import PRESETS
from annotated_transformer.support.run_folders import (
    batches_of,
    pairs_of,
    read_corpus,
)
from annotated_transformer.support.runs import Trainer
from annotated_transformer.training import TrainingConfig
from annotated_transformer.transformer import count_parameters

MAX_LENGTH = PRESETS["tiny"][0](100).max_length


def same_size(
    vocabulary_size: int, parameters: int, dropout: float
) -> RecurrentTranslator:
    """The recurrent translator, in the even width whose number of parameters is nearest
    to ``parameters``."""
    with torch.device("meta"):  # only to count
        sizes = {
            d: count_parameters(RecurrentTranslator(vocabulary_size, d))
            for d in range(16, 513, 2)
        }
    return RecurrentTranslator(
        vocabulary_size, min(sizes, key=lambda d: abs(sizes[d] - parameters)), dropout
    )


def translate(
    model: RecurrentTranslator, subwords: Subwords, lines: list[str], at_once: int = 50
) -> list[str]:
    """Greedy translations of ``lines``, in order."""
    ids = [subwords.encode(line)[: MAX_LENGTH - 1] for line in lines]
    order, texts = (
        sorted(range(len(lines)), key=lambda i: len(ids[i])),
        [""] * len(lines),
    )
    for start in range(0, len(order), at_once):
        group = order[start : start + at_once]
        source = make_batch([(ids[i], []) for i in group]).source
        said, _ = model.greedy(source, source.size(1) + 50)
        for i, row in zip(group, said.tolist(), strict=True):
            texts[i] = subwords.decode(up_to_end(row))
    return texts


@click.command(
    epilog=(
        "Example: python benchmarks/recurrent.py data run-recurrent --minutes 20"
        " --record"
    )
)
@click.argument("data", type=click.Path(path_type=Path))
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--parameters",
    default=1_831_424,
    show_default=True,
    help="Size of the Transformer to compare with.",
)
@click.option(
    "--minutes",
    type=float,
    required=True,
    help="Training time; a run that is there already goes on.",
)
@click.option("--max-tokens", default=1024, show_default=True)
@click.option("--warmup-steps", default=1000, show_default=True)
@click.option(
    "--peak", default=0.002, show_default=True, help="The highest learning rate."
)
@click.option("--dropout", default=0.2, show_default=True)
@click.option("--last", default=5, show_default=True, help="Checkpoints to average.")
@click.option(
    "--record",
    is_flag=True,
    help="Write records/benchmark_recurrent.json of the package.",
)
@threads_option
def main(
    data: Path,
    run: Path,
    parameters: int,
    minutes: float,
    max_tokens: int,
    warmup_steps: int,
    peak: float,
    dropout: float,
    last: int,
    record: bool,
    threads: int,
) -> None:
    """Train the recurrent translator on DATA, which annotated-transformer prepare
    wrote, and score it on its test."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    subwords = Subwords.load(data / "subwords.model")
    model = same_size(len(subwords), parameters, dropout)
    factor = (
        peak * (model.d_model * warmup_steps) ** 0.5
    )  # so that equation 3 has this peak, whatever the width
    config = TrainingConfig(
        10**9, max_tokens, warmup_steps=warmup_steps, factor=factor, save_every=250
    )
    trainer = Trainer(
        model,
        config,
        run,
        {"parameters": count_parameters(model), "d_model": model.d_model},
    )
    trainer.resume()
    trainer.run(*batches_of(data, subwords, MAX_LENGTH, config, False, 0, 1), minutes)
    weights, facts = average_checkpoints(find_checkpoints(run)[-last:])
    model.load_state_dict(weights)
    sources, references = zip(*pairs_of(data, "test"), strict=True)
    start = perf_counter()
    hypotheses = translate(model, subwords, list(sources))
    facts |= {
        "decoding_seconds": round(perf_counter() - start, 1),
        "scores": score(hypotheses, references),
    }
    facts |= {"languages": read_corpus(data)["languages"], "beam": 1, "averaged": last}
    click.echo(json.dumps(facts, indent=1))
    if record:
        write_record("recurrent", facts, seed=0)


if __name__ == "__main__":
    main()
