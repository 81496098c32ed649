"""Appendix A: the command line, from text to scores, and everything that can be wrong
on the way."""

import gzip
import json
import os
import pickle
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
import torch
from click.testing import CliRunner, Result
from sacrebleu import BLEU

import annotated_transformer
from annotated_transformer.subwords import Subwords
from annotated_transformer.support import cli
from annotated_transformer.support.checkpoints import digest_of, load_tensors
from annotated_transformer.support.cli import main
from annotated_transformer.support.cli_options import OF_LATER_MODELS, OF_THE_VOCABULARY
from annotated_transformer.support.corpora import miniature_corpus
from annotated_transformer.support.records import typed
from annotated_transformer.support.runs import SavedRun
from annotated_transformer.support.test_set import book_sentences
from annotated_transformer.support.translators import pieces_of
from annotated_transformer.training import TrainingConfig
from annotated_transformer.transformer import Transformer, TransformerConfig
from annotated_transformer.translator import PRETRAINED, Translator

COMMANDS = ["prepare", "train", "average", "translate", "evaluate"]
MODEL = [
    "--num-layers",
    1,
    "--d-model",
    16,
    "--d-ff",
    32,
    "--num-heads",
    2,
    "--max-length",
    64,
]
TINY = [
    *MODEL,
    "--max-tokens",
    512,
    "--save-every",
    1,
    "--log-every",
    1,
    "--device",
    "cpu",
]


def run(*words: object, text: str | bytes | None = None) -> Result:
    """Run a command inside this process; an error that would end in a traceback is
    raised here."""
    result = CliRunner().invoke(
        main,
        [str(word) for word in words],
        input=text,
        prog_name="annotated-transformer",
    )
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def done(*words: object, text: str | bytes | None = None) -> Result:
    """``run``, and the command must have come to its end."""
    result = run(*words, text=text)
    assert result.exit_code == 0, result.output
    return result


def refused(*words: object, says: str, text: str | bytes | None = None) -> None:
    """``run``, and the command must end with exit code 2, one line of error, and
    nothing on standard output."""
    result = run(*words, text=text)
    assert result.exit_code == 2 and result.stdout == "", result.output
    lines = result.stderr.splitlines()
    if words[0] == "train" and lines[0].startswith("precision "):
        lines.pop(0)  # what it chose before it met the error
    assert len(lines) == 1 and lines[0].startswith("Error: "), result.stderr
    assert says in lines[0], result.stderr


def process(*words: object) -> list[str]:
    """The words of the same command as a process of its own."""
    return [sys.executable, "-m", "annotated_transformer", *map(str, words)]


ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(Path(annotated_transformer.__file__).parents[1]),
    "TQDM_DISABLE": "1",
}


def write_parts(folder: Path, suffix: str = "") -> list[object]:
    """Write a small corpus into files; returns the options that name them."""
    corpus = miniature_corpus(200, 20)
    options: list[object] = ["--corpus", "files"]
    for part in ("train", "validation", "test"):
        options.append(f"--{part}")
        for language, side in zip(
            ("en", "de"), zip(*getattr(corpus, part), strict=True), strict=True
        ):
            path, content = (
                folder / f"own-{part}.{language}{suffix}",
                "".join(f"{line}\n" for line in side).encode(),
            )
            path.write_bytes(gzip.compress(content) if suffix else content)
            options.append(path)
    return options


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder."""
    folder = tmp_path_factory.mktemp("corpus")
    done("prepare", folder / "data", *write_parts(folder), "--vocabulary-size", 360)
    return folder / "data"


@pytest.fixture(scope="module")
def finished_run(data: Path) -> Path:
    """A run of four steps with a checkpoint each, of which three are kept."""
    done("train", data, data.parent / "run", *TINY, "--steps", 4, "--keep", 3)
    return data.parent / "run"


@pytest.fixture(scope="module")
def translator(finished_run: Path) -> Path:
    """The folder of a translator that has learned nothing; so it writes whatever bytes
    there are."""
    done("average", finished_run, finished_run.parent / "translator", "--last", 2)
    return finished_run.parent / "translator"


@pytest.fixture
def broken(translator: Path, tmp_path: Path) -> Path:
    """A copy of the translator, to be damaged."""
    return shutil.copytree(translator, tmp_path / "broken")


# Help


@pytest.mark.slow
def test_python_m_shows_the_commands_in_the_order_of_use() -> None:
    """Fails when ``__main__`` does not reach the command line, and when click sorts the
    commands by name."""
    found = subprocess.run(
        process("--help"), capture_output=True, text=True, check=True, env=ENVIRONMENT
    ).stdout
    listed = [
        line.split()[0]
        for line in found.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    ]
    assert listed == COMMANDS and found.startswith("Usage: annotated-transformer ")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example_that_is_valid(command: str) -> None:
    """Fails when a command has no example, or its example has an option that the
    command lacks."""
    text = done(command, "--help").stdout.split("Example")[1]
    found = re.findall(
        rf"annotated[-_]transformer {command} ([^<>\n]*)", text.replace("\\\n", " ")
    )
    assert found and ("torchrun" in text) == (command == "train") == (len(found) > 3)
    for words in found:
        main.commands[command].make_context(command, words.split())  # raises UsageError
    assert all(
        option.help
        for option in main.commands[command].params
        if isinstance(option, click.Option)
    )


def test_every_field_of_both_configurations_is_an_option() -> None:
    """Fails when a field is added without option or help, and when the defaults shown
    are not the presets'."""
    text = " ".join(done("train", "--help").stdout.split())
    for config in (TransformerConfig, TrainingConfig):
        for field in fields(config):
            expected = field.name not in OF_THE_VOCABULARY + OF_LATER_MODELS
            assert (f"--{field.name.replace('_', '-')} " in text) == expected, (
                field.name
            )
    assert (
        "[tiny 128, small 256, base 512, big 1024]" in text and "[default: 0.1]" in text
    )


def test_every_option_reaches_its_field(data: Path, tmp_path: Path) -> None:
    """Fails when an option is accepted and dropped. No default among the values."""
    values = {
        "num_layers": 3,
        "d_model": 24,
        "d_ff": 20,
        "num_heads": 3,
        "d_k": 5,
        "d_v": 7,
        "dropout": 0.25,
    }
    values |= {
        "norm": "pre",
        "positions": "learned",
        "max_length": 40,
        "steps": 1,
        "max_tokens": 300,
        "accumulate": 2,
    }
    values |= {
        "warmup_steps": 9,
        "factor": 0.5,
        "smoothing": 0.2,
        "precision": "bf16",
        "seed": 5,
        "save_every": 7,
    }
    values |= {"keep": 2, "log_every": 3, "clip_norm": 2.5}
    words = [
        word
        for name, value in values.items()
        for word in (f"--{name.replace('_', '-')}", value)
    ]
    done("train", data, tmp_path / "run", *words, "--device", "cpu")
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    made = facts["model"] | facts["training"]
    assert {name: made[name] for name in values} == values
    assert made.keys() - values.keys() == {*OF_THE_VOCABULARY, *OF_LATER_MODELS}


# prepare


def test_prepare_takes_plain_and_compressed_files(data: Path, tmp_path: Path) -> None:
    """The same text, so the same vocabulary. Fails when ``.gz`` is read as text, and
    when --sample is dropped."""
    done(
        "prepare",
        tmp_path / "data",
        *write_parts(tmp_path, ".gz"),
        "--vocabulary-size",
        360,
    )
    assert (tmp_path / "data" / "subwords.model").read_bytes() == (
        data / "subwords.model"
    ).read_bytes()
    facts = json.loads((tmp_path / "data" / "corpus.json").read_text())
    assert facts["pairs"] == {"train": 200, "validation": 20, "test": 20} and facts[
        "languages"
    ] == ["en", "de"]
    done(
        "prepare",
        tmp_path / "less",
        *write_parts(tmp_path),
        "--vocabulary-size",
        320,
        "--sample",
        20,
    )
    assert (tmp_path / "less" / "subwords.model").read_bytes() != (
        data / "subwords.model"
    ).read_bytes()


def test_prepare_writes_the_miniature_corpus(tmp_path: Path) -> None:
    """Fails when the parts or the sides are exchanged."""
    done("prepare", tmp_path, "--corpus", "miniature", "--vocabulary-size", 400)
    corpus = miniature_corpus()
    assert (tmp_path / "test.de").read_text(encoding="utf-8").splitlines() == [
        german for _, german in corpus.test
    ]
    assert (tmp_path / "train.en").read_text(encoding="utf-8").splitlines() == [
        english for english, _ in corpus.train
    ]


def test_prepare_refuses_what_makes_no_corpus(tmp_path: Path) -> None:
    """Fails when a traceback comes out, or an option is dropped without a word."""
    files = write_parts(tmp_path)
    train = files.index("--train")
    for wrong in (
        files[:-3],
        files[2:],
    ):  # one part missing; files without --corpus files
        result = run("prepare", tmp_path / "data", *wrong)
        assert result.exit_code == 2 and "--corpus files goes with" in result.stderr
    refused(
        "prepare",
        tmp_path / "data",
        *files,
        "--vocabulary-size",
        10,
        says="vocabulary_size 10",
    )
    refused(
        "prepare",
        tmp_path / "d",
        "--corpus",
        "miniature",
        "--target",
        "fr",
        says="not en to fr",
    )
    refused("prepare", tmp_path / "d", "--source", "de", says="both 'de'")
    refused("prepare", tmp_path / "d", *files, "--source", "de", says="both 'de'")
    refused(
        "prepare",
        tmp_path / "d",
        "--corpus",
        "miniature",
        "--vocabulary-size",
        9000,
        says="expected at most",
    )
    assert not (tmp_path / "d").exists()
    refused("prepare", tmp_path / "d", "--source", "xx", says="'xx' is not in Multi30k")
    files[train + 1].write_text("one line\n")
    refused("prepare", tmp_path / "data", *files, says="has 1 lines and")
    for path in files[train + 1 : train + 3]:
        path.write_text("")
    refused(
        "prepare",
        tmp_path / "data",
        *files,
        says="--train holds no pair with text on both sides",
    )
    for path in files[train + 1 : train + 3]:
        path.write_text("\n \n")
    refused(
        "prepare",
        tmp_path / "data",
        *files,
        says="--train holds no pair with text on both sides",
    )
    files[train + 2].unlink()
    refused("prepare", tmp_path / "data", *files, says="own-train.de is not there")
    assert not (tmp_path / "data" / "corpus.json").exists()


def test_prepare_never_mixes_two_corpora(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a refused command has overwritten the text of the corpus before, or
    when an interrupted one leaves a folder that looks whole."""
    done("prepare", tmp_path, "--corpus", "miniature")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    refused(
        "prepare",
        tmp_path,
        "--corpus",
        "miniature",
        "--vocabulary-size",
        9000,
        says="expected at most",
    )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    def interrupted(contents: dict) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "write_together", interrupted)
    assert run("prepare", tmp_path, "--corpus", "miniature").exit_code == 1
    refused(
        "train",
        tmp_path,
        tmp_path / "run",
        *TINY,
        says="run annotated-transformer prepare first",
    )


def test_prepare_without_the_corpus_says_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a corpus that cannot be had ends in a traceback."""
    monkeypatch.setenv("ANNOTATED_TRANSFORMER_DATA", str(tmp_path / "nowhere"))
    refused(
        "prepare", tmp_path / "data", says="ANNOTATED_TRANSFORMER_DATA names the folder"
    )


# train


def test_a_run_notes_where_it_comes_from(finished_run: Path) -> None:
    """Fails when a part of the provenance is lost on its way into the checkpoints."""
    facts = json.loads((finished_run / "step-00000004.json").read_text())
    wanted = {
        "command",
        "seed",
        "commit",
        "versions",
        "hardware",
        "date",
        "languages",
        "workers",
        "parameters",
        "step",
    }
    assert (
        wanted <= facts.keys()
        and facts["step"] == 4
        and facts["workers"] == 1
        and facts["config"] == "tiny"
    )
    assert (
        facts["prepare_command"] == facts["command"] == typed()
        and facts["hardware"]["cores"] >= 1
    )
    assert len(list(finished_run.glob("step-*.safetensors"))) == 3  # --keep


def test_pairs_that_are_left_out_are_counted(data: Path, tmp_path: Path) -> None:
    """Fails when text disappears without a word, and when a run that uses all of it
    complains."""
    said = done(
        "train", data, tmp_path / "short", *TINY, "--steps", 1, "--max-length", 30
    ).stderr
    left = re.search(
        r"(\d+) of 200 train pairs are left out: .* more than 30 tokens", said
    )
    assert left and 0 < int(left[1]) < 200
    assert (
        "left out"
        not in done("train", data, tmp_path / "all", *TINY, "--steps", 1).stderr
    )


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    """A real process gets a real SIGINT, and the command that it names goes on. Fails
    when the signal ends the process before the checkpoint, when the exit code is that
    of success, and when the command starts anew."""
    words = [
        "train",
        data,
        tmp_path / "a run",
        *TINY,
        "--steps",
        1_000_000,
        "--save-every",
        1_000_000,
        "--threads",
        1,
    ]
    running = subprocess.Popen(
        process(*words), stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    log = tmp_path / "a run" / "log.jsonl"
    try:
        while running.poll() is None and not (
            log.exists() and log.stat().st_size
        ):  # it is there, empty, before step 1
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=120)[1]
    finally:
        running.kill()
    assert running.returncode == 130 and "Traceback" not in said
    expected = (
        f"annotated-transformer train {data} '{tmp_path / 'a run'}' --resume --device"
        " cpu --threads 1"
    )
    assert said.strip().endswith(f"to go on: {expected}")
    (saved,) = (tmp_path / "a run").glob("step-*.json")
    step = json.loads(saved.read_text())["step"]
    assert f"after step {step:,};" in said
    done(
        "train",
        data,
        tmp_path / "a run",
        "--resume",
        "--steps",
        step + 2,
        "--device",
        "cpu",
    )
    steps = [
        json.loads(line)["step"]
        for line in log.read_text().splitlines()
        if "loss" in line
    ]
    assert steps == list(range(1, step + 3))
    facts = json.loads((tmp_path / "a run" / f"step-{step + 2:08}.json").read_text())
    assert facts["training"]["steps"] == step + 2 and len(facts["resumed"]) == 1


@pytest.mark.slow
def test_several_workers_are_interrupted_and_go_on(data: Path, tmp_path: Path) -> None:
    """The command under ``torchrun``, with Ctrl-C. Fails when a signal to all of them
    loses the run, when the way on is another than that of the run, and when two workers
    that went on have other weights than two without a break."""
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
    ]
    together = {
        "stderr": subprocess.PIPE,
        "text": True,
        "env": ENVIRONMENT | {"OMP_NUM_THREADS": "1"},
    }

    def workers(*words: object) -> list[str]:
        return [
            *torchrun,
            "annotated_transformer",
            "train",
            str(data),
            *map(str, words),
        ]

    long = ["--steps", 1_000_000, "--save-every", 1_000_000, "--threads", 1]
    running = subprocess.Popen(
        workers(tmp_path / "run", *TINY, *long), start_new_session=True, **together
    )
    log = tmp_path / "run" / "log.jsonl"
    try:
        while running.poll() is None and not (log.exists() and log.stat().st_size):
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        said = running.communicate(timeout=120)[1]
    finally:
        running.kill()
    assert running.returncode != 0
    assert (
        f"to go on: torchrun --nproc-per-node 2 -m annotated_transformer train {data}"
        f" {tmp_path / 'run'}" in said
    )
    (saved,) = (tmp_path / "run").glob("step-*.json")
    steps = json.loads(saved.read_text())["step"] + 2
    for words in (
        [tmp_path / "run", "--resume"],
        [tmp_path / "straight", *TINY, *long],
    ):
        words += ["--steps", steps, "--device", "cpu"]
        ended = subprocess.run(workers(*words), check=False, **together)
        assert ended.returncode == 0, ended.stderr
    found = [
        load_tensors(tmp_path / name / f"step-{steps:08}")
        for name in ("run", "straight")
    ]
    assert found[0][1]["workers"] == found[1][1]["workers"] == 2
    assert all(
        torch.equal(tensor, found[1][0][name]) for name, tensor in found[0][0].items()
    )


def test_ctrl_c_while_pytorch_is_loading_leaves_no_traceback(tmp_path: Path) -> None:
    """A module in PyTorch's place stands for the moment. Fails when the command line is
    imported unguarded."""
    (tmp_path / "torch.py").write_text("raise KeyboardInterrupt")
    environment = ENVIRONMENT | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), ENVIRONMENT["PYTHONPATH"]])
    }
    ended = subprocess.run(
        process("--help"), capture_output=True, text=True, env=environment, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "Aborted!\n")


def test_resuming_comes_to_the_same_weights(data: Path, tmp_path: Path) -> None:
    """With dropout, by way of --minutes and --resume. Fails when seeds, batches or the
    optimizer start anew."""
    straight, broken_off = tmp_path / "straight", tmp_path / "broken-off"
    for folder, words in ((straight, []), (broken_off, ["--minutes", 1e-9])):
        done("train", data, folder, *TINY, "--steps", 3, "--stream", *words)
    assert not (broken_off / "step-00000003.json").exists()
    said = done("train", data, broken_off, "--resume", "--device", "cpu").stderr
    assert f"annotated-transformer average {broken_off} translator" in said
    weights = [
        (folder / "step-00000003.safetensors").read_bytes()
        for folder in (straight, broken_off)
    ]
    assert weights[0] == weights[1]


def test_training_keeps_its_memory(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when the process that trains gives back what it frees."""
    kept: list[bool] = []
    monkeypatch.setattr(cli, "keep_memory", lambda: kept.append(True))
    done("train", data, tmp_path / "run", *TINY, "--steps", 1)
    assert kept == [True]


def test_the_end_of_minutes_is_no_error(data: Path, tmp_path: Path) -> None:
    """Fails when a run that ends as planned has the exit code of an interrupted one, or
    does not say how to go on."""
    result = done(
        "train", data, tmp_path / "run", *TINY, "--steps", 1000, "--minutes", 1e-9
    )
    assert (
        "stopped and saved after step 1;" in result.stderr
        and "--resume" in result.stderr
    )


@pytest.mark.parametrize(
    "words, says",
    [
        (["--dropout", 0.5], "dropout is 0.1"),
        (["--seed", 3], "seed is 0"),
        (["--config", "base"], "config is tiny"),
        (["--stream"], "stream is False"),
        (["--num-layers", 2], "num_layers is 1"),
    ],
)
def test_resume_refuses_other_choices(
    finished_run: Path, data: Path, words: list, says: str
) -> None:
    """Fails when an option that contradicts the run is dropped, or believed."""
    refused("train", data, finished_run, "--resume", *words, says=says)


def test_resume_takes_the_runs_own_choices(finished_run: Path, data: Path) -> None:
    """Fails when options that agree with the run are refused."""
    done(
        "train",
        data,
        finished_run,
        "--resume",
        "--seed",
        0,
        "--num-layers",
        1,
        "--config",
        "tiny",
        "--device",
        "cpu",
    )


def test_resume_with_another_number_of_workers_is_refused(
    data: Path, finished_run: Path, tmp_path: Path
) -> None:
    """Fails when two workers go on with the run of one, so that batches are left out or
    seen twice."""
    folder = shutil.copytree(finished_run, tmp_path / "run")
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(facts | {"workers": 2}))
    refused("train", data, folder, "--resume", says="workers is 2")


def test_train_refuses_what_makes_no_run(
    data: Path, finished_run: Path, tmp_path: Path
) -> None:
    """Fails when a traceback comes out."""
    refused("train", data, finished_run, says="add --resume")
    refused(
        "train",
        tmp_path,
        tmp_path / "run",
        says="run annotated-transformer prepare first",
    )
    refused(
        "train",
        data,
        tmp_path / "run",
        "--resume",
        says="run annotated-transformer train first",
    )
    refused("train", data, tmp_path / "run", "--d-model", 15, says="15")
    refused(
        "train",
        data,
        tmp_path / "run",
        "--device",
        "tpu",
        says="'tpu' is not available",
    )
    refused(
        "train",
        data,
        tmp_path / "run",
        *MODEL,
        "--max-length",
        3,
        says="raise --max-length and --max-tokens",
    )
    refused(
        "train",
        data,
        tmp_path / "run",
        *MODEL,
        "--max-tokens",
        3,
        "--stream",
        says="fewer than 3 tokens",
    )
    refused(
        "train",
        data,
        tmp_path / "run",
        *TINY,
        "--minutes",
        "nan",
        says="--minutes is nan",
    )
    refused(
        "train", data, tmp_path / "run", *TINY, "--seed", 2**64, says=f"seed is {2**64}"
    )
    assert run("train", data, tmp_path / "run", "--config", "huge").exit_code == 2
    assert run("train", data, tmp_path / "run", "--warmup", "many").exit_code == 2


@pytest.mark.parametrize(
    "content, says",
    [
        ("{", "cannot be read"),
        ("[]", "has no"),
        ("{}", "has no"),
        ('{"model": {"x": 1}, "training": {}}', "no run ("),
    ],
)
def test_a_damaged_run_is_refused(
    data: Path, finished_run: Path, tmp_path: Path, content: str, says: str
) -> None:
    """Fails when a file that somebody edited ends in a traceback."""
    folder = shutil.copytree(finished_run, tmp_path / "run")
    (folder / "run.json").write_text(content)
    refused("train", data, folder, "--resume", says=says)


@pytest.mark.parametrize(
    "damage",
    [
        {"files": {}},
        {"files": []},
        {"files": 7},
        {"languages": None},
        {"languages": ["en"]},
        {"languages": ["en", 7]},
    ],
)
def test_a_damaged_corpus_is_refused(data: Path, tmp_path: Path, damage: dict) -> None:
    """Fails when a file that somebody edited ends in a traceback."""
    folder = shutil.copytree(data, tmp_path / "data")
    facts = json.loads((folder / "corpus.json").read_text())
    (folder / "corpus.json").write_text(json.dumps(facts | damage))
    refused(
        "train",
        folder,
        tmp_path / "run",
        *TINY,
        says="corpus.json is damaged: expected two names",
    )


def test_the_data_must_be_that_of_the_run(
    data: Path, finished_run: Path, tmp_path: Path
) -> None:
    """Fails when a run from English goes on with text from German: one vocabulary
    serves both."""
    folder = shutil.copytree(data, tmp_path / "data")
    facts = json.loads((folder / "corpus.json").read_text())
    (folder / "corpus.json").write_text(json.dumps(facts | {"languages": ["de", "en"]}))
    refused(
        "train", folder, finished_run, "--resume", says="has de to en, not ['en', 'de']"
    )
    (folder / "subwords.model").unlink()
    refused(
        "train", folder, tmp_path / "run", *TINY, says="subwords.model is not there"
    )


@pytest.mark.parametrize(
    "words",
    [["--factor", 1000, "--warmup-steps", 1], ["--factor", 1e30, "--warmup-steps", 1]],
)
def test_a_run_that_comes_to_grief_says_so(
    data: Path, tmp_path: Path, words: list
) -> None:
    """Fails when an overflow ends in a traceback, when NaN goes into the log, and when
    a spoiled checkpoint stays."""
    refused(
        "train",
        data,
        tmp_path / "run",
        *TINY,
        "--steps",
        30,
        *words,
        says="lower factor, or raise warmup_steps",
    )
    for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_a_loss_that_is_no_number_leaves_its_batch(data: Path, tmp_path: Path) -> None:
    """Fails when the run stops without what caused it, or when the error does not say
    where it lies."""
    words = [
        *TINY,
        "--steps",
        30,
        "--factor",
        1e30,
        "--warmup-steps",
        1,
        "--save-every",
        1000,
    ]
    refused("train", data, tmp_path / "run", *words, says="the batch was saved as")
    tensors, facts = load_tensors(tmp_path / "run" / "bad-batch-0")
    assert {
        "0.source",
        "0.target_output",
        "model.embedding.weight",
    } <= tensors.keys() and facts["step"] >= 1


@pytest.mark.parametrize("name", ["save", "log"])
def test_a_disk_that_fills_up_while_training(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Fails with a traceback, when the message names no way on, and when what is whole
    does not serve to go on."""
    before = getattr(SavedRun, name)

    def write(run: SavedRun, **entry: float) -> None:
        if run.step == 3:
            raise OSError(28, "No space left on device", str(run.folder))
        before(run, **entry)

    with monkeypatch.context() as patch:
        patch.setattr(SavedRun, name, write)
        says = "checkpoints written before are whole: fix that, and go on with --resume"
        refused("train", data, tmp_path / "run", *TINY, "--steps", 4, says=says)
    assert (
        sorted(path.name for path in (tmp_path / "run").glob("step-*.json"))[-1]
        == "step-00000002.json"
    )
    done("train", data, tmp_path / "run", "--resume", "--device", "cpu")
    steps = [
        json.loads(line)["step"]
        for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    ]
    assert (
        sorted(set(steps)) == [1, 2, 3, 4] and len(steps) == 8
    )  # a loss and a validation each


def test_the_way_on_is_that_of_the_workers(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when the command to go on starts another number of processes than the run
    has."""
    go_on = "-m annotated_transformer train data run --resume --threads 1"
    said = cli.way_on(Path("data"), Path("run"), "auto", 1, 2)
    assert said == f"torchrun --nproc-per-node 2 {go_on}"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert cli.way_on(Path("data"), Path("run"), "auto", 1, 2) == said
    assert (
        cli.way_on(Path("data"), Path("run"), "auto", 1, 6)
        == f"torchrun --nnodes 3 --nproc-per-node 2 {go_on}"
    )


def test_a_damaged_checkpoint_is_refused(
    data: Path, finished_run: Path, tmp_path: Path
) -> None:
    """Fails when a flipped bit is trained on."""
    folder = shutil.copytree(finished_run, tmp_path / "run")
    path = folder / "step-00000004.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    refused("train", data, folder, "--resume", "--device", "cpu", says="is damaged")
    refused("average", folder, tmp_path / "translator", "--last", 2, says="is damaged")


def test_the_vocabulary_must_be_that_of_the_run(
    data: Path, finished_run: Path, translator: Path, tmp_path
) -> None:
    """Fails when a run goes on, or a translator starts, with token ids that mean other
    words."""
    done("prepare", tmp_path / "data", *write_parts(tmp_path), "--vocabulary-size", 350)
    refused(
        "train", tmp_path / "data", finished_run, "--resume", says="the vocabulary of"
    )
    broken = shutil.copytree(translator, tmp_path / "broken")
    shutil.copy(tmp_path / "data" / "subwords.model", broken)
    refused(
        "translate",
        "--model",
        broken,
        text="A dog.\n",
        says="is not the one that its model was trained with",
    )
    other = shutil.copytree(finished_run, tmp_path / "run")
    shutil.copy(tmp_path / "data" / "subwords.model", other)
    refused(
        "average",
        other,
        tmp_path / "out",
        "--last",
        2,
        says="the vocabulary has 350 tokens, the model 360",
    )


def test_a_run_starts_from_the_weights_of_a_translator(
    translator: Path, tmp_path: Path
) -> None:
    """Fails when layers or shared pieces are not taken over, when pieces that only the
    new vocabulary has take a stranger's embedding, and when a resumed run asks for the
    folder again."""
    parent = shutil.copytree(translator, tmp_path / "parent")
    options = write_parts(tmp_path)
    done("prepare", tmp_path / "data", *options, "--vocabulary-size", 380)
    words = ["train", tmp_path / "data", tmp_path / "run", *TINY]
    done(*words, "--start", parent, "--steps", 1, "--factor", 1e-9)
    tensors, facts = load_tensors(tmp_path / "run" / "step-00000001")
    old, known = Translator.load(parent), Subwords.load(parent / "subwords.model")
    subwords = Subwords.load(tmp_path / "data" / "subwords.model")
    pieces, new = pieces_of(subwords), tensors["model.embedding.weight"]
    shared = [i for i, piece in enumerate(pieces) if piece in pieces_of(known)]
    assert facts["start"]["shared_pieces"] == len(shared) < len(pieces)
    for i in shared:
        there = pieces_of(known).index(pieces[i])
        assert torch.allclose(new[i], old.model.embedding.weight[there], atol=1e-5)
    torch.manual_seed(0)
    fresh = Transformer(TransformerConfig(**facts["model"])).embedding.weight
    others = [i for i in range(len(pieces)) if i not in shared]
    assert torch.allclose(new[others], fresh[others], atol=1e-5)
    for name, weight in old.model.state_dict().items():
        if name != "embedding.weight":
            assert torch.allclose(tensors[f"model.{name}"], weight, atol=1e-5), name
    shutil.rmtree(parent)
    done("train", tmp_path / "data", tmp_path / "run", "--resume", "--steps", 2)


def test_weights_of_another_shape_are_refused(
    translator: Path, data: Path, tmp_path: Path
) -> None:
    """Fails when the first error is one of tensors, or comes after a folder is made."""
    words = ["train", data, tmp_path / "run", *TINY, "--start", translator]
    refused(*words, "--d-ff", 48, "--steps", 1, says="d_ff is 48 in this run and 32 in")
    refused(*words, "--resume", says="--start begins a run, --resume goes on with it")
    assert not (tmp_path / "run").exists()


# average


def test_average_refuses_too_few_checkpoints(
    finished_run: Path, tmp_path: Path
) -> None:
    """Fails when fewer checkpoints than asked for are averaged without a word."""
    refused(
        "average",
        finished_run,
        tmp_path / "translator",
        says="holds 3 checkpoints, not 5",
    )
    refused("average", tmp_path, tmp_path / "translator", says="holds 0 checkpoints")
    refused(
        "average",
        tmp_path / "nowhere",
        tmp_path / "translator",
        says="nowhere is not there",
    )


def test_average_passes_over_a_broken_line_of_the_log(
    finished_run: Path, tmp_path: Path
) -> None:
    """As a full disk leaves it. Fails when it stops the command, or hides the lines
    before it."""
    folder = shutil.copytree(finished_run, tmp_path / "run")
    with (folder / "log.jsonl").open("a") as log:
        log.write('{"validation_perplexity": 1.0}\n{"step": 5, "validation_perpl')
    done("average", folder, tmp_path / "translator", "--last", 1)
    history = Translator.load(tmp_path / "translator").facts["history"]
    assert [entry["step"] for entry in history] == [1, 2, 3, 4]


def test_a_failed_average_leaves_the_translator_that_was_there(
    finished_run: Path,
    translator: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever of the three files finds the disk full. Fails when they are written one
    after another."""
    folder = shutil.copytree(translator, tmp_path / "translator")
    before, write_bytes = Translator.load(folder).facts["averaged"], Path.write_bytes
    for name in ("model.safetensors", "model.json", "subwords.model"):

        def full(path: Path, content: bytes, name: str = name) -> int:
            if path.name.startswith(name):
                raise OSError(28, "No space left on device")
            return write_bytes(path, content)

        monkeypatch.setattr(Path, "write_bytes", full)
        refused(
            "average",
            finished_run,
            folder,
            "--last",
            1,
            says=f"No space left on device: '{folder / name}'",
        )
        monkeypatch.setattr(Path, "write_bytes", write_bytes)
        assert Translator.load(folder).facts["averaged"] == before
    done("average", finished_run, folder, "--last", 1)
    assert Translator.load(folder).facts["averaged"] != before


def test_half_precision_refuses_what_it_cannot_hold(
    translator: Path, tmp_path: Path
) -> None:
    """Fails when a large weight becomes infinite without a word."""
    loaded = Translator.load(translator)
    with torch.no_grad():
        loaded.model.embedding.weight[5, 3] = 70_000.0
    with pytest.raises(
        ValueError, match=r"embedding\.weight has numbers .* too large for half"
    ):
        loaded.save(tmp_path / "half", half=True)
    assert not (tmp_path / "half").exists()
    loaded.save(tmp_path / "full")


def test_half_precision_takes_half_the_room(
    finished_run: Path, translator: Path, tmp_path: Path
) -> None:
    """Fails when --half is dropped, and when the averaged weights are not the mean of
    the two last checkpoints."""
    done("average", finished_run, tmp_path / "half", "--last", 2, "--half")
    sizes = [
        (folder / "model.safetensors").stat().st_size
        for folder in (translator, tmp_path / "half")
    ]
    assert sizes[1] < 0.7 * sizes[0]
    full, half = (Translator.load(folder) for folder in (translator, tmp_path / "half"))
    assert full.facts["averaged"] == ["step-00000003", "step-00000004"]
    for ours, theirs in zip(
        half.model.parameters(), full.model.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


# translate


LINES = [
    b"A dog sees a cat.",
    b"",
    b"   ",
    b"The cat.\r",
    b"\x00",
    b"A \x00 dog",
    b"A\x0bdog\x0c.",
    "A\u2028dog\u2029 \u0085.".encode(),
    b"\x1b[31mred\x1b[0m",
    b"\xff\xfe broken \xc3",
    "\ufffd already".encode(),
    "\U0001f600 e\u0301 \u202e".encode(),
    b"\rA\rdog\r",
    b"The dog " * 5000,  # far more than 10,000 tokens
    b"The end, without a line feed",
]


def test_one_line_out_for_each_line_in(translator: Path) -> None:
    """The model has learned nothing, so it spells arbitrary bytes. Fails when any line
    is lost, added or moved: each must come out as it does alone."""
    result = done(
        "translate", "--model", translator, "--beam", 2, text=b"\n".join(LINES)
    )
    out = result.stdout_bytes.decode().split("\n")
    assert out.pop() == "" and len(out) == len(LINES)
    assert (
        result.stdout_bytes.decode().splitlines() == out
    )  # nor for a reader that splits at other characters
    assert out[1] == out[2] == "" and all(out[i] for i in (0, 3, 5, 6, 7, 14))
    alone = done(
        "translate", "--model", translator, "--beam", 2, text=LINES[14]
    ).stdout_bytes.decode()
    assert alone == out[14] + "\n"
    notes = result.stderr.splitlines()
    assert (
        len(notes) == 2
        and notes[0].startswith("line 10: byte 0xff")
        and notes[1].startswith("line 14: cut from")
    )


def test_crlf_and_a_byte_order_mark_change_nothing(translator: Path) -> None:
    """Fails when the carriage return or the mark becomes a token."""
    plain = done(
        "translate", "--model", translator, text=b"A dog.\nThe cat.\n"
    ).stdout_bytes
    assert (
        done(
            "translate",
            "--model",
            translator,
            text=b"\xef\xbb\xbfA dog.\r\nThe cat.\r\n",
        ).stdout_bytes
        == plain
    )


def test_no_line_in_no_line_out(translator: Path) -> None:
    """Fails when empty input is an error, or gives an empty line."""
    result = done("translate", "--model", translator, text=b"")
    assert result.stdout_bytes == b"" and result.stderr == ""


@pytest.mark.parametrize(
    "lines", [[], ["A dog."], ["", "A dog sees a cat.", "", "The end"]]
)
def test_the_attention_file_is_json(
    translator: Path, tmp_path: Path, lines: list[str]
) -> None:
    """Fails when no line, an empty line or a second one breaks the file, and when a row
    does not sum to one."""
    path, text = tmp_path / "attention.json", "".join(f"{line}\n" for line in lines)
    out = done(
        "translate", "--model", translator, "--attention", path, text=text
    ).stdout
    entries = json.loads(path.read_text(encoding="utf-8"))
    assert [entry["translation"] for entry in entries] == out.split("\n")[:-1] and len(
        entries
    ) == len(lines)
    for line, entry in zip(lines, entries, strict=True):
        assert len(entry["source"]) > 1 if line else len(entry["source"]) <= 1
        assert len(entry["weights"]) == 3  # the encoder's, and two of the decoder's
        for weights in map(torch.tensor, entry["weights"].values()):
            torch.testing.assert_close(
                weights.sum(dim=-1), torch.ones(weights.shape[:-1]), atol=0.01, rtol=0
            )


def test_the_attention_of_a_translation_that_was_cut_off(
    translator: Path, tmp_path: Path
) -> None:
    """The model has learned nothing, so it writes to its limit. Fails when the decoder
    reads one word too many."""
    path = tmp_path / "attention.json"
    done(
        "translate",
        "--model",
        translator,
        "--attention",
        path,
        "--beam",
        1,
        text="The dog " * 100,
    )
    (entry,) = json.loads(path.read_text(encoding="utf-8"))
    assert len(entry["source"]) == len(entry["target"]) == 64


class Lines:
    """Standard input that counts the lines taken from it."""

    def __init__(self, count: int) -> None:
        self.count, self.taken = count, 0

    def isatty(self) -> bool:
        return False

    def __iter__(self):
        while self.taken < self.count:
            self.taken += 1
            yield b"A dog.\n" if self.taken % 1000 == 1 else b"\n"


def test_memory_does_not_grow_with_the_lines(
    translator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when more than the buffer is read ahead, or translations are kept until the
    end."""
    stdin, written = Lines(5500), []

    def echo(text: bytes, err: bool = False) -> None:
        written.append(text)
        assert stdin.taken - len(written) < 1000

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stdin))
    monkeypatch.setattr(cli.click, "echo", echo)
    cli.translate.callback(
        attention=None, model=translator, beam=1, alpha=0.6, device="cpu", threads=None
    )
    assert len(written) == stdin.taken == 5500


@pytest.mark.slow
def test_a_terminal_gets_its_answer_at_once(translator: Path) -> None:
    """A pseudo-terminal types one line and waits. Fails when the answer comes only
    after a whole buffer: then the line never comes, and the process is still silent
    when it is asked to end."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        process("translate", "--model", translator),
        stdin=theirs,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    os.close(theirs)
    watchdog = subprocess.Popen(
        ["sh", "-c", f"sleep 120; kill {running.pid}"], start_new_session=True
    )
    try:
        os.write(ours, b"A dog.\n")
        first = running.stdout.readline()
        assert first.endswith(b"\n") and running.poll() is None
        os.write(ours, b"\x04")  # the end of the input
        assert running.wait(timeout=60) == 0
    finally:
        os.killpg(watchdog.pid, signal.SIGKILL)
        watchdog.wait()
        running.kill()
        running.communicate()
        os.close(ours)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["translate"], ["evaluate", "DATA"]])
def test_a_full_disk_behind_standard_output(
    translator: Path, data: Path, words: list[str]
) -> None:
    """Fails when Python reports the same error once more as it ends, with another exit
    code."""
    words = [data if word == "DATA" else word for word in words]
    with open("/dev/full", "wb") as full:
        command = process(*words, "--model", translator)
        found = subprocess.run(
            command,
            input=b"A dog.\n",
            stdout=full,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        )
    assert found.returncode == 2
    assert (
        found.stderr.startswith(b"Error: ")
        and found.stderr.count(b"\n") == 1
        and b"No space left" in found.stderr
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_under_the_attention_file(translator: Path) -> None:
    """Fails when the error that comes as the file is closed ends in a traceback."""
    result = run(
        "translate", "--model", translator, "--attention", "/dev/full", text="A dog.\n"
    )
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "No space left on device: '/dev/full'" in result.stderr


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, OSError(28, "No space left on device")]
)
def test_an_interrupted_attention_file_is_the_old_one(
    translator: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    """Fails when half a list stays, or the file of an earlier run is emptied at the
    start."""
    path, of_first = tmp_path / "attention.json", cli.attention_of
    path.write_text("old")
    answers = iter([of_first])

    def only_once(*arguments: object) -> dict:
        for answer in answers:
            return answer(*arguments)
        raise error

    monkeypatch.setattr(cli, "attention_of", only_once)
    result = run(
        "translate",
        "--model",
        translator,
        "--attention",
        path,
        text="A dog.\nThe cat.\n",
    )
    assert result.exit_code == (1 if error is KeyboardInterrupt else 2)
    assert [file.name for file in tmp_path.iterdir()] == [
        "attention.json"
    ] and path.read_text() == "old"


@pytest.mark.slow
@pytest.mark.parametrize(
    "closed, words", [(0, ["translate"]), (1, ["translate"]), (1, ["evaluate", "DATA"])]
)
def test_closed_streams_are_named(
    translator: Path, data: Path, closed: int, words: list[str]
) -> None:
    """As after ``<&-`` and ``>&-`` in a shell. Fails with a traceback, or when all
    output is lost without a word."""
    command = process(
        *(data if word == "DATA" else word for word in words), "--model", translator
    )
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}{"<>"[closed]}&-', "sh", *command],
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert (
        ended.returncode == 2
        and ended.stderr.startswith(b"Error: standard ")
        and b" is closed" in ended.stderr
    )


def test_a_file_beside_the_output_needs_its_folder(
    translator: Path, data: Path, tmp_path: Path
) -> None:
    """And is refused before the search. Fails when it is found out after it, and when a
    pipe gives way to a file."""
    for wrong, says in (
        (tmp_path / "no" / "file", "is not there: expected a folder"),
        (tmp_path, "is a directory"),
    ):
        for words in (
            ["translate", "--attention", wrong],
            ["evaluate", data, "--output", wrong],
        ):
            result = run(*words, "--model", tmp_path / "none", text="A dog.\n")
            assert result.exit_code == 2 and says in result.stderr, result.stderr
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    done("translate", "--model", translator, "--attention", link, text="A dog.\n")
    assert link.is_symlink() and len(json.loads(file.read_text())) == 1


def test_a_run_is_no_translator(finished_run: Path) -> None:
    """Fails when somebody who left out ``average`` is told of a missing file alone."""
    refused(
        "translate",
        "--model",
        finished_run,
        text="A dog.\n",
        says=f"average {finished_run} translator",
    )


def test_a_full_disk_under_everything_else(
    data: Path, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when one of the commands ends in a traceback, or leaves half a file."""
    files = write_parts(tmp_path)
    (tmp_path / "out").mkdir()

    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    refused(
        "prepare",
        tmp_path / "out" / "data",
        *files,
        "--vocabulary-size",
        360,
        says="No space left",
    )
    refused(
        "train",
        data,
        tmp_path / "out" / "run",
        *TINY,
        "--steps",
        1,
        says="No space left",
    )
    refused(
        "average",
        finished_run,
        tmp_path / "out" / "translator",
        "--last",
        1,
        says="No space left",
    )
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


@pytest.mark.slow
def test_a_reader_who_leaves_is_no_error(translator: Path) -> None:
    """As ``translate | head -n 1``. Fails with a traceback on standard error."""
    command = process("translate", "--model", translator)
    running = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    running.stdout.close()
    running.stdin.write(b"A dog.\n" * 3)
    running.stdin.close()
    assert running.stderr.read() == b"" and running.wait(timeout=120) == 1
    running.stderr.close()


class Evil:
    """Pickled, it is a program that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("with_digest", [False, True])
def test_a_pickle_is_never_executed(
    broken: Path, tmp_path: Path, with_digest: bool
) -> None:
    """Even where somebody computed the right SHA-256 for it. Fails when anything
    unpickles."""
    content = pickle.dumps(Evil(tmp_path / "executed"))
    (broken / "model.safetensors").write_bytes(content)
    if with_digest:
        facts = json.loads((broken / "model.json").read_text())
        del facts["sha256"]
        (broken / "model.json").write_text(
            json.dumps(facts | {"sha256": digest_of(content, facts)})
        )
    says = "pickles are never loaded" if with_digest else "is damaged"
    refused("translate", "--model", broken, text="A dog.\n", says=says)
    assert not (tmp_path / "executed").exists()
    pickle.loads(content)
    assert (tmp_path / "executed").exists()  # the trap was armed


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "subwords.model"])
@pytest.mark.parametrize("fault", ["missing", "empty", "truncated", "another file"])
def test_damaged_model_files_are_refused(
    broken: Path, data: Path, name: str, fault: str
) -> None:
    """Fails when one of them ends in a traceback, or translates."""
    path, content = broken / name, (broken / name).read_bytes()
    contents = {
        "empty": b"",
        "truncated": content[: len(content) // 2],
        "another file": b"{}\n",
    }
    path.write_bytes(contents[fault]) if fault in contents else path.unlink()
    for words in (["translate"], ["evaluate", data]):
        refused(*words, "--model", broken, text="A dog.\n", says="")


def test_wrong_options_of_the_search(translator: Path) -> None:
    """Fails when a value that makes no search is taken."""
    refused(
        "translate",
        "--model",
        translator,
        "--alpha",
        "nan",
        text="A dog.\n",
        says="alpha nan, expected",
    )
    refused(
        "translate",
        "--model",
        translator,
        "--alpha",
        1e308,
        text="A dog.\n",
        says="0 to 10",
    )
    for words in (
        ["--beam", 0],
        ["--beam", "many"],
        ["--alpha", -1],
        ["--threads", 0],
        ["--threads", 10**20],
        ["--nothing"],
    ):
        assert (
            run("translate", "--model", translator, *words, text="A dog.\n").exit_code
            == 2
        ), words


def test_without_a_model_the_books_own_is_asked(
    translator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when the default is another folder than ``PRETRAINED``."""
    monkeypatch.setattr(cli, "PRETRAINED", translator)
    text = "A dog.\n"
    assert (
        done("translate", text=text).stdout
        == done("translate", "--model", translator, text=text).stdout
    )
    monkeypatch.setattr(cli, "PRETRAINED", translator / "nowhere")
    refused("translate", text=text, says="is not there")


def test_the_shipped_translator_translates() -> None:
    """Fails when the package comes without its translator, or that one does not know a
    dog."""
    assert PRETRAINED.is_dir(), f"{PRETRAINED} is not there"
    out = done(
        "translate", "--device", "cpu", text="Two dogs play in the snow.\n\n"
    ).stdout
    assert (
        "Hunde" in out
        and "Schnee" in out
        and out.count("\n") == 2
        and out.endswith("\n\n")
    )


# evaluate


def test_evaluate_prints_a_record(translator: Path, data: Path, tmp_path: Path) -> None:
    """Fails when a score comes without signature, the provenance is lost, or --output
    differs from what was scored."""
    references = tmp_path / "lower.de"
    references.write_text("ein hund .\n" * 20)
    words = [data, "--model", translator, "--beam", 1, "--part", "validation"]
    result = done(
        "evaluate",
        *words,
        "--output",
        tmp_path / "out.de",
        "--moses-reference",
        references,
    )
    record = json.loads(result.stdout)
    assert record["scores"].keys() == {
        "bleu",
        "bleu_lower_case",
        "chrf",
        "bleu_moses_lower_case",
    }
    assert all("version:" in score["signature"] for score in record["scores"].values())
    assert record["evaluation"]["sentences"] == 20 and record["evaluation"]["beam"] == 1
    assert (
        record["step"] == 4
        and record["averaged"]
        and record["command"]
        and record["average_command"]
    )
    assert (tmp_path / "out.de").read_text(encoding="utf-8").count("\n") == 20
    statistics = record["sentence_statistics"]
    assert statistics["order"][:3] == ["ref_len", "hyp_len", "total_1"]
    for name in ("bleu", "bleu_lower_case"):
        sums = [sum(column) for column in zip(*statistics[name], strict=True)]
        found = BLEU.compute_bleu(sums[6:], sums[2:6], sums[1], sums[0], "exp")
        assert len(statistics[name]) == 20
        assert round(found.score, 2) == record["scores"][name]["score"]


def test_evaluate_scores_what_translate_writes(
    translator: Path, data: Path, tmp_path: Path
) -> None:
    """Fails when the two commands search differently, and when references and sources
    change places."""
    out = tmp_path / "out.de"
    done("evaluate", data, "--model", translator, "--beam", 1, "--output", out)
    sources = "".join(f"{english}\n" for english, _ in miniature_corpus(200, 20).test)
    assert (
        done("translate", "--model", translator, "--beam", 1, text=sources).stdout_bytes
        == out.read_bytes()
    )


def test_evaluate_knows_the_sentences_of_the_book(translator: Path, data: Path) -> None:
    """Fails when the two kinds are mixed up, or a second reference is lost."""
    words = ["--model", translator, "--beam", 1, "--part", "book"]
    record = json.loads(done("evaluate", data, *words).stdout)
    found = record["evaluation"]
    sentences = book_sentences()
    assert found["sentences"] == len(sentences)
    assert found["references"] == sum(len(s.references) for s in sentences)
    assert record["scores_by_kind"].keys() == {"captions", "everyday"}
    assert "nrefs:var" in record["scores"]["bleu"]["signature"]


def test_evaluate_names_the_parts_that_there_are(translator: Path, data: Path) -> None:
    """Fails with a KeyError when the part is not looked up first."""
    words = ["evaluate", data, "--model", translator, "--part", "test_2017"]
    refused(*words, says="no part 'test_2017': expected one of train, validation, test")


def test_evaluate_refuses_references_that_do_not_fit(
    translator: Path, data: Path, tmp_path: Path
) -> None:
    """Fails when scores are made of pairs that are none, or a traceback comes out."""
    short = tmp_path / "short.de"
    short.write_text("ein hund .\n")
    words = ["evaluate", data, "--model", translator]
    refused(*words, "--moses-reference", short, says="has 1 lines, expected 20")
    refused(*words, "--moses-reference", tmp_path / "nowhere", says="No such file")
    refused(
        "evaluate",
        tmp_path,
        "--model",
        translator,
        says="run annotated-transformer prepare first",
    )
    copy = shutil.copytree(data, tmp_path / "data")
    facts = json.loads((copy / "corpus.json").read_text())
    facts["files"]["test"][1] = str(short)
    (copy / "corpus.json").write_text(json.dumps(facts))
    refused("evaluate", copy, "--model", translator, says="expected as many")
    (copy / "corpus.json").write_text(json.dumps(facts | {"languages": ["en", "fr"]}))
    refused(
        "evaluate",
        copy,
        "--model",
        translator,
        says="are ['en', 'de'], those of the text ['en', 'fr']",
    )


def test_ctrl_c_elsewhere_leaves_no_traceback(
    translator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when KeyboardInterrupt gets through."""

    def interrupted(*words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "load_translator", interrupted)
    result = run("translate", "--model", translator, text="A dog.\n")
    assert result.exit_code == 1 and "Aborted!" in result.stderr


def test_a_resumed_run_keeps_its_threads(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a run goes on with as many threads as the machine has cores, and when
    another number changes it without a word."""
    run_folder = tmp_path / "run"
    counts: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    done("train", data, run_folder, *TINY, "--steps", 2)
    done("train", data, run_folder, "--resume", "--steps", 3)
    assert counts == [7]
    said = done(
        "train", data, run_folder, "--resume", "--steps", 4, "--threads", 1
    ).stderr
    assert counts == [7, 1] and "--threads is 1, and was 7" in said


LOADED_WHEN_NEEDED = {
    *("sacrebleu", "sacremoses", "joblib", "lxml", "nltk", "pooch", "requests"),
    *("matplotlib", "altair", "pandas", "scipy", "sympy", "IPython", "transformers"),
    *("torch._dynamo", "torch._inductor"),
}
TRANSLATE_AND_LIST_MODULES = """
import sys
from annotated_transformer.__main__ import main
sys.argv = ["annotated-transformer", "translate", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_translate_loads_nothing_that_it_does_not_need(translator: Path) -> None:
    """Fails when the command imports what computes scores, draws charts, fetches
    corpora or compiles, be it for its options, for loading or at the first forward
    pass: each of them takes longer than the line."""
    words = ["--model", str(translator), "--threads", "1"]
    ended = subprocess.run(
        [sys.executable, "-c", TRANSLATE_AND_LIST_MODULES, *words],
        input="A dog.\n",
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=True,
    )
    assert len(ended.stdout.splitlines()) == 1
    modules = set(ended.stderr.split())
    assert "annotated_transformer.translator" in modules
    assert LOADED_WHEN_NEEDED & modules == set()


@pytest.mark.parametrize(("first", "second"), [("fp32", "bf16"), ("bf16", "fp32")])
def test_workers_train_in_the_precision_of_the_first(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    """Fails when two workers that measure differently train differently: resumed, both
    would take what the first has written down."""
    shares: list[torch.Tensor] = []

    def gather(value: torch.Tensor) -> torch.Tensor:
        shares.append(value)
        return value

    monkeypatch.setattr(cli, "sum_over_workers", gather)
    own = [cli.of_first_worker(name, rank, torch.device("cpu"))
           for rank, name in enumerate((first, second))]  # fmt: skip
    assert own[0] == first
    monkeypatch.setattr(cli, "sum_over_workers", lambda value: sum(shares))
    for rank, name in enumerate((first, second)):
        assert cli.of_first_worker(name, rank, torch.device("cpu")) == first
