"""Text becomes content-addressed tokens, and the same tokens come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from atoll.bits.errors import DataUnusable, MalformedDataset
from atoll.bits.pieces import piece_root
from atoll.content.cid import DAG_CBOR, Cid
from atoll.content.local import LocalStore
from atoll.errors import CorruptBlock, NotFound
from atoll.law.canonical import decode, encode
from atoll.train.data import (
    SHARD_BYTES,
    Dataset,
    DatasetIndex,
    byte_tokenizer,
    find_text_files,
    open_tokenizer,
    prepare_dataset,
    write_dataset,
)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", sync=False)


def test_the_byte_tokenizer_maps_every_byte_to_itself() -> None:
    tokenizer = byte_tokenizer()
    text = "naïve € 𝄞\r\n\t\0  spaces  "
    assert tokenizer.encode(text).ids == list(text.encode())
    assert tokenizer.decode(list(text.encode())) == text
    assert tokenizer.get_vocab_size() == 256


def test_files_become_training_and_evaluation_tokens(tmp_path: Path, store: LocalStore) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe not UTF-8" * 10)
    raw = (tmp_path / "a.txt").read_bytes() + (tmp_path / "b.txt").read_bytes()
    data = prepare_dataset([tmp_path / "a.txt", tmp_path / "b.txt"], store, eval_share=0.1)
    train, held_out = Dataset.open(store, data.train_cid), Dataset.open(store, data.eval_cid)
    assert train.tokens.tobytes() + held_out.tokens.tobytes() == raw
    assert (len(train), len(held_out)) == (data.train_tokens, data.eval_tokens)
    assert data.train_root == piece_root(raw[: data.train_tokens])
    assert (data.dtype, data.vocab) == ("uint8", 256)
    assert open_tokenizer(store, data.tokenizer_cid).encode("ab").ids == [97, 98]


def test_a_tokenizer_with_merges_is_used(tmp_path: Path, store: LocalStore) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    text = "the quick brown fox jumps over the lazy dog. " * 50
    tokenizer.train_from_iterator([text], trainer)
    (tmp_path / "t.txt").write_text(text)
    data = prepare_dataset([tmp_path / "t.txt"], store, tokenizer)
    assert data.dtype == "uint16"
    assert data.train_tokens + data.eval_tokens < len(text)
    again = open_tokenizer(store, data.tokenizer_cid)
    assert text.startswith(again.decode(Dataset.open(store, data.train_cid).tokens.tolist()[:50]))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_shards_have_a_fixed_size_and_read_back(dtype: str, store: LocalStore) -> None:
    count = SHARD_BYTES * 2 + 3
    tokens = (np.arange(count) % 251).astype(dtype)
    cid = write_dataset(tokens, dtype, store)
    dataset = Dataset.open(store, cid.to_bytes())
    assert np.array_equal(dataset.tokens, tokens)
    sizes = [store.block_bytes(shard) for shard in dataset.index.shards]
    assert set(sizes[:-1]) == {SHARD_BYTES}
    assert sum(size or 0 for size in sizes) == tokens.nbytes
    assert not dataset.tokens.flags.writeable


def test_reading_stops_at_the_wanted_number_of_tokens(tmp_path: Path, store: LocalStore) -> None:
    (tmp_path / "a").write_text("x" * 1000)
    data = prepare_dataset([tmp_path / "a", tmp_path / "missing"], store, max_tokens=500)
    assert data.train_tokens + data.eval_tokens == 500


def test_folders_are_searched_in_order(tmp_path: Path) -> None:
    for name in ("z.py", "sub/a.py", "b.txt", "c.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = find_text_files([tmp_path], frozenset({".py", ".txt"}))
    assert [str(p.relative_to(tmp_path)) for p in found] == ["b.txt", "sub/a.py", "z.py"]
    assert find_text_files([tmp_path / "c.bin"], frozenset({".py"})) == [tmp_path / "c.bin"]


def test_text_that_cannot_be_used_is_named(tmp_path: Path, store: LocalStore) -> None:
    with pytest.raises(DataUnusable, match="no such file"):
        find_text_files([tmp_path / "missing"])
    with pytest.raises(DataUnusable, match="no text files"):
        find_text_files([store.root / "tmp"])
    with pytest.raises(DataUnusable, match="cannot read"):
        prepare_dataset([tmp_path / "missing"], store)
    (tmp_path / "short").write_text("abc")
    with pytest.raises(DataUnusable, match="3 tokens"):
        prepare_dataset([tmp_path / "short"], store)
    with pytest.raises(DataUnusable):
        prepare_dataset([], store)
    (tmp_path / "latin").write_bytes(b"\xff" * 100)
    with pytest.raises(DataUnusable, match="latin"):
        prepare_dataset([tmp_path / "latin"], store, byte_tokenizer())


def document(store: LocalStore, **changes: object) -> bytes:
    """A dataset document of 10 tokens with some fields replaced."""
    cid = write_dataset(np.arange(10, dtype=np.uint16), "uint16", store)
    plain = decode(store.read_bytes(cid, 1 << 20), 1 << 20)
    assert isinstance(plain, dict)
    return encode(plain | changes)  # type: ignore[operator]


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "other"},
        {"more": 1},
        {"dtype": "int8"},
        {"dtype": 3},
        {"tokens": 0},
        {"tokens": -10},
        {"tokens": True},
        {"tokens": 1 << 48},
        {"tokens": 10**9},
        {"shard_tokens": 0},
        {"shard_tokens": 5},
        {"shard_tokens": SHARD_BYTES},
        {"shards": []},
        {"shards": ["text"]},
        {"shards": [b"short"]},
        {"shards": {}},
    ],
    ids=str,
)
def test_a_broken_document_is_refused(changes: dict[str, object], store: LocalStore) -> None:
    with pytest.raises(MalformedDataset):
        DatasetIndex.from_bytes(document(store, **changes))


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xa0", b"\x80", b"\x81" * 5000])
def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedDataset):
        DatasetIndex.from_bytes(data)


@pytest.mark.parametrize("shard", [b"x" * 18, b"x" * 22, b"x" * 19, b""])
def test_a_shard_of_another_length_is_refused(shard: bytes, store: LocalStore) -> None:
    data = document(store, shards=[store.add_block(shard).to_bytes()])
    cid = store.add_block(data, DAG_CBOR)
    with pytest.raises(MalformedDataset):
        Dataset.open(store, cid.to_bytes())


def test_a_missing_or_damaged_shard_is_named(store: LocalStore) -> None:
    cid = write_dataset(np.arange(10, dtype=np.uint16), "uint16", store)
    shard = DatasetIndex.from_bytes(store.read_bytes(cid, 1 << 20)).shards[0]
    path = next(p for p in store.root.rglob(shard.digest.hex()))
    path.write_bytes(b"y" * 20)
    with pytest.raises(CorruptBlock):
        Dataset.open(store, cid.to_bytes())
    with pytest.raises(NotFound):
        Dataset.open(store, cid.to_bytes())
    with pytest.raises(NotFound):
        Dataset.open(store, Cid.of(b"nothing").to_bytes())


def test_a_file_that_is_no_tokenizer_is_refused(store: LocalStore) -> None:
    with pytest.raises(MalformedDataset, match=r"tokenizer\.json"):
        open_tokenizer(store, store.add_bytes(b"{}").to_bytes())
