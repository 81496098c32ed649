"""Token files: the batches of a stream from ids that were computed once."""

import json
import pickle
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import torch

from annotated_transformer.data import Batch, encode_stream, stream_batches
from annotated_transformer.subwords import Subwords, train_subwords
from annotated_transformer.support.corpora import (
    ParallelFiles,
    miniature_corpus,
)
from annotated_transformer.support.run_folders import (
    batches_of,
    pairs_of,
    write_corpus,
)
from annotated_transformer.support.token_files import (
    FileBatches,
    TokenFile,
    load_batches,
    write_token_file,
)
from annotated_transformer.training import TrainingConfig

PAIRS = [*miniature_corpus(150, 0, seed=4).train, ("", "Hund"), ("a dog " * 40, "Hund")]


@pytest.fixture
def files(tmp_path: Path) -> ParallelFiles:
    """150 pairs, one without text on a side, and one that is long."""
    for name, side in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side))
    return ParallelFiles(tmp_path / "en", tmp_path / "de")


@pytest.fixture
def path(files: ParallelFiles, subwords: Subwords, tmp_path: Path) -> Path:
    """A token file of ``files``."""
    write_token_file(tmp_path / "tokens", files, subwords)
    return tmp_path / "tokens"


def fields(batches: list[Batch]) -> list[list]:
    """The numbers of batches, to compare."""
    return [[side.tolist() for side in vars(batch).values()] for batch in batches]


def test_the_ids_come_back(path: Path, files: ParallelFiles, subwords) -> None:
    """Also in another process. Fails when a side ends elsewhere, or is lost."""
    expected = [tuple(map(subwords.encode, pair)) for pair in files]
    for tokens in (TokenFile(path), pickle.loads(pickle.dumps(TokenFile(path)))):
        assert len(tokens) == len(PAIRS)
        for _ in range(2):
            assert [(a.tolist(), b.tolist()) for a, b in tokens] == expected


@pytest.mark.parametrize("longest", [10, 14, 1000])
def test_what_is_left_out_is_counted(path: Path, files, subwords, longest) -> None:
    """As ``encode_stream`` counts it. Fails when a pair of exactly the length counts
    otherwise."""
    expected: Counter[str] = Counter()
    list(encode_stream(files, subwords, longest, expected))
    assert TokenFile(path).left_out(longest) == expected and expected["empty"] == 1


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize(("rank", "world_size"), [(0, 1), (1, 2)])
def test_the_batches_are_those_of_the_stream(
    path: Path, files, subwords, workers: int, rank: int, world_size: int
) -> None:
    """Over several epochs, whatever the number of loader processes. Fails when a batch
    comes twice, is lost, or comes in another order, and when PyTorch's generator is
    drawn from."""
    state = torch.get_rng_state()
    choices = {"rank": rank, "world_size": world_size, "buffer_size": 40}
    batches = FileBatches(TokenFile(path), 60, 7, 20, **choices)
    found = list(islice(load_batches(batches, workers), 50))
    expected = stream_batches(files, subwords, 60, 7, max_length=20, **choices)
    assert fields(found) == fields(list(islice(expected, 50)))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_file_is_written_once(path: Path, files, subwords, monkeypatch) -> None:
    """Fails when the text is encoded again for each run, or when other text, another
    vocabulary or a damaged file goes unnoticed."""
    encoded = []
    encode = Subwords.encode
    monkeypatch.setattr(
        Subwords, "encode", lambda s, text: (encoded.append(text), encode(s, text))[1]
    )

    def rewritten(subwords: Subwords = subwords) -> bool:
        encoded.clear()
        write_token_file(path, files, subwords)
        return bool(encoded)

    assert not rewritten()
    files.source.write_text(files.source.read_text().replace("dog", "cat", 1))
    assert rewritten() and not rewritten()
    other = train_subwords([text for pair in PAIRS for text in pair], 340)
    assert rewritten(other) and not rewritten(other)
    path.write_bytes(path.read_bytes()[:-8])
    assert rewritten(other) and not rewritten(other)
    marker = path.with_name("tokens.json")
    for damaged in ("[1]", "{"):
        marker.write_text(damaged)
        assert rewritten(other)
    assert json.loads(marker.read_text())["bytes"] == path.stat().st_size
    path.unlink()
    assert rewritten(other)


def test_a_run_that_streams_reads_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """One run after the other. Fails when a run encodes what another has encoded, when
    the batches are not the stream's, and when pairs are left out without a word."""
    parts = {"train": PAIRS, "validation": PAIRS[:9], "test": PAIRS[:9]}
    names = write_corpus(parts, ["en", "de"], tmp_path)
    facts = {"languages": ["en", "de"], "files": names}
    (tmp_path / "corpus.json").write_text(json.dumps(facts))
    subwords = train_subwords([text for pair in PAIRS for text in pair], 340)
    files = pairs_of(tmp_path, "train")
    expected = stream_batches(files, subwords, 60, 3, max_length=20)
    wanted, times = fields(list(islice(expected, 30))), set()
    for loaders in (0, 2):
        config = TrainingConfig(max_tokens=60, seed=3)
        batches, _ = batches_of(tmp_path, subwords, 20, config, True, 0, 1, loaders)
        assert fields(list(islice(batches, 30))) == wanted
        times.add((tmp_path / "train.tokens").stat().st_mtime_ns)
        assert "of 152 train pairs are left out: a side" in capsys.readouterr().err
    assert len(times) == 1


def test_a_writer_that_fails_leaves_nothing(files, subwords, tmp_path: Path) -> None:
    """Fails when half a file is taken for a whole one."""
    files.target.write_text("one line\n")
    with pytest.raises(ValueError, match="expected as many"):
        write_token_file(tmp_path / "tokens", files, subwords)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["de", "en"]
