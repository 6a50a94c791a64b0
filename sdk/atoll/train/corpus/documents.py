"""Files as streams of documents, in the memory of a MiB of text.

Rule of this file: whatever a reader gives can be had again from its `position`, and a damaged file
is refused by name, line or row. Texts are bytes of UTF-8, or any bytes but zero where no tokenizer
reads them; a zero byte is what ends a document there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from atoll.numerics.errors import DataUnusable
from atoll.train.corpus.jsonrows import json_rows
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.rows import (
    START,
    BadRow,
    LongText,
    Position,
    TextRow,
    columns,
    nothing_under,
)
from atoll.train.corpus.source_files import SourceFile
from atoll.train.corpus.streams import open_stream, reading
from atoll.train.corpus.tables import arrow_rows, csv_rows
from atoll.train.corpus.talks import Messages, messages_of

SECTION_BYTES: Final = 1 << 16
MAX_TALK_BYTES: Final = 1 << 20
"""Of a conversation, which is rendered and tokenised whole: in some 350 times its bytes."""
_LEAST_SECTION_BYTES: Final = 1 << 8
_SECTIONS: Final = 1 << 10
_MARK: Final = "\ufeff"
EMPTY: Final = "empty"
"""Why a row without a letter is excluded; that is no fault."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text or a conversation, or a section of a text.

    Attributes:
        content: UTF-8, or messages.
        before: bytes of the same text before it, which is long and comes in sections.
        name: its file, and line, row or byte, for complaints.
        position: where its file goes on after it.
        whole: SHA-256 of all of the row's text, of which it is a section; else empty.
    """

    content: bytes | Messages
    before: int
    name: str
    position: Position
    whole: bytes = b""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that is excluded: why, in a word or two, and where its file goes on after it."""

    reason: str
    position: Position


Read: TypeAlias = Document | Skipped


def section_bytes(total: int) -> int:
    """How long sections of text files are, for so many bytes of all files.

    A power of two, so that there are about a thousand sections, between 256 bytes and 64 KiB: one
    long file has something to hold out, and no section is longer than what is tokenised at once.
    """
    wanted = max(total // _SECTIONS, 1)
    return min(max(1 << (wanted.bit_length() - 1), _LEAST_SECTION_BYTES), SECTION_BYTES)


def read_documents(
    source: SourceFile, options: DataOptions, section: int, position: Position = START
) -> Iterator[Read]:
    """The documents of a file after a position, and the rows that are excluded.

    Raises:
        BadRow: of a row that cannot be taken, unless such rows are skipped.
        DataUnusable: the file is damaged, or has no text under the options' column.
        DiskFull, StorageError: there is no room for a long row's temporary file.
    """
    if source.kind == "text":
        if options.chat:
            raise DataUnusable(
                f"{source.path} is text, which has no messages",
                next_step="give conversations as JSON, Parquet, CSV or a datasets folder",
            )
        yield from _sections(source.path, section, position)
        return
    for row in _rows(source, options, position):
        try:
            yield from _taken(row, options, position[2] if row.start[:2] == position[:2] else 0)
        except BadRow as bad:
            if options.bad_rows == "refuse":
                raise
            yield Skipped(bad.reason, row.after)


def _rows(source: SourceFile, options: DataOptions, position: Position) -> Iterator[TextRow]:
    if source.kind == "jsonl":
        return json_rows(source.path, options, position)
    if source.kind == "csv":
        return csv_rows(source.path, options, position)
    return arrow_rows(source.path, source.kind, options, position)


# --- text ---


def _sections(path: Path, section: int, position: Position) -> Iterator[Document]:
    """A text in sections that end with a line, or within one that is twice as long."""
    start = position[0]
    with open_stream(path, start) as stream:
        held = b""
        while True:
            with reading(path, f"after byte {start}"):
                held += stream.read(2 * section - len(held))
            if not held:
                return
            end = _section_end(held, section)
            nul = held.find(b"\0", 0, end)
            if nul >= 0:
                raise DataUnusable(
                    f"{path}: byte {start + nul} is a zero byte, which no text has",
                    next_step="a binary file, or UTF-16 without its mark? Leave it out, or write "
                    "it as UTF-8",
                )
            name = f"{path}, from byte {start}"
            yield Document(held[:end], start, name, (start + end, 0, 0))
            start, held = start + end, held[end:]


def _section_end(held: bytes, section: int) -> int:
    if len(held) <= section:
        return len(held)
    end = held.find(b"\n", section - 1) + 1
    if end or len(held) < 2 * section:
        return end or len(held)
    end = len(held)
    while end > len(held) - 4 and held[end - 1] & 0xC0 == 0x80:  # inside a letter of UTF-8
        end -= 1
    # What is before `end` now ends with a letter's first byte, which goes with the bytes after it.
    return end - 1 if held[end - 1] >= 0xC0 else len(held)


# --- what a row holds ---


def _taken(row: TextRow, options: DataOptions, start: int) -> Iterator[Read]:
    """A row's documents, of a long text those after so many bytes. Raises BadRow."""
    if isinstance(row.fields, BadRow):
        raise row.fields
    names = columns(options, row.fields.keys())
    if not names:
        fault, step = nothing_under(options, row.fields.keys())
        raise BadRow(row.name, fault, "no text under its column", step)
    if options.chat:
        messages = messages_of({name: row.fields[name] for name in names}, names[0], row.name)
        texts = [_utf8(message["role"] + message["content"], row.name) for message in messages]
        if sum(map(len, texts)) > MAX_TALK_BYTES:
            fault = f"a conversation of more than {MAX_TALK_BYTES} bytes"
            raise BadRow(row.name, fault, "too long", "cut it, or take the row out")
        yield Document(messages, 0, row.name, row.after)
        return
    value = row.fields[names[0]]
    if isinstance(value, str):
        text = _utf8(value.removeprefix(_MARK), row.name)
        yield Document(text, 0, row.name, row.after) if text else Skipped(EMPTY, row.after)
    elif isinstance(value, LongText):
        yield from _long(value, row, start)
    else:
        kind = "null" if value is None else type(value).__name__
        raise BadRow(
            row.name,
            f"{names[0]!r} is {kind}, not text",
            f"{kind} in place of text",
            "take the row out, or say which field has the text",
        )


def _long(text: LongText, row: TextRow, at: int) -> Iterator[Document]:
    """A long text of a row in sections, which are drawn together."""
    if text.has_nul:
        raise _zero(row.name)
    while at < text.size:
        held = text.read(at, 2 * SECTION_BYTES)
        end = _section_end(held, SECTION_BYTES)
        after = row.after if at + end == text.size else (*row.start[:2], at + end)
        yield Document(held[:end], at, row.name, after, text.digest)
        at += end


def _utf8(text: str, name: str) -> bytes:
    if "\0" in text:
        raise _zero(name)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        fault = "half of a surrogate pair, which no text has"
        raise BadRow(name, fault, "no text") from error


def _zero(name: str) -> BadRow:
    return BadRow(name, "a zero byte, which no text has", "a zero byte")
