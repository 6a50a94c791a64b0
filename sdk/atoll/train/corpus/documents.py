"""Files as streams of documents, in the memory of one document.

Rule of this file: whatever a reader gives can be had again from its `place`, and a damaged file is
refused by name, line or row. Texts are bytes of UTF-8, or any bytes where no tokenizer reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

from atoll.bits.errors import DataUnusable
from atoll.train.corpus.files import SourceFile, need_pyarrow, open_stream, reading
from atoll.train.corpus.options import DataOptions

if TYPE_CHECKING:
    from types import ModuleType

MAX_ROW_BYTES: Final = 1 << 26
SECTION_BYTES: Final = 1 << 16
_LEAST_SECTION_BYTES: Final = 1 << 8
_SECTIONS: Final = 1 << 10
_ROWS_AT_ONCE: Final = 256
_BYTES_AT_ONCE: Final = 1 << 24
"""Of Parquet rows that are read at once, as their row group says; one row may have more."""

Messages: TypeAlias = list[dict[str, str]]
Place: TypeAlias = tuple[int, int]
"""Where a file goes on: bytes and lines, or rows and 0, that lie before."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text or a conversation.

    Attributes:
        content: UTF-8, or messages.
        before: bytes of the same text before it, which is long and comes in sections.
        name: its file, and line, row or byte, for complaints.
        place: where its file goes on after it.
    """

    content: bytes | Messages
    before: int
    name: str
    place: Place


def section_bytes(total: int) -> int:
    """How long sections of text files are, for so many bytes of all files.

    A power of two, so that there are about a thousand sections, between 256 bytes and 64 KiB: one
    long file has something to hold out, and no section is longer than what is tokenised at once.
    """
    wanted = max(total // _SECTIONS, 1)
    return min(max(1 << (wanted.bit_length() - 1), _LEAST_SECTION_BYTES), SECTION_BYTES)


def read_documents(
    source: SourceFile, options: DataOptions, section: int, place: Place = (0, 0)
) -> Iterator[Document]:
    """The documents of a file after a place, empty ones left out.

    Raises:
        DataUnusable: the file is damaged, or a row has no text under the options' column.
    """
    if source.kind == "text":
        if options.chat:
            raise DataUnusable(
                f"{source.path} is text, which has no messages",
                next_step="give conversations as JSON lines, Parquet or a datasets folder",
            )
        return _sections(source.path, section, place)
    rows = _json_rows if source.kind == "jsonl" else _arrow_rows
    return (
        Document(content, 0, name, after)
        for value, name, after in rows(source, options, place)
        if (content := _content(value, name, options))
    )


# --- text ---


def _sections(path: Path, section: int, place: Place) -> Iterator[Document]:
    """A text in sections that end with a line, or within one that is twice as long."""
    start = place[0]
    with open_stream(path, start) as stream:
        held = b""
        while True:
            with reading(path, f"after byte {start}"):
                held += stream.read(2 * section - len(held))
            if not held:
                return
            end = _section_end(held, section)
            name = f"{path}, from byte {start}"
            yield Document(held[:end], start, name, (start + end, 0))
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


# --- rows ---


def _json_rows(
    source: SourceFile, options: DataOptions, place: Place
) -> Iterator[tuple[object, str, Place]]:
    start, line = place
    with open_stream(source.path, start) as stream:
        while True:
            raw = _line(stream, source.path, line + 1)
            if not raw:
                return
            start, line = start + len(raw), line + 1
            name = f"{source.path}, line {line}"
            if raw.strip():
                yield _field(raw, name, options), name, (start, line)


def _line(stream: BinaryIO, path: Path, number: int) -> bytes:
    with reading(path, f"line {number}"):
        raw = stream.readline(MAX_ROW_BYTES + 1)
    if len(raw) > MAX_ROW_BYTES:
        raise DataUnusable(
            f"{path}, line {number}: more than {MAX_ROW_BYTES} bytes",
            next_step="is this JSON lines, one object a line? Cut longer documents",
        )
    return raw


def _field(raw: bytes, name: str, options: DataOptions) -> object:
    try:
        row = json.loads(raw.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError) as error:
        raise DataUnusable(
            f"{name}: not JSON: {str(error) or type(error).__name__}",
            next_step="mend the line, or take it out",
        ) from error
    if not isinstance(row, dict) or options.column not in row:
        has = ", ".join(map(str, row)) if isinstance(row, dict) else type(row).__name__
        raise DataUnusable(
            f"{name}: nothing under {options.column!r}, but {has[:200]}",
            next_step="say which field has the text",
        )
    return row[options.column]


def _arrow_rows(
    source: SourceFile, options: DataOptions, place: Place
) -> Iterator[tuple[object, str, Place]]:
    """Rows of Parquet and Arrow files, of Parquet a few hundred at once."""
    arrow = need_pyarrow(source.path)
    row = place[0]
    values = _parquet_values if source.kind == "parquet" else _stream_values
    try:
        for value in values(source.path, options.column, row):
            row += 1
            yield value, f"{source.path}, row {row}", (row, 0)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataUnusable(
            f"{source.path}, after row {row}: {str(error).partition(chr(10))[0]}",
            next_step="the file is damaged or of another format: write it again",
        ) from error


def _parquet_values(path: Path, column: str, start: int) -> Iterator[Any]:
    arrow = need_pyarrow(path)
    import pyarrow.parquet as pq  # noqa: PLC0415 (an extra)

    schema = pq.read_schema(path)
    _check_column(schema, column, path)
    is_text = schema.field(column).type in (arrow.string(), arrow.large_string())
    # A text that a file has once and rows name a million times stays one in memory.
    named = {"read_dictionary": [column]} if is_text else {}
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, **named) as file:
        before = 0
        for group in range(file.num_row_groups):
            said = file.metadata.row_group(group)
            rows = said.num_rows
            if before + rows > start:
                fitting = _BYTES_AT_ONCE * rows // max(said.total_byte_size, 1)
                batches = file.iter_batches(
                    min(max(fitting, 1), _ROWS_AT_ONCE),
                    row_groups=[group],
                    columns=[column],
                    use_threads=False,
                )
                yield from _after(batches, column, start - before)
            before += rows


def _stream_values(path: Path, column: str, start: int) -> Iterator[Any]:
    arrow = need_pyarrow(path)
    with arrow.OSFile(str(path)) as file, _arrow_reader(arrow, file) as reader:
        _check_column(reader.schema, column, path)
        yield from _after(reader, column, start)


def _arrow_reader(arrow: ModuleType, file: Any) -> Any:
    """A reader of batches: `datasets` writes Arrow's stream format."""
    import pyarrow.ipc  # noqa: PLC0415, F401 (an extra; reached through `arrow`)

    return arrow.ipc.open_stream(file)


def _after(batches: Any, column: str, skip: int) -> Iterator[Any]:
    """The values of batches without the first `skip`, each made when it is asked for."""
    skip = max(skip, 0)
    for batch in batches:
        values = batch.column(column)
        values.validate(full=True)  # Arrow trusts the offsets that a file names, wherever they lead
        for value in values.slice(min(skip, len(values))):
            yield value.as_py()
        skip = max(skip - len(values), 0)


def _check_column(schema: Any, column: str, path: Path) -> None:
    if column not in schema.names:
        raise DataUnusable(
            f"{path}: no column {column!r}, but {', '.join(schema.names)[:200]}",
            next_step="say which column has the text",
        )


# --- what a row holds ---


def _content(value: object, name: str, options: DataOptions) -> bytes | Messages:
    if options.chat:
        return _messages(value, name)
    if not isinstance(value, str):
        raise DataUnusable(
            f"{name}: {options.column!r} is {type(value).__name__}, not text",
            next_step="take the row out, or say which field has the text",
        )
    return _utf8(value, name)


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DataUnusable(
            f"{name}: half of a surrogate pair, which no text has",
            next_step="mend the row, or take it out",
        ) from error


def _messages(value: object, name: str) -> Messages:
    found: Messages = []
    for message in value if isinstance(value, list) else [None]:
        role = message.get("role") if isinstance(message, dict) else None
        text = message.get("content") if isinstance(message, dict) else None
        if not isinstance(role, str) or not isinstance(text, str):
            raise DataUnusable(
                f"{name}: not a list of messages with a role and a content, both text",
                next_step="tool calls and contents in parts are not taken: take the row out",
            )
        _utf8(role + text, name)
        found.append({"role": role, "content": text})
    if not any(message["role"] == "assistant" for message in found):
        raise DataUnusable(
            f"{name}: no message of the assistant, so nothing to learn",
            next_step="take the row out",
        )
    return found
