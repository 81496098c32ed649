"""What the five commands are made of, in click's terms: errors, options and help.

``cli.py`` has the commands themselves, ``run_folders.py`` the folders that they read.
"""

import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from ..training import TrainingConfig
from ..transformer import TransformerConfig

# Errors in one line


class Failure(click.ClickException):
    """An error that the user can fix: one line on standard error, exit code 2."""

    exit_code = 2


class Commands(click.Group):
    """Commands in the order of use, whose errors a user can fix become a ``Failure``.

    A library raises an exception, and its traceback helps whoever reads the code. Who
    runs a command has mistyped a path or filled a disk. Errors of other classes keep
    their traceback. The line is not sharp: PyTorch raises RuntimeError for a full GPU
    and for a fault of ours.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands as they were defined, and not by name."""
        return list(self.commands)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; ends the process."""
        try:
            return super().main(*args, **extra)
        except (OSError, ValueError, RuntimeError, ArithmeticError) as error:
            # What a full disk did not take is flushed once more when Python ends, and
            # would fail again, with another message and exit code: drop the stream.
            try:
                sys.stdout.flush()
            except (OSError, AttributeError):
                sys.stdout = None
            failure = Failure(" ".join(str(error).split()))
            failure.show()
            sys.exit(failure.exit_code)


# Help. \b asks click to leave the lines below it as they are.

SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "show_default": True,
    "max_content_width": 100,
}
START = """\b
Example, from nothing to a scored translator:
  annotated-transformer prepare data
  annotated-transformer train data run --minutes 20
  annotated-transformer average run translator
  annotated-transformer evaluate data --model translator
  echo "Two dogs play." | annotated-transformer translate --model translator

\b
Exit codes:
  0    done
  1    aborted
  2    an error that you can fix: one line on standard error says how
  130  training was interrupted, and saved"""
EXAMPLES = {
    "prepare": """\b
    Examples:
      annotated-transformer prepare data
      annotated-transformer prepare data --source en --target fr --vocabulary-size 10000
      annotated-transformer prepare data --corpus files \\
          --train train.en.gz train.de.gz --validation dev.en dev.de \\
          --test test.en test.de --vocabulary-size 37000""",
    "train": """\b
    Examples:
      annotated-transformer train data run --minutes 20
      annotated-transformer train data run --config small --dropout 0.2 --device cuda
      annotated-transformer train data run --resume
    \b
    The paper's base model, on eight GPUs of one machine:
      torchrun --nproc-per-node 8 -m annotated_transformer train data run \\
          --config base --max-tokens 3125 --stream --save-every 1500""",
    "average": """\b
    Example:
      annotated-transformer average run translator --last 8""",
    "translate": """\b
    Examples:
      echo "A man sleeps." | annotated-transformer translate
      annotated-transformer translate --model translator \\
          --attention attention.json < text.en > text.de""",
    "evaluate": """\b
    Example:
      annotated-transformer evaluate data --model translator > record.json""",
}


class SectionedCommand(click.Command):
    """A command whose help shows the options of each ``section`` under a heading."""

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the options, those without a section first."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option):
                section = getattr(option, "section", "Options")
                sections.setdefault(section, []).append(option.get_help_record(ctx))
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)


# An option for every field of both configurations


PRESETS = {
    "tiny": (
        TransformerConfig.tiny,
        TrainingConfig(6000, 2048, warmup_steps=800, save_every=250),
    ),
    "small": (
        partial(
            TransformerConfig,
            **{"num_layers": 4, "d_model": 256, "d_ff": 1024, "num_heads": 4},
            max_length=256,
        ),
        TrainingConfig(20_000, 4096, warmup_steps=2000, save_every=500),
    ),
    "base": (TransformerConfig.base, TrainingConfig()),
    "big": (TransformerConfig.big, TrainingConfig(300_000)),
}
"""For each name, what makes a model of a vocabulary's size, and how it is trained."""

# A field that is missing here stops the program when it is imported.
FIELD_HELP = {
    "num_layers": "Layers of the encoder, and of the decoder (the paper's N).",
    "d_model": "Width of the model: numbers that stand for one token.",
    "d_ff": "Width of the feed-forward network's hidden layer.",
    "num_heads": "Heads of each attention layer (the paper's h).",
    "d_k": "Width of a head's queries and keys; else d_model / num_heads.",
    "d_v": "Width of a head's values; else d_model / num_heads.",
    "dropout": "Probability that dropout sets a number to zero.",
    "norm": "Layer norm after each sum, as in the paper, or before each sublayer.",
    "positions": "Positions as sines of the paper, or learned.",
    "max_length": "Most tokens of a sentence; longer pairs are left out.",
    "steps": "Steps of the optimizer.",
    "max_tokens": "Most tokens of a worker's batch on each side, padding counted.",
    "accumulate": "Batches of one worker whose gradients make one step.",
    "warmup_steps": "Steps during which the learning rate rises (equation 3).",
    "factor": "Multiplies the learning rate of equation 3.",
    "smoothing": "Label smoothing: the share of probability spread over all tokens.",
    "clip_norm": "Largest gradient norm; longer gradients are clipped. Else none is.",
    "precision": (
        "bf16 computes matrix products in bfloat16; weights stay in 32 bits. auto "
        "takes it where this machine is faster so.  [default: auto]"
    ),
    "seed": "Of initialization, order of the batches, and dropout.",
    "save_every": "Steps from one checkpoint to the next; validation comes with it.",
    "keep": "Newest checkpoints to keep.",
    "log_every": "Steps from one line of the log to the next.",
}
OF_THE_VOCABULARY = ("vocabulary_size", "pad_id")
OF_LATER_MODELS = ("activation", "attention_bias", "norm_eps")


def preset_values(config: type, name: str) -> str:
    """What each preset has for a field of ``config``, for its help.

    One value where all agree; nothing where there is none.
    """
    values = {}
    for preset, (make_model, training) in PRESETS.items():
        chosen = training if config is TrainingConfig else make_model(8000)
        values[preset] = getattr(chosen, name)
    if len(set(values.values())) > 1:
        listed = ", ".join(f"{preset} {value}" for preset, value in values.items())
        return f" [{listed}]"
    return "" if None in values.values() else f" [default: {values['base']}]"


class FieldOption(click.Option):
    """The option of one field of a configuration, of the field's type."""

    def __init__(self, config: type, name: str) -> None:
        hint = get_type_hints(config)[name]
        if get_origin(hint) is Literal:
            auto = ["auto"] if name == "precision" else []  # decided by measuring
            kind: Any = click.Choice([*auto, *get_args(hint)])
        else:
            kind = next(k for k in (int, float) if k in (hint, *get_args(hint)))
        described = FIELD_HELP[name]
        if name != "precision":
            described += preset_values(config, name)
        super().__init__([f"--{name.replace('_', '-')}"], type=kind, help=described)
        self.section = "The model" if config is TransformerConfig else "Training"


def field_options(command: Callable) -> Callable:
    """Give a command the option of each field that a user may choose."""
    options = [
        FieldOption(config, field.name)
        for config in (TransformerConfig, TrainingConfig)
        for field in fields(config)
        if field.name not in OF_THE_VOCABULARY + OF_LATER_MODELS
    ]
    command.__click_params__ = options[::-1] + getattr(command, "__click_params__", [])
    return command


# Options that several commands share


def machine_options(command: Callable) -> Callable:
    """The options of each command that computes."""
    threads = click.option(
        "--threads", type=click.IntRange(1, 1024), help="CPU threads; else all cores."
    )
    device = click.option("--device", default="auto", help="auto, cpu, cuda or mps.")
    return device(threads(command))


def search_options(command: Callable) -> Callable:
    """The options of each command that searches."""
    for option in (
        click.option(
            "--alpha",
            type=click.FloatRange(0),
            default=0.6,
            help="Exponent of the length penalty.",
        ),
        click.option(
            "--beam",
            type=click.IntRange(1),
            default=4,
            help="Hypotheses kept at each step; 1 is greedy.",
        ),
        click.option(
            "--model",
            type=click.Path(path_type=Path),
            help="A folder that average wrote; else the book's own.",
        ),
    ):
        command = option(command)
    return machine_options(command)


TWO_FILES: dict[str, Any] = {
    "nargs": 2,
    "type": click.Path(path_type=Path),
    "metavar": "SOURCE TARGET",
}


class NewFile(click.Path):
    """A file to be written, in a folder that is there.

    Where it is not, that is said before the search begins and not an hour later.
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """The path; a usage error where it is a folder, or its folder is missing."""
        path = Path(super().convert(value, param, ctx))
        if not path.parent.is_dir():
            self.fail(
                f"{str(path.parent)!r} is not there: expected a folder to write "
                f"{path.name} into",
                param,
                ctx,
            )
        return path


NEW_FILE = NewFile(dir_okay=False, writable=True, path_type=Path)
