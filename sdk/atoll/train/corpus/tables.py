"""Rows of tables: Parquet, Arrow and CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from atoll.numerics.errors import DataUnusable
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.rows import (
    LONG_BYTES,
    MAX_ROW_BYTES,
    START,
    BadRow,
    Position,
    TextRow,
    check_columns,
    columns,
)
from atoll.train.corpus.streams import inner_suffix, need_pyarrow, open_stream, reading

if TYPE_CHECKING:
    from types import ModuleType

_ROWS_AT_ONCE: Final = 256
_BYTES_AT_ONCE: Final = 1 << 24
"""Of Parquet rows that are read at once, as their row group says; one row may have more."""
_ARROW_FILE: Final = b"ARROW1"
MAX_CSV_BYTES: Final = 1 << 22
"""Of a row of CSV, whose reader holds four bytes a letter."""
_DELIMITERS: Final = (",", ";", "\t", "|")


# --- Parquet and Arrow ---


def arrow_rows(
    path: Path, kind: str, options: DataOptions, position: Position
) -> Iterator[TextRow]:
    """Rows of Parquet and Arrow files, of Parquet a few hundred at once.

    Raises:
        DataUnusable: the file is damaged, or has no such column of text, or two.
    """
    arrow = need_pyarrow(path)
    number = position[0]
    batches = _parquet_batches if kind == "parquet" else _arrow_batches
    try:
        for batch in batches(path, options, number):
            # Arrow trusts the offsets that a file names, wherever they lead.
            batch.validate(full=True)
            for values in zip(*batch.columns, strict=True):
                name, start = f"{path}, row {number + 1}", (number, 0, 0)
                number += 1
                fields = dict(zip(batch.schema.names, map(_value, values), strict=True))
                yield TextRow(_checked(fields, name, options), name, start, (number, 0, 0))
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataUnusable(
            f"{path}, after row {number}: {str(error).partition(chr(10))[0]}",
            next_step="the file is damaged or of another format: write it again",
        ) from error


def _parquet_batches(path: Path, options: DataOptions, start: int) -> Iterator[Any]:
    arrow = need_pyarrow(path)
    import pyarrow.parquet as pq  # noqa: PLC0415 (an extra)

    schema = pq.read_schema(path)
    names = _text_columns(arrow, schema, options, path)
    # A text that a file has once and rows name a million times stays one in memory.
    named = [c for c in names if schema.field(c).type in (arrow.string(), arrow.large_string())]
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, read_dictionary=named) as file:
        before = 0
        for group in range(file.num_row_groups):
            metadata = file.metadata.row_group(group)
            rows = metadata.num_rows
            if before + rows > start:
                fitting = _BYTES_AT_ONCE * rows // max(metadata.total_byte_size, 1)
                batches = file.iter_batches(
                    min(max(fitting, 1), _ROWS_AT_ONCE),
                    row_groups=[group],
                    columns=list(names),
                    use_threads=False,
                )
                yield from _after(batches, start - before)
            before += rows


def _arrow_batches(path: Path, options: DataOptions, start: int) -> Iterator[Any]:
    arrow = need_pyarrow(path)
    with arrow.OSFile(str(path)) as file, _arrow_reader(arrow, path, file) as reader:
        names = list(_text_columns(arrow, reader.schema, options, path))
        batches = _batches(reader) if hasattr(reader, "num_record_batches") else reader
        yield from _after((batch.select(names) for batch in batches), start)


def _arrow_reader(arrow: ModuleType, path: Path, file: Any) -> Any:
    """A reader of batches: `datasets` writes Arrow's stream format, others its file format."""
    import pyarrow.ipc  # noqa: PLC0415, F401 (an extra; reached through `arrow`)

    with reading(path), path.open("rb") as head:
        is_file = head.read(len(_ARROW_FILE)) == _ARROW_FILE
    return arrow.ipc.open_file(file) if is_file else arrow.ipc.open_stream(file)


def _batches(reader: Any) -> Iterator[Any]:
    return (reader.get_batch(index) for index in range(reader.num_record_batches))


def _after(batches: Any, skip: int) -> Iterator[Any]:
    """Batches without the first `skip` rows."""
    skip = max(skip, 0)
    for batch in batches:
        rest = batch.slice(min(skip, batch.num_rows))
        skip = max(skip - batch.num_rows, 0)
        if rest.num_rows:
            yield rest


def _text_columns(
    arrow: ModuleType, schema: Any, options: DataOptions, path: Path
) -> tuple[str, ...]:
    """The columns that are read. Raises DataUnusable where there are none, or of another type."""
    columns_there = check_columns(path, list(schema.names), options)
    if not options.chat:
        kind = schema.field(columns_there[0]).type
        value = kind.value_type if arrow.types.is_dictionary(kind) else kind
        texts = {arrow.string(), arrow.large_string(), arrow.null()}
        if value not in texts and str(value) != "string_view":
            raise DataUnusable(
                f"{path}: the column {columns_there[0]!r} is of {kind}, not text",
                next_step="say which field has the text, and of conversations data.chat = true",
            )
    return columns_there


def _value(scalar: Any) -> object:
    """A value in Python; of a long text, where it lies in Arrow's memory."""
    inner = scalar
    if hasattr(scalar, "dictionary"):
        inner = scalar.value
    if inner is not None and hasattr(inner, "as_buffer"):
        buffer = inner.as_buffer()
        if buffer is not None and buffer.size > LONG_BYTES:
            return _Lying(memoryview(buffer))
    return scalar.as_py()


class _Lying:
    """A long text where it lies; a `LongText`."""

    def __init__(self, view: memoryview) -> None:
        self._view, self.size = view.cast("B"), view.nbytes
        self.digest = sha256(view).digest()
        parts = (self.read(at, LONG_BYTES) for at in range(0, self.size, LONG_BYTES))
        self.has_nul = any(b"\0" in part for part in parts)

    def read(self, offset: int, size: int) -> bytes:
        """Letters in UTF-8."""
        return bytes(self._view[offset : offset + size])


def _checked(
    fields: dict[str, object], name: str, options: DataOptions
) -> Mapping[str, object] | BadRow:
    long = [value for value in fields.values() if isinstance(value, _Lying)]
    if any(text.size > MAX_ROW_BYTES for text in long):
        fault = f"more than {MAX_ROW_BYTES} bytes"
        return BadRow(name, fault, "too long", "cut longer documents")
    if long and options.chat:
        fault = f"a text of more than {LONG_BYTES} bytes, which no conversation has"
        return BadRow(name, fault, "too long")
    return fields


# --- CSV ---


def csv_rows(path: Path, options: DataOptions, position: Position) -> Iterator[TextRow]:
    """Rows of CSV whose first line names the columns; fields in quotes may have ends of lines.

    The delimiter is a tab in `.tsv`, else the first of `,` `;` tab `|` by which the header has the
    column of the text.

    Raises:
        DataUnusable: no such header, or two columns of one name.
    """
    # Of the whole process, and nobody else reads CSV in it.
    csv.field_size_limit(MAX_CSV_BYTES)
    with open_stream(path) as stream:
        lines = _Lines(stream, path, START)
        header, delimiter = _header(lines, path, options)
        begin = lines.position
    start = position if position[0] else begin
    with open_stream(path, start[0]) as stream:
        lines = _Lines(stream, path, start)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        while True:
            before, name = lines.position, f"{path}, line {lines.position[1] + 1}"
            lines.begin_row()
            try:
                values = next(reader, None)
            except (csv.Error, UnicodeDecodeError) as error:
                fault = BadRow(name, f"no row of CSV: {error}", "no CSV")
                yield TextRow(fault, name, before, lines.position)
                continue
            if values is None:
                return
            if values:  # else an empty line
                yield TextRow(_named(header, values, name), name, before, lines.position)


class _Lines:
    """A file's lines, and where the last of them ends."""

    def __init__(self, stream: BinaryIO, path: Path, position: Position) -> None:
        self._stream, self._path, self.position = stream, path, position
        self._left = MAX_CSV_BYTES

    def begin_row(self) -> None:
        """Lets the next row have its bytes."""
        self._left = MAX_CSV_BYTES

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        start, line, _ = self.position
        with reading(self._path, f"line {line + 1}"):
            raw = self._stream.readline(MAX_CSV_BYTES + 1)
        if not raw:
            raise StopIteration
        self.position = start + len(raw), line + 1, 0
        self._left -= len(raw)
        if self._left < 0:
            raise csv.Error(f"more than {MAX_CSV_BYTES} bytes; is a quote left open?")
        return raw.decode()


def _header(lines: _Lines, path: Path, options: DataOptions) -> tuple[list[str], str]:
    """The names of the columns, and the delimiter. Raises DataUnusable."""
    delimiters = ("\t",) if inner_suffix(path) == ".tsv" else _DELIMITERS
    try:
        line = next(lines, "")
        tried = [
            (next(csv.reader([line], delimiter=mark, strict=True), []), mark) for mark in delimiters
        ]
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataUnusable(
            f"{path}, line 1: no header of CSV: {error}",
            next_step="its first line is to name the columns; mend it, or take the file out",
        ) from error
    fitting = next((header for header in tried if columns(options, header[0])), None)
    # Where no delimiter finds the text, the one that finds most columns is its own.
    names, mark = fitting or max(tried, key=lambda header: len(header[0]))
    check_columns(path, names, options)
    return names, mark


def _named(header: Sequence[str], values: list[str], name: str) -> dict[str, object] | BadRow:
    if len(values) != len(header):
        fault = f"{len(values)} fields, where the header has {len(header)}"
        return BadRow(name, fault, "no CSV")
    return dict(zip(header, values, strict=True))
