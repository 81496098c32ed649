"""Chapter 8: the vocabulary of subword pieces."""

import io
import unicodedata
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from annotated_transformer.subwords import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    UNK_ID,
    Subwords,
    train_subwords,
)

SPECIAL = {PAD_ID, BOS_ID, EOS_ID, UNK_ID}


def is_kept(text: str) -> bool:
    """Whether SentencePiece's normalization should leave ``text`` alone, said without
    asking SentencePiece.

    It is NFKC and more: it drops control characters, makes every kind of space one
    space and strips both ends.
    """
    return (
        unicodedata.normalize("NFKC", text) == text and " ".join(text.split()) == text
    )


# Any Unicode text; and any but unassigned, control and format characters, separators,
# the sign for what is no character, and SentencePiece's own sign of a space.
any_text = st.text(max_size=20)
characters = st.characters(
    exclude_categories=["Cn", "Cc", "Cf", "Cs", "Z"], exclude_characters="▁\ufffd"
)
kept_words = st.text(characters, min_size=1, max_size=8)
kept_texts = st.lists(kept_words, max_size=4).map(" ".join).filter(is_kept)


@settings(max_examples=300)
@given(content=any_text)
@example(content="Das Mädchen läuft.")
@example(content="<s> </s> <unk> <pad> <0x41>")
@example(content="数学 и ≠ 🐕")
@example(content=" ▁▁a \u2028\x00\u200b ﬁ o\u0308 ")
def test_any_text_comes_back_as_normalized(subwords: Subwords, content: str) -> None:
    """Also characters never seen in training. Fails without ``byte_fallback``, or when
    ``normalize`` shows ``▁``."""
    ids = subwords.encode(content)
    assert subwords.decode(ids) == subwords.normalize(content)
    assert not SPECIAL & set(ids) and all(0 <= token < len(subwords) for token in ids)


@settings(max_examples=300)
@given(content=any_text)
@example(content="The dog")
def test_what_normalization_keeps_comes_back(subwords: Subwords, content: str) -> None:
    """The same promise in the chapter's words. Fails when ``decode`` changes what
    ``normalize`` does not."""
    assume(subwords.normalize(content) == content)
    assert subwords.decode(subwords.encode(content)) == content


@settings(max_examples=300)
@given(content=kept_texts)
@example(content="naïve Größe ≠ 犬 🐕 Việt")
def test_normalization_keeps_ordinary_text(subwords: Subwords, content: str) -> None:
    """So the promise is not empty. Fails when training folds case (``nmt_nfkc_cf``), or
    ``normalize`` keeps the space that SentencePiece sets before a text."""
    assert (
        subwords.normalize(content)
        == content
        == subwords.decode(subwords.encode(content))
    )


def test_spaces_and_wide_letters_are_normalized(subwords: Subwords) -> None:
    """What the round trip leaves out. Fails when the normalization is switched off in
    training."""
    assert subwords.decode(subwords.encode("  a\u00a0\n b\tc ")) == "a b c"
    assert subwords.decode(subwords.encode("ａｂ ①")) == "ab 1"
    assert subwords.encode("") == subwords.encode(" \n") == []
    assert (
        subwords.normalize(" o\u0308 \t ﬁn ") == "ö fin"
        and subwords.normalize(" \n") == ""
    )


def test_pieces_are_what_the_ids_stand_for(subwords: Subwords, text: list[str]) -> None:
    """Fails when ``pieces`` hides the mark of a space."""
    for sentence in text[:20]:
        pieces = subwords.pieces(sentence)
        assert len(pieces) == len(subwords.encode(sentence))
        assert "".join(pieces).replace("▁", " ").strip() == sentence


def test_frequent_words_are_short(subwords: Subwords, text: list[str]) -> None:
    """Fails when nothing is merged: then a sentence has a token for each letter."""
    tokens = sum(len(subwords.encode(sentence)) for sentence in text)
    assert tokens < 0.7 * sum(len(sentence) for sentence in text)


def test_special_ids_leave_no_trace(subwords: Subwords) -> None:
    """Nor does it matter what holds the ids. Fails when ``decode`` hands them on as
    they are."""
    ids = subwords.encode("The dog")
    assert subwords.decode([BOS_ID, *ids, EOS_ID, PAD_ID, PAD_ID]) == "The dog"
    assert subwords.decode(iter(ids)) == "The dog"


def test_an_unseen_character_is_spelled_in_bytes(subwords: Subwords) -> None:
    """Fails when the bytes do not stand right behind the special ids, as the chapter
    says."""
    assert subwords.encode("犬")[-3:] == [4 + byte for byte in "犬".encode()]
    assert subwords.decode([4 + byte for byte in "犬".encode()]) == "犬"
    assert (
        subwords.decode([4 + "犬".encode()[0]]) == "\ufffd"
    )  # a character that is cut short


def test_an_id_of_no_token_is_refused(subwords: Subwords) -> None:
    """Fails when ``decode`` passes over an id that only a larger vocabulary has."""
    for foreign in (len(subwords), -1):
        with pytest.raises(IndexError):
            subwords.decode([5, foreign])


def test_the_same_text_gives_the_same_vocabulary(
    subwords: Subwords, text: list[str]
) -> None:
    """Also from an iterator. Fails when the iterator is used up before training."""
    again = train_subwords(iter(text), len(subwords))
    assert len(again) == 360
    assert all(again.encode(sentence) == subwords.encode(sentence) for sentence in text)


def test_saved_and_loaded(subwords: Subwords, tmp_path: Path) -> None:
    """Fails when anything but the model's own bytes is written."""
    subwords.save(tmp_path / "words.model")
    loaded = Subwords.load(str(tmp_path / "words.model"))
    assert loaded.model == subwords.model and len(loaded) == len(subwords)
    assert loaded.encode("The small dog") == subwords.encode("The small dog")
    with pytest.raises(FileNotFoundError, match="missing.model"):
        Subwords.load(tmp_path / "missing.model")


@pytest.mark.parametrize("share", [0.3, 0.9, 0.9999])
def test_a_truncated_file_is_named(
    subwords: Subwords, tmp_path: Path, share: float
) -> None:
    """Fails when SentencePiece's RuntimeError is let through."""
    path, size = tmp_path / "words.model", int(len(subwords.model) * share)
    path.write_bytes(subwords.model[:size])
    with pytest.raises(
        ValueError,
        match=f"these {size} bytes are not a SentencePiece model.*train_subwords",
    ):
        Subwords.load(path)


def test_a_vocabulary_with_other_special_ids_is_refused(text: list[str]) -> None:
    """Fails when the ids are not compared: the end token would be an unknown word."""
    foreign = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_writer=foreign,
        vocab_size=60,
        model_type="bpe",
        minloglevel=2,
    )
    for model in (foreign.getvalue(), b""):
        with pytest.raises(
            ValueError, match=r"expected \[0, 1, 2, 3\]: use train_subwords"
        ):
            Subwords(model)


@pytest.mark.parametrize(
    ("sentences", "vocabulary_size", "message"),
    [
        ([], 300, "no sentence with text in it.*expected at least one"),
        (["", " \n"], 300, "no sentence with text in it"),
        (
            ["the cat"],
            5000,
            "vocabulary_size 5000 does not fit this text: expected at most",
        ),
        (
            ["the cat"],
            100,
            "vocabulary_size 100 does not fit this text: expected at least",
        ),
    ],
)
def test_too_little_text_is_named(
    sentences: list[str], vocabulary_size: int, message: str
) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(ValueError, match=message):
        train_subwords(sentences, vocabulary_size)
