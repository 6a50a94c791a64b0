"""Text becomes tokens in the store: the same ones whoever prepares it, and however often."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path
from struct import pack

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from atoll.numerics.errors import DataUnusable
from atoll.numerics.pieces import piece_root
from atoll.storage.local import LocalStore
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import PreparedData, Progress, prepare
from atoll.train.data import TokenFile, WordForm
from atoll.train.tokenizer import byte_tokenizer, open_belongings, open_tokenizer

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "and",
    "runs",
    "into",
    "a",
    "wood",
    "of",
    "old",
    "trees",
]


def line(number: int) -> str:
    return " ".join(WORDS[(number * k * k) % len(WORDS)] for k in range(1, 9)) + f" {number}.\n"


TEXT = "".join(map(line, range(2000)))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", sync=False)


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-pair tokenizer of 300 tokens, the last of which ends documents."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=299,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def tokens_of(store: LocalStore, data: PreparedData) -> tuple[list[int], list[int]]:
    """All words, for training and held out."""
    form = WordForm(data.dtype, data.spec(0).mask_bit, data.vocab)
    train = TokenFile(store, data.cid, data.train_tokens, form)
    held_out = TokenFile(store, data.eval_cid, data.eval_tokens, form)
    return train[:].tolist(), held_out[:].tolist()


def documents_in(tokens: list[int], end: int) -> list[bytes]:
    """Documents of bytes, as the end tokens part them."""
    assert tokens[-1] == end
    return bytes(tokens).split(bytes([end]))[:-1]


def write_files(folder: Path, count: int = 60) -> list[Path]:
    folder.mkdir()
    paths = [folder / f"{number:03}.txt" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_text("".join(map(line, range(number, number + 3))))
    return paths


def test_every_document_is_on_one_side_and_ends_with_the_end_token(
    tmp_path: Path, store: LocalStore
) -> None:
    paths = write_files(tmp_path / "texts")
    data = prepare(DataOptions((tmp_path / "texts",), held_out="0.2"), store)
    sides = [documents_in(tokens, 0) for tokens in tokens_of(store, data)]
    texts = [path.read_bytes() for path in paths]
    assert sorted(sides[0] + sides[1]) == sorted(texts)
    assert [text for text in texts if text in sides[0]] == sides[0]
    assert (len(sides[0]), len(sides[1])) == (data.train_documents, data.eval_documents)
    assert 3 <= data.eval_documents <= 25
    assert (data.dtype, data.vocab, data.masked) == ("uint8", 256, False)
    assert (data.train_targets, data.eval_targets) == (data.train_tokens, data.eval_tokens)
    words, _ = tokens_of(store, data)
    assert data.root == piece_root(bytes(words))
    assert open_tokenizer(store, data.tokenizer_cid).encode("ab").ids == [97, 98]


def test_a_document_goes_where_its_copy_goes_wherever_it_stands(
    tmp_path: Path, store: LocalStore
) -> None:
    paths = write_files(tmp_path / "texts")
    copies = tmp_path / "texts" / "copies"
    copies.mkdir()
    for number, path in enumerate(reversed(paths)):
        (copies / f"{number}.txt").write_bytes(path.read_bytes())
    data = prepare(DataOptions((tmp_path / "texts",), held_out="0.3"), store)
    train, held_out = (documents_in(tokens, 0) for tokens in tokens_of(store, data))
    assert not set(train) & set(held_out)
    assert len(train) + len(held_out) == 120


def test_a_long_text_is_split_at_ends_of_lines_and_loses_nothing(
    tmp_path: Path, store: LocalStore
) -> None:
    (tmp_path / "book.txt").write_text(TEXT)
    data = prepare(DataOptions((tmp_path / "book.txt",), held_out="0.1"), store)
    train, held_out = (documents_in(tokens, 0) for tokens in tokens_of(store, data))
    assert sorted(b"".join(train + held_out).split(b"\n")) == sorted(TEXT.encode().split(b"\n"))
    assert all(part.endswith(b"\n") for part in train + held_out)
    assert 0.05 < data.eval_tokens / (data.train_tokens + data.eval_tokens) < 0.2
    # Sections that follow each other on one side are one document.
    assert any(len(part) > 512 for part in train)


def test_a_text_that_repeats_itself_is_split_and_its_copies_fall_like_it(
    tmp_path: Path, store: LocalStore
) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("the same line over and over\n" * 2000)
    paths = (tmp_path / "a.txt", tmp_path / "b.txt")
    data = prepare(DataOptions(paths, held_out="0.1"), store)
    for tokens in tokens_of(store, data):
        parts = documents_in(tokens, 0)
        assert parts[: len(parts) // 2] == parts[len(parts) // 2 :]


def test_a_tokenizer_is_used_with_its_end_token(
    tmp_path: Path, store: LocalStore, tokenizer_folder: Path
) -> None:
    paths = write_files(tmp_path / "texts")
    options = DataOptions((tmp_path / "texts",), held_out="0.2", tokenizer=tokenizer_folder)
    data = prepare(options, store)
    tokenizer = open_tokenizer(store, data.tokenizer_cid)
    assert (data.dtype, data.vocab) == ("uint16", 300)
    end = tokenizer.token_to_id("<|endoftext|>")
    train, held_out = tokens_of(store, data)
    assert train[-1] == held_out[-1] == end
    assert (train + held_out).count(end) == len(paths)
    texts = tokenizer.decode(train, skip_special_tokens=False).split("<|endoftext|>")[:-1]
    assert texts == [p.read_text() for p in paths if p.read_text() in texts]
    stored = open_belongings(store, data.tokenizer_cid).files["tokenizer.json"]
    assert stored == (tokenizer_folder / "tokenizer.json").read_bytes()


def test_the_tokenizer_of_bytes_is_bytes_also_where_it_is_named(
    tmp_path: Path, store: LocalStore
) -> None:
    """A job over bytes is continued from its result, whose folder has that tokenizer."""
    write_files(tmp_path / "texts")
    options = DataOptions((tmp_path / "texts",), held_out="0.2")
    data = prepare(options, store)
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"), pretty=True)
    again = prepare(replace(options, tokenizer=tmp_path), store)
    assert replace(again, tokenizer_cid=data.tokenizer_cid) == data


def test_the_end_token_is_what_the_folder_says(
    tmp_path: Path, store: LocalStore, tokenizer_folder: Path
) -> None:
    write_files(tmp_path / "texts")
    folder = tmp_path / "tokenizer"
    shutil.copytree(tokenizer_folder, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def ends_with(**changes: str) -> str:
        options = DataOptions((tmp_path / "texts",), held_out="0.2", tokenizer=folder, **changes)  # type: ignore[arg-type]
        return tokenizer.id_to_token(tokens_of(store, prepare(options, store))[0][-1])

    assert ends_with() == "<|endoftext|>"
    (folder / "config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    assert ends_with() == tokenizer.id_to_token(5)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 7}))
    assert ends_with() == tokenizer.id_to_token(7)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "x"}}))
    assert ends_with() == "x"
    assert ends_with(end_token="y") == "y"
    plain = (
        Tokenizer.from_file(str(folder / "tokenizer.json")).to_str().replace("<|endoftext|>", "!?")
    )
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "tokenizer.json").write_text(plain)
    with pytest.raises(DataUnusable, match="does not say which token ends"):
        ends_with()


def test_a_mark_that_a_document_spells_is_text(
    tmp_path: Path, store: LocalStore, tokenizer_folder: Path
) -> None:
    text = "a<|endoftext|>b\n"
    (tmp_path / "a.txt").write_text(text * 300)
    options = DataOptions((tmp_path / "a.txt",), held_out="0.5", tokenizer=tokenizer_folder)
    data = prepare(options, store)
    train, held_out = tokens_of(store, data)
    end = open_tokenizer(store, data.tokenizer_cid).token_to_id("<|endoftext|>")
    assert train.count(end) + held_out.count(end) == data.train_documents + data.eval_documents


def test_words_are_as_wide_as_the_models_vocabulary_needs(
    tmp_path: Path, store: LocalStore, tokenizer_folder: Path
) -> None:
    write_files(tmp_path / "texts")
    options = DataOptions((tmp_path / "texts",), held_out="0.2", tokenizer=tokenizer_folder)
    assert prepare(replace(options, model_vocab=1 << 17), store).dtype == "uint32"
    assert prepare(replace(options, model_vocab=300), store).dtype == "uint16"
    with pytest.raises(DataUnusable, match="300 tokens, the model's vocabulary is 299"):
        prepare(replace(options, model_vocab=299), store)


def test_reading_ends_with_the_document_that_reaches_the_wanted_tokens(
    tmp_path: Path, store: LocalStore
) -> None:
    paths = write_files(tmp_path / "texts")
    paths[30].write_bytes(b"\xff")
    options = DataOptions((tmp_path / "texts",), held_out="0.4", max_tokens=2000)
    data = prepare(options, store)
    total = 0
    for path in paths:  # pragma: no branch
        total += path.stat().st_size + (total < 2000)
        if total >= 2000:
            break
    assert data.train_tokens + data.eval_tokens == total


def test_a_text_of_its_own_is_evaluated_on_whole_and_nothing_else_is(
    tmp_path: Path, store: LocalStore
) -> None:
    paths = write_files(tmp_path / "texts", 40)
    own = write_files(tmp_path / "own", 10)
    own[4].write_text("a text that is nowhere else\n")
    drawn = DataOptions((tmp_path / "texts",), held_out="0.5")
    options = replace(drawn, held_out_paths=(tmp_path / "own",))
    data = prepare(options, store)
    train, held_out = (documents_in(tokens, 0) for tokens in tokens_of(store, data))
    assert held_out == [path.read_bytes() for path in own]
    assert train == [path.read_bytes() for path in paths]

    least = prepare(replace(options, max_tokens=1), store)  # of the text that is trained on
    train, held_out = (documents_in(tokens, 0) for tokens in tokens_of(store, least))
    assert train == [paths[0].read_bytes()]
    assert len(held_out) == len(own)
    assert least.eval_cid == data.eval_cid

    # The same files in one list are another preparation.
    together = (tmp_path / "own", tmp_path / "texts")
    assert prepare(replace(drawn, paths=together), store).eval_cid != data.eval_cid
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataUnusable, match=f"no text files under {tmp_path / 'empty'}"):
        prepare(replace(options, held_out_paths=(tmp_path / "empty",)), store)
    with pytest.raises(DataUnusable, match="0 to evaluate on, of 1 files of held_out_paths"):
        (tmp_path / "empty" / "a.txt").write_text("")
        prepare(replace(options, held_out_paths=(tmp_path / "empty",)), store)


def test_progress_is_told_and_what_is_done_is_not_done_again(
    tmp_path: Path, store: LocalStore
) -> None:
    write_files(tmp_path / "texts")
    seen: list[Progress] = []
    options = DataOptions((tmp_path / "texts",), held_out="0.2")
    data = prepare(options, store, seen.append)
    assert seen[-1].bytes == seen[-1].bytes_total
    assert seen[-1].documents == data.train_documents + data.eval_documents
    count = len(seen)
    assert prepare(options, store, seen.append) == data
    assert len(seen) == count
    changed = tmp_path / "texts" / "000.txt"
    changed.write_text("something else\n")
    assert prepare(options, store, seen.append).root != data.root
    assert len(seen) > count


def test_what_a_preparation_left_is_kept_from_collection(tmp_path: Path, store: LocalStore) -> None:
    write_files(tmp_path / "texts")
    data = prepare(DataOptions((tmp_path / "texts",), held_out="0.2"), store)
    store.collect(grace_s=-1e9)
    assert all(tokens_of(store, data))


def test_text_that_cannot_be_used_is_named(
    tmp_path: Path, store: LocalStore, tokenizer_folder: Path
) -> None:
    def refused(match: str, *paths: Path, **changes: object) -> None:
        with pytest.raises(DataUnusable, match=match):
            prepare(replace(DataOptions(paths), **changes), store)  # type: ignore[arg-type]

    (tmp_path / "empty").mkdir()
    refused("no such file", tmp_path / "missing")
    refused("no text files", tmp_path / "empty")
    refused("no text files")
    (tmp_path / "short").write_text("abc")
    refused("1 documents of 3 bytes", tmp_path / "short")
    (tmp_path / "latin").write_bytes(b"plain\n" * 10 + b"\xff" * 100)
    refused(
        "latin, from byte 0: not UTF-8: .* at byte 60",
        tmp_path / "latin",
        tokenizer=tokenizer_folder,
    )
    refused("no share", tmp_path / "short", held_out="0.7")
    refused("no share", tmp_path / "short", held_out="some")
    refused("no tokenizer.json", tmp_path / "short", tokenizer=tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    refused("not a tokenizer", tmp_path / "short", tokenizer=tmp_path)
    refused("no token 'END'", tmp_path / "short", tokenizer=tokenizer_folder, end_token="END")


PANICS = {
    "type": "Precompiled",
    "precompiled_charsmap": base64.b64encode(pack("<I", 8) + b"\xff" * 8).decode(),
}
"""A normaliser that is loaded, and ends in a panic over a text."""
UNFIT = {
    "a panic": {"normalizer": PANICS},
    "a word that it lacks": {
        "model": {"type": "WordLevel", "vocab": {"<|endoftext|>": 0}, "unk_token": "[UNK]"}
    },
}


@pytest.mark.parametrize("change", UNFIT)
@pytest.mark.parametrize("chat", [False, True])
def test_a_tokenizer_that_fails_over_a_text_is_refused(
    change: str, chat: bool, tmp_path: Path, store: LocalStore, tokenizer_folder: Path
) -> None:
    plain = json.loads((tokenizer_folder / "tokenizer.json").read_bytes()) | UNFIT[change]
    (tmp_path / "tokenizer.json").write_text(json.dumps(plain))
    row = {"messages": [{"role": "assistant", "content": "word"}], "text": "word"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    options = DataOptions((tmp_path / "a.jsonl",), chat=chat, tokenizer=tmp_path)
    with pytest.raises(DataUnusable, match=r"the tokenizer fails .*a\.jsonl, line 1") as caught:
        prepare(options, store)
    assert caught.value.next_step


def test_bytes_of_any_kind_are_taken_without_a_tokenizer(tmp_path: Path, store: LocalStore) -> None:
    raw = np.random.default_rng(0).integers(1, 256, 5000).astype(np.uint8).tobytes()
    (tmp_path / "noise").write_bytes(raw)
    data = prepare(DataOptions((tmp_path / "noise",), held_out="0.2"), store)
    train, held_out = (documents_in(tokens, 0) for tokens in tokens_of(store, data))
    assert sum(map(len, train + held_out)) == len(raw)
