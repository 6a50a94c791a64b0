"""Text to tokens to content-addressed shards, and back to one array of tokens.

Needs no torch. A dataset is a DAG-CBOR document that names its shards in order; every shard but
the last holds `shard_tokens` tokens, raw little-endian, at most 1 MiB, so each is a single block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from atoll.bits.errors import DataUnusable, MalformedDataset
from atoll.bits.pieces import piece_root
from atoll.bits.tokens import DTYPES, Tokens
from atoll.content.cid import DAG_CBOR, Cid
from atoll.content.local import LocalStore
from atoll.law.canonical import decode, encode
from atoll.law.words import Digest

SHARD_BYTES = 1 << 20
MAX_DOCUMENT_BYTES = 1 << 20
MAX_TOKENIZER_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class PreparedData:
    """A prepared dataset, in the terms of the manifest's data section. CIDs are binary."""

    train_cid: bytes
    train_root: Digest
    eval_cid: bytes
    tokenizer_cid: bytes
    dtype: str
    train_tokens: int
    eval_tokens: int
    vocab: int


def byte_tokenizer() -> Tokenizer:
    """A tokenizer without merges: token i is byte i, 256 in all."""
    alphabet = _byte_alphabet()
    vocab = {letter: byte for byte, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _byte_alphabet() -> list[str]:
    """GPT-2's printable letter for each byte: itself where printable, else from U+0100 up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    shifted = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(shifted)) for byte in range(256)]


def find_text_files(paths: Sequence[Path], suffixes: frozenset[str] | None = None) -> list[Path]:
    """The files at `paths`, folders searched in depth, in sorted order.

    Raises:
        DataUnusable: a path does not exist, or there is no file at all.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise DataUnusable(f"no such file or folder: {path}", next_step="check --data")
        inside = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        found.extend(p for p in inside if p == path or not suffixes or p.suffix in suffixes)
    if not found:
        raise DataUnusable(f"no text files under {', '.join(map(str, paths))}")
    return found


def prepare_dataset(
    paths: Sequence[Path],
    store: LocalStore,
    tokenizer: Tokenizer | None = None,
    eval_share: float = 0.05,
    max_tokens: int | None = None,
) -> PreparedData:
    """Tokenises files into shards in the store: the last `eval_share` of the tokens is held out.

    Args:
        paths: text files; their order is the order of the tokens.
        store: where shards, documents and tokenizer.json go.
        tokenizer: None means bytes, which also takes files that are not UTF-8.
        eval_share: between 0 and 0.5.
        max_tokens: reads no further once it has that many.

    Raises:
        DataUnusable: a file cannot be read, is not UTF-8 where it must be, or there is too little.
    """
    encoder = tokenizer or byte_tokenizer()
    vocab = encoder.get_vocab_size()
    dtype = next(name for name, kind in DTYPES.items() if vocab - 1 <= np.iinfo(kind).max)
    tokens = _tokenise(paths, tokenizer, DTYPES[dtype], max_tokens)
    held_out = int(len(tokens) * eval_share)
    if not 0.0 < eval_share <= 0.5 or held_out < 2:
        raise DataUnusable(f"{len(tokens)} tokens leave {held_out} to evaluate on")
    train, evaluation = tokens[:-held_out], tokens[-held_out:]
    return PreparedData(
        train_cid=write_dataset(train, dtype, store).to_bytes(),
        train_root=root_of(train),
        eval_cid=write_dataset(evaluation, dtype, store).to_bytes(),
        tokenizer_cid=store.add_bytes(encoder.to_str().encode()).to_bytes(),
        dtype=dtype,
        train_tokens=len(train),
        eval_tokens=len(evaluation),
        vocab=vocab,
    )


def _tokenise(
    paths: Sequence[Path],
    tokenizer: Tokenizer | None,
    dtype: np.dtype[Any],
    max_tokens: int | None,
) -> Tokens:
    pieces: list[Tokens] = []
    total = 0
    for path in paths:
        pieces.append(_file_tokens(path, tokenizer).astype(dtype))
        total += len(pieces[-1])
        if max_tokens is not None and total >= max_tokens:
            break
    return np.concatenate(pieces)[:max_tokens] if pieces else np.empty(0, dtype)


def _file_tokens(path: Path, tokenizer: Tokenizer | None) -> Tokens:
    try:
        raw = path.read_bytes()
        if tokenizer is None:
            return np.frombuffer(raw, dtype=np.uint8)
        return np.array(tokenizer.encode(raw.decode()).ids, dtype=np.uint32)
    except (OSError, UnicodeDecodeError) as error:
        raise DataUnusable(
            f"cannot read {path}: {error}", next_step="leave the file out"
        ) from error


def root_of(tokens: Tokens) -> Digest:
    """The piece root of the tokens' raw bytes; reads them where they lie."""
    return piece_root(tokens.data)


def write_dataset(tokens: Tokens, dtype: str, store: LocalStore) -> Cid:
    """Writes shards and their document; returns the document's CID (a DAG-CBOR block)."""
    shard_tokens = SHARD_BYTES // DTYPES[dtype].itemsize
    shards = [
        store.add_block(tokens[start : start + shard_tokens].astype(DTYPES[dtype]).tobytes())
        for start in range(0, len(tokens), shard_tokens)
    ]
    document = encode(
        {
            "kind": "atoll.dataset.v1",
            "dtype": dtype,
            "tokens": len(tokens),
            "shard_tokens": shard_tokens,
            "shards": [cid.to_bytes() for cid in shards],
        }
    )
    return store.add_block(document, DAG_CBOR)


@dataclass(frozen=True, slots=True)
class DatasetIndex:
    """A dataset's document: what there is to fetch before training."""

    dtype: str
    tokens: int
    shard_tokens: int
    shards: tuple[Cid, ...]

    @classmethod
    def from_bytes(cls, data: bytes) -> DatasetIndex:
        """Raises MalformedDataset unless the document is canonical and its numbers agree."""
        try:
            plain = decode(data, MAX_DOCUMENT_BYTES)
            if not isinstance(plain, dict) or plain.pop("kind", None) != "atoll.dataset.v1":
                raise ValueError("another kind of document")
            index = cls(
                _text(plain.pop("dtype")),
                _count(plain.pop("tokens")),
                _count(plain.pop("shard_tokens")),
                tuple(_cids(plain.pop("shards"))),
            )
            if plain:
                raise ValueError(f"unknown fields {sorted(plain)}")
        except (ValueError, KeyError) as error:
            raise MalformedDataset(f"dataset document: {error}") from error
        if index.dtype not in DTYPES or index.shard_bytes > SHARD_BYTES:
            raise MalformedDataset("dataset document: shards of another dtype or above 1 MiB")
        if len(index.shards) != -(-index.tokens // index.shard_tokens):
            raise MalformedDataset(f"dataset document: {len(index.shards)} shards for its tokens")
        return index

    @property
    def shard_bytes(self) -> int:
        """Bytes of every shard but the last."""
        return self.shard_tokens * DTYPES[self.dtype].itemsize


class Dataset:
    """A dataset whose every shard has been checked against its CID.

    Attributes:
        tokens: all of them in one read-only array of the dataset's dtype.
        index: its document.
    """

    def __init__(self, index: DatasetIndex, tokens: Tokens) -> None:
        self.index = index
        self.tokens = tokens
        self.tokens.flags.writeable = False

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def open(cls, store: LocalStore, cid: bytes) -> Dataset:
        """Reads document and shards from the store into one contiguous array.

        Raises:
            NotFound, CorruptBlock: a block is missing or damaged.
            MalformedDataset: the document is not canonical, or a shard has another length.
        """
        index = DatasetIndex.from_bytes(store.read_bytes(Cid.from_bytes(cid), MAX_DOCUMENT_BYTES))
        tokens = np.empty(index.tokens, dtype=DTYPES[index.dtype])
        start = 0
        for shard in _shards(store, index):
            end = start + len(shard)
            if end > index.tokens or (len(shard) != index.shard_tokens and end != index.tokens):
                raise MalformedDataset(f"shard at token {start} has {len(shard)} tokens")
            tokens[start:end] = shard
            start = end
        if start != index.tokens:
            raise MalformedDataset(f"shards hold {start} tokens of {index.tokens}")
        return cls(index, tokens)


def _shards(store: LocalStore, index: DatasetIndex) -> Iterator[Tokens]:
    dtype = DTYPES[index.dtype]
    for cid in index.shards:
        block = store.get_block(cid)
        if len(block) % dtype.itemsize:
            raise MalformedDataset(f"shard {cid} is not a whole number of tokens")
        yield np.frombuffer(block, dtype=dtype)


def open_tokenizer(store: LocalStore, cid: bytes) -> Tokenizer:
    """The tokenizer.json with this CID.

    Raises:
        MalformedDataset: the file is not a tokenizer.
    """
    text = store.read_bytes(Cid.from_bytes(cid), MAX_TOKENIZER_BYTES)
    try:
        return Tokenizer.from_str(text.decode())
    except Exception as error:  # the library raises bare Exception
        raise MalformedDataset(f"tokenizer.json: {error}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a field is not a string")
    return value


def _count(value: object) -> int:
    if type(value) is not int or not 1 <= value < 1 << 48:
        raise ValueError("a count is not a positive integer")
    return value


def _cids(value: object) -> Iterable[Cid]:
    if not isinstance(value, list):
        raise ValueError("shards is not a list")
    for item in value:
        if not isinstance(item, bytes):
            raise ValueError("a shard's CID is not bytes")
        cid = Cid.from_bytes(item)
        yield cid
