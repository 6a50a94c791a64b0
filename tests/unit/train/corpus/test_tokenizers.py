"""Tokenizers of many kinds: one way to tokenise, no letter lost, one mark a document."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from atoll.numerics.errors import DataUnusable
from atoll.storage.local import LocalStore
from atoll.train.corpus import prepare as preparing
from atoll.train.corpus.documents import Document
from atoll.train.corpus.encoders import Encoder, open_encoder
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import PreparedData, Progress, prepare

WORDS = [
    "the",
    "ring",
    "of",
    "coral",
    "holds",
    "a",
    "still",
    "lagoon",
    "and",
    "small",
    "boats",
    "cross",
    "it",
    "in",
    "the",
    "morning",
]
MARK = "▁"


def text(count: int, line: int = 12) -> str:
    """Words on lines of about `line` words; 0 has no lines."""
    rng = np.random.default_rng(0)
    ends = ["\n" if line and rng.integers(line) == 0 else " " for _ in range(count)]
    return "".join(WORDS[rng.integers(len(WORDS))] + end for end in ends)


def trained(tokenizer: Tokenizer, *special: str, alphabet: bool = False) -> Tokenizer:
    letters = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=["</s>", *special], show_progress=False,
        initial_alphabet=letters,
    )  # fmt: skip
    tokenizer.train_from_iterator([text(4000)], trainer)
    return tokenizer


def byte_level(
    dropout: float | None = None, alphabet: bool = True, space: bool = False
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(dropout=dropout))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, alphabet=alphabet)


def metaspace(scheme: str = "first", unk: str | None = "<unk>") -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token=unk))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return trained(tokenizer, *([unk] if unk else []))


def llama_2() -> Tokenizer:
    """A normaliser that puts the mark, and byte fallback, with no cut at all."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    return trained(tokenizer, "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)))


def split_first() -> Tokenizer:
    """Each word gets a mark, of whole texts as of parts."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    return trained(tokenizer, "<unk>")


def folder(at: Path, tokenizer: Tokenizer) -> Path:
    at.mkdir(exist_ok=True)
    (at / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    (at / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    return at


def encoder(at: Path, tokenizer: Tokenizer) -> Encoder:
    return open_encoder(DataOptions((), tokenizer=folder(at, tokenizer)))


def ids(found: Encoder, said: str, before: int = 0) -> list[int]:
    (one,) = found.encode([Document(said.encode(), before, "a text", (0, 0))])
    return [int(id) for id in one]


def prepared(at: Path, tokenizer: Tokenizer, said: str) -> PreparedData:
    (at / "text.txt").write_text(said)
    options = DataOptions((at / "text.txt",), tokenizer=folder(at / "tokenizer", tokenizer))
    return prepare(options, LocalStore(at / "store", sync=False))


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([text(4000)], trainer)
    return tokenizer


def drawing_unigram() -> Tokenizer:
    tokenizer = unigram()
    tokenizer.model.alpha, tokenizer.model.nbest_size = 0.3, 8
    return tokenizer


# --- one way ---


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_what_draws_tokens_is_off_and_said(rate: float, tmp_path: Path) -> None:
    drawing, still = byte_level(dropout=rate), byte_level()
    found = encoder(tmp_path / "a", drawing)
    said = text(300)
    assert {tuple(ids(found, said)) for _ in range(5)} == {tuple(ids(found, said))}
    # What is given away with the model does not draw either.
    assert Tokenizer.from_str(found.file.decode()).model.dropout is None
    data = prepared(tmp_path, drawing, text(3000))
    assert [note for note in data.notes if "dropout is off" in note]
    assert not prepared(tmp_path, still, text(3000)).notes


def test_a_unigram_gives_one_way_or_is_refused(tmp_path: Path) -> None:
    found = encoder(tmp_path, drawing_unigram())
    said = text(300)
    assert len({tuple(ids(found, said)) for _ in range(5)}) == 1


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    folder(tmp_path, byte_level())
    path = tmp_path / "tokenizer.json"
    path.write_text(
        path.read_text().replace('"normalizer":null', '"normalizer":null,' * 2 + '"x":0')
    )
    with pytest.raises(DataUnusable, match="'normalizer' is said twice"):
        open_encoder(DataOptions((), tokenizer=tmp_path))


# --- letters without a token ---


def byte_fallback_without_bytes() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return trained(tokenizer)


LOSSES: dict[str, tuple[Callable[[], Tokenizer], str]] = {
    "no alphabet, no unknown": (lambda: metaspace(unk=None), "the ring Žlutý of coral"),
    "bytes without some": (lambda: byte_level(alphabet=False), "the ring 漢 of coral"),
    "byte fallback without bytes": (byte_fallback_without_bytes, "the ring of 漢"),
    "a letter within a word": (lambda: metaspace(unk=None), "the riñg of coral"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_letters_that_would_vanish_are_refused_by_name(name: str, tmp_path: Path) -> None:
    make, said = LOSSES[name]
    found = encoder(tmp_path, make())
    whole = text(40)
    assert ids(found, whole) == make().encode(whole, add_special_tokens=False).ids
    with pytest.raises(DataUnusable, match="a text: the tokenizer has no token for '"):
        ids(found, said)
    with pytest.raises(DataUnusable, match="has no token for"):  # deep within a corpus as well
        prepared(tmp_path, make(), text(30_000) + said + text(3000))


@pytest.mark.parametrize("make", [llama_2, byte_level], ids=["byte fallback", "byte level"])
def test_bytes_lose_nothing(make: Callable[[], Tokenizer], tmp_path: Path) -> None:
    found = encoder(tmp_path, make())
    said = "the ring Žlutý 漢字 of \0 coral 🪸"
    assert make().decode(ids(found, said), skip_special_tokens=False) == said


# --- what is unknown, and what comes back otherwise ---


def test_the_share_of_unknown_tokens_is_said(tmp_path: Path) -> None:
    told: list[Progress] = []
    (tmp_path / "text.txt").write_text("žluťoučký the ring\n" * 3000)
    options = DataOptions((tmp_path / "text.txt",), tokenizer=folder(tmp_path / "t", metaspace()))
    data = prepare(options, LocalStore(tmp_path / "store", sync=False), told.append)
    assert told[-1].unknown > told[-1].tokens // 4
    warned = [note for note in data.notes if "what the tokenizer does not know" in note]
    assert len(warned) == 1 and "much of this text is not learned" in warned[0]
    again = prepare(options, LocalStore(tmp_path / "store", sync=False))
    assert again.notes == data.notes  # also where nothing is left to do
    few = prepared(tmp_path, metaspace(), text(5000) + "ž\n")
    (note,) = [note for note in few.notes if "does not know" in note]
    assert note.startswith("1 of ") and "much" not in note


NORMALISED: dict[str, tuple[Callable[[Tokenizer], object], str]] = {
    "small letters": (
        lambda t: setattr(t, "normalizer", normalizers.Lowercase()), "'The Ring' as 'the ring'",
    ),
    "no accents": (
        lambda t: setattr(
            t, "normalizer",
            normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
        ),
        "'rïng' as 'ring'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMALISED)
def test_what_a_normaliser_changes_is_said_with_an_example(name: str, tmp_path: Path) -> None:
    change, example = NORMALISED[name]
    tokenizer = byte_level()
    change(tokenizer)
    said = example.split("'")[1]
    data = prepared(tmp_path, tokenizer, text(9000) + f"{said}\n" * 200)
    assert not data.notes  # of the first documents alone
    data = prepared(tmp_path, tokenizer, f"{said}\n" * 200 + text(3000))
    (note,) = data.notes
    assert "come back otherwise" in note and f"{said[:4]}" in note


# --- the mark before a text ---

MARKED: dict[str, Callable[[], Tokenizer]] = {
    "Metaspace, first": metaspace,
    "Metaspace, always": lambda: metaspace("always"),
    "a normaliser": llama_2,
    "ByteLevel with a space": lambda: byte_level(space=True),
    "Unigram": unigram,
    "every word": split_first,
}


@pytest.mark.parametrize("line", [12, 0], ids=["lines", "one line"])
@pytest.mark.parametrize("name", MARKED)
def test_a_mark_stands_before_a_document_and_not_at_its_cuts(
    name: str, line: int, tmp_path: Path
) -> None:
    """A text of 100 kB is read in 390 sections, of which a twentieth is held out."""
    tokenizer, said = MARKED[name](), text(20_000, line)
    data = prepared(tmp_path, tokenizer, said)
    whole = len(tokenizer.encode(said, add_special_tokens=False).ids)
    # An end for each stretch, and tokens which a cut between them takes apart.
    ends = data.train_documents + data.eval_documents
    assert abs(data.train_tokens + data.eval_tokens - ends - whole) < 0.002 * whole


@pytest.mark.parametrize("name", MARKED)
def test_sections_in_a_row_are_the_tokens_of_their_text(name: str, tmp_path: Path) -> None:
    tokenizer, said = MARKED[name](), text(3000)
    found, size = encoder(tmp_path, tokenizer), 300
    parts = [said[at : at + size] for at in range(0, len(said), size)]
    documents = [
        Document(part.encode(), place * size, f"part {place}", (0, 0))
        for place, part in enumerate(parts)
    ]
    encoded = np.concatenate(found.encode(documents)).tolist()
    assert encoded == tokenizer.encode(said, add_special_tokens=False).ids
    # Of two texts, each is its own.
    twice = found.encode(documents + documents)
    assert np.concatenate(twice[len(documents) :]).tolist() == encoded


def test_a_long_document_is_marked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = metaspace()
    said = " ".join(["lagoon\n"] * 30_000)  # 240 kB, in four parts
    found = ids(encoder(tmp_path, tokenizer), said)
    whole = tokenizer.encode(said, add_special_tokens=False).ids
    assert abs(len(found) - len(whole)) <= 4
    monkeypatch.setattr(preparing, "SAVE_BYTES", 1)
    assert prepared(tmp_path, tokenizer, text(9000)).train_tokens


# --- tokens that the folder adds ---


def test_a_token_that_tokenizer_json_lacks_is_refused(tmp_path: Path) -> None:
    folder(tmp_path, byte_level())
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|im_end|>": 420}))
    with pytest.raises(DataUnusable, match=r"added_tokens\.json has the token '<\|im_end\|>'"):
        open_encoder(DataOptions((), tokenizer=tmp_path))
    config = {"eos_token": "</s>", "added_tokens_decoder": {"0": {"content": "</s>"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    open_encoder(DataOptions((), tokenizer=tmp_path))  # which goes before added_tokens.json
    config["added_tokens_decoder"] = {"7": {"content": "</s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(DataUnusable, match="as number 7"):
        open_encoder(DataOptions((), tokenizer=tmp_path))


def test_a_preparation_that_was_killed_has_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sections are joined within what is tokenised at once, whose bounds a kill does not move."""
    monkeypatch.setattr(preparing, "SAVE_BYTES", 1)
    monkeypatch.setattr(preparing, "BATCH_BYTES", 7000)
    (tmp_path / "text.txt").write_text(text(12_000) + "ž\n" * 90)
    options = DataOptions((tmp_path / "text.txt",), tokenizer=folder(tmp_path / "t", metaspace()))
    whole = prepare(options, LocalStore(tmp_path / "whole", sync=False))
    store, left = LocalStore(tmp_path / "store", sync=False), [1, 2, 3]

    def stop(_: Progress) -> None:
        left[0] -= 1
        if left[0] == 0:
            left.pop(0)
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            prepare(options, store, stop)
    assert prepare(options, store) == whole
    assert any("does not know" in note for note in whole.notes)
