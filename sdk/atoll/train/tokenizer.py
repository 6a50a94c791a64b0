"""The tokenizer of a data set, in the store; training reads tokens only. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from atoll.numerics.errors import MalformedDataset
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.belongings import MAX_TOKENIZER_BYTES, TOKENIZER, Belongings


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


def open_belongings(store: LocalStore, cid: bytes) -> Belongings:
    """What goes with a model: the tokenizer that its text was made with, and its folder.

    Raises:
        MalformedDataset: the file is none of belongings.
    """
    raw = store.read_bytes(Cid.from_bytes(cid), MAX_TOKENIZER_BYTES)
    try:
        return Belongings.from_bytes(raw)
    except ValueError as error:
        raise MalformedDataset(f"what goes with the model: {error}") from error


def open_tokenizer(store: LocalStore, cid: bytes) -> Tokenizer:
    """The tokenizer among these belongings.

    Raises:
        MalformedDataset: there is none.
    """
    raw = open_belongings(store, cid).files[TOKENIZER]
    try:
        return read_tokenizer(raw)
    except ValueError as error:
        raise MalformedDataset(f"tokenizer.json: {error}") from error


def read_tokenizer(raw: bytes) -> Tokenizer:
    """The tokenizer of a tokenizer.json. Raises ValueError where the bytes are none."""
    with tokenizing():
        return Tokenizer.from_str(raw.decode())


@contextmanager
def tokenizing() -> Iterator[None]:
    """Turns what a tokenizer ends in, which is somebody's program, into a ValueError."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a bare Exception, and of a panic in its Rust not even one
        raise ValueError(str(error)) from error
