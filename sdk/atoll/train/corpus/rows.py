"""What every reader of rows gives, and what a row that cannot be taken is.

Rule of this file: a fault of one row is told from a fault of its file, since the one may be left
out (`data.bad_rows`) and the other may not: what comes after it is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias, runtime_checkable

from atoll.numerics.errors import DataUnusable
from atoll.train.corpus.options import DataOptions

LONG_BYTES: Final = 1 << 20
"""A text that is longer than this is not held whole."""
MAX_ROW_BYTES: Final = 1 << 26

Position: TypeAlias = tuple[int, int, int]
"""Where a file goes on: bytes and lines, or rows and 0, that lie before, and how many bytes of the
row there are done, if its text is long."""
START: Final[Position] = (0, 0, 0)


class BadRow(DataUnusable):
    """A row that cannot be taken.

    Attributes:
        reason: the kind of fault, by which such rows are counted.
    """

    def __init__(self, name: str, fault: str, reason: str, next_step: str = "") -> None:
        mend = next_step or "mend the row, or take it out"
        super().__init__(
            f"{name}: {fault}", next_step=f'{mend}; data.bad_rows = "skip" leaves such rows out'
        )
        self.reason = reason


@runtime_checkable
class LongText(Protocol):
    """A text of more than `LONG_BYTES`, in UTF-8, of which a part is held."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def digest(self) -> bytes:
        """SHA-256 of all of it."""

    @property
    def has_nul(self) -> bool:
        """Whether a zero byte is in it."""

    def read(self, offset: int, size: int) -> bytes:
        """So many bytes from an offset on, less at the end."""


@dataclass(frozen=True, slots=True)
class TextRow:
    """A row as it was read.

    Attributes:
        fields: by column; the fault where there are none.
        name: its file, and line or row.
        start, after: where its file goes on with it, and after it.
    """

    fields: Mapping[str, object] | BadRow
    name: str
    start: Position
    after: Position


# --- columns ---

MESSAGES: Final = "messages"
SHAREGPT: Final = "conversations"
INSTRUCTION, OUTPUT = "instruction", "output"
ALPACA: Final = (INSTRUCTION, OUTPUT)
BESIDE_MESSAGES: Final = ("system", "tools", "functions", "images", "videos", "audios")
"""Columns of conversations that say something of what is learned, beside the messages."""
BESIDE_ALPACA: Final = ("input", "system", "history", "tools", "images", "videos", "audios")


def columns(options: DataOptions, names: Collection[str]) -> tuple[str, ...]:
    """Of a row's columns, those that its text is made of, what it cannot be without first.

    Empty where a row with these columns has no text.
    """
    if not options.chat:
        return (options.column,) if options.column in names else ()
    for column in (options.field,) if options.field else (MESSAGES, SHAREGPT):
        if column in names:
            return column, *(name for name in BESIDE_MESSAGES if name in names and name != column)
    if not options.field and all(name in names for name in ALPACA):
        return *ALPACA, *(name for name in BESIDE_ALPACA if name in names)
    return ()


def nothing_under(options: DataOptions, names: Collection[str]) -> tuple[str, str]:
    """What to say of columns among which there is no text, and what to do."""
    has = ", ".join(map(str, names))[:200] or "nothing at all"
    if not options.chat:
        step = "say which field has the text"
        chat = DataOptions((), chat=True)
        return f"nothing under {options.column!r}, but {has}", (
            f"{step}, or that they are conversations (data.chat = true)"
            if columns(chat, names)
            else step
        )
    wanted = f"{options.field!r}" if options.field else (
        f"{MESSAGES!r}, {SHAREGPT!r} (ShareGPT), or {INSTRUCTION!r} and {OUTPUT!r} (Alpaca)"
    )  # fmt: skip
    return f"nothing under {wanted}, but {has}", "say which field has the messages"


def check_columns(path: Path, names: list[str], options: DataOptions) -> tuple[str, ...]:
    """The columns of a table that are read. Raises DataUnusable where none has text, or two do."""
    names_there = columns(options, names)
    if not names_there:
        fault, step = nothing_under(options, names)
        raise DataUnusable(f"{path}: {fault}", next_step=step)
    for name in names_there:
        if names.count(name) > 1:
            raise DataUnusable(
                f"{path}: {names.count(name)} columns are called {name!r}",
                next_step="rename them, so that one is the text",
            )
    return names_there
