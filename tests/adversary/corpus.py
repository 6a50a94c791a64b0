"""Bytes to train on that every Python installation has, in kinds that differ as languages do."""

from __future__ import annotations

import sysconfig
from enum import StrEnum
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.uint8]
KIND_BYTES = 1 << 20
HELD_OUT = 1 << 16


class Mix(StrEnum):
    """Whose text a seat draws its batches from."""

    SHARED = "shared"
    """Everyone from all of the same text, as the protocol's data seed does."""
    SHARDS = "shards"
    """Each from its own n-th of the same text."""
    KINDS = "kinds"
    """Seat i from kind i mod 4 of text: code, prose, tables, C headers."""


@cache
def kinds() -> tuple[Tokens, ...]:
    """Code, prose, tables, C headers; about a mebibyte each at most."""
    library = Path(sysconfig.get_path("stdlib"))
    groups = (
        library.glob("*.py"),
        [library / "pydoc_data" / "topics.py"],
        (library / "encodings").glob("cp*.py"),
        Path(np.get_include()).rglob("*.h"),
    )
    return tuple(_read(sorted(group)) for group in groups)


def _read(paths: list[Path]) -> Tokens:
    data = b"".join(path.read_bytes() for path in paths)
    return np.frombuffer(data[:KIND_BYTES], dtype=np.uint8)


@cache
def text_of(mix: Mix) -> tuple[tuple[Tokens, ...], Tokens]:
    """(training texts, held-out text). All kinds are in both where `mix` is by kind."""
    if mix is Mix.KINDS:
        train = tuple(kind[: -HELD_OUT // 4] for kind in kinds())
        return train, np.concatenate([kind[-HELD_OUT // 4 :] for kind in kinds()])
    code = kinds()[0]
    return (code[:-HELD_OUT],), code[-HELD_OUT:]


def seat_text(mix: Mix, seat: int, seats: int) -> Tokens:
    """What the seat draws from."""
    train, _ = text_of(mix)
    if mix is Mix.SHARDS:
        return np.array_split(train[0], seats)[seat]
    return train[seat % len(train)]
