"""Rows of JSON: an object a line, or one array of objects.

Rule of this file: nothing longer than a few MiB is held. Long texts of a row go through a temporary
file, and what is left of the row is parsed as JSON with placeholders in their stead.
"""

from __future__ import annotations

import codecs
import re
import weakref
from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any, BinaryIO, Final

from atoll.nested import loads
from atoll.numerics.errors import DataUnusable
from atoll.storage.blocks import disk_errors
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.rows import LONG_BYTES, MAX_ROW_BYTES, BadRow, Position, TextRow
from atoll.train.corpus.streams import open_stream, reading

_MOST_BESIDE: Final = 4 * LONG_BYTES
"""Of a row, without its long texts."""
_CHUNK_BYTES: Final = 1 << 18
_SPACE: Final = b" \t\r\n"
_BLANK: Final = re.compile(rb"[ \t\r\n]*+")
_OUTSIDE: Final = re.compile(rb'["{}\[\]]')
_INSIDE: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_SCALAR: Final = re.compile(rb"[^\s,\]]*+")
# No escape is cut, and no pair of escapes that is one letter.
_WHOLE: Final = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u(?![dD][89aAbB])[0-9a-fA-F]{4}"
    rb"|\\u[dD][89aAbB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4})*+",
    re.DOTALL,
)
_LONGEST_LETTER: Final = 12  # bytes: a pair of escapes
_UTF8: Final = codecs.getincrementaldecoder("utf-8")


def json_rows(path: Path, options: DataOptions, position: Position) -> Iterator[TextRow]:
    """The rows of a file from a position on. Raises DataUnusable where it is damaged between."""
    with open_stream(path) as stream:
        is_array = _first_byte(stream, path) == b"["
    start, before, _ = position
    with open_stream(path, start) as stream:
        if is_array:
            yield from _Array(stream, path, start, options).rows(before)
        else:
            yield from _lines(stream, path, position, options)


def _first_byte(stream: BinaryIO, path: Path) -> bytes:
    while True:
        with reading(path):
            part = stream.read(_CHUNK_BYTES)
        if not part or part.strip(_SPACE):
            return part.strip(_SPACE)[:1]


# --- lines ---


def _lines(
    stream: BinaryIO, path: Path, position: Position, options: DataOptions
) -> Iterator[TextRow]:
    start, before, _ = position
    for line in count(before + 1):
        name = f"{path}, line {line}"
        with reading(path, f"line {line}"):
            raw = stream.readline(LONG_BYTES + 1)
        if not raw:
            return
        size, scanned = len(raw), None
        if size > LONG_BYTES:
            size, scanned = _long_line(raw, stream, path, options)
        after = start + size
        if raw.strip():
            fields = _parsed(raw, name) if scanned is None else scanned.fields(name, options)
            yield TextRow(fields, name, (start, line - 1, 0), (after, line, 0))
        start = after


def _long_line(raw: bytes, stream: BinaryIO, path: Path, options: DataOptions) -> tuple[int, _Scan]:
    """The rest of a line of which the first bytes are read: its bytes in all, and what it has."""
    scan, size = _Scan(), len(raw)
    rest = raw.removeprefix(codecs.BOM_UTF8)
    while True:
        rest = rest[scan.feed(rest, 0) :]
        if raw.endswith(b"\n") or (scan.is_over and options.bad_rows == "refuse"):
            break
        with reading(path):
            raw = stream.readline(_CHUNK_BYTES)
        if not raw:
            break
        size, rest = size + len(raw), rest + raw
    return size, scan


# --- arrays ---


class _Array:
    """One array of objects, read on from an offset that is its beginning or the end of a row."""

    def __init__(self, stream: BinaryIO, path: Path, offset: int, options: DataOptions) -> None:
        self._stream, self._path, self._options = stream, path, options
        self._data, self._at, self._offset = b"", 0, offset

    def rows(self, before: int) -> Iterator[TextRow]:
        """The rows after so many."""
        if not before:
            self._next()  # which is the bracket
            self._at += 1
        for number in count(before + 1):
            name = f"{self._path}, row {number}"
            start = self._offset + self._at
            mark = self._next()
            if mark == b"]" or not mark:
                break
            if number > 1:
                if mark != b",":
                    raise _broken(name, f"a comma before it, not {mark!r}")
                self._at += 1
                if self._next() in (b"]", b""):
                    raise _broken(name, "a row after the comma")
            scan = self._value(name)
            after = self._offset + self._at
            fields = scan.fields(name, self._options)
            yield TextRow(fields, name, (start, number - 1, 0), (after, number, 0))
        if not mark:
            raise _broken(name, "a row or the array's end, not the file's")
        self._at += 1
        if self._next():
            raise _broken(name, "nothing behind the array's end")

    def _value(self, name: str) -> _Scan:
        scan = _Scan()
        if self._next() not in (b"{", b"[", b'"'):
            while (end := self._match(_SCALAR)) == len(self._data) and self._read():
                pass
            if end == self._at:
                raise _broken(name, "a row")
            scan.skeleton += self._data[self._at : end]
            self._at = end
            return scan
        while not scan.has_ended:
            self._at = scan.feed(self._data, self._at, stops=True)
            if scan.is_over and self._options.bad_rows == "refuse":
                break
            if not scan.has_ended and not self._read():
                raise _broken(name, "its end, not the file's")
        return scan

    def _match(self, pattern: re.Pattern[bytes]) -> int:
        match = pattern.match(self._data, self._at)
        assert match is not None  # the pattern takes nothing, too
        return match.end()

    def _next(self) -> bytes:
        """The next byte that is no space, which is not taken; empty at the end."""
        while True:
            self._at = self._match(_BLANK)
            if self._at < len(self._data):
                return self._data[self._at : self._at + 1]
            if not self._read():
                return b""

    def _read(self) -> bool:
        with reading(self._path, f"after byte {self._offset}"):
            part = self._stream.read(_CHUNK_BYTES)
        self._offset += self._at
        self._data, self._at = self._data[self._at :] + part, 0
        return bool(part)


def _broken(name: str, wanted: str) -> DataUnusable:
    return DataUnusable(
        f"{name}: the array of rows is broken: {wanted}, was to come",
        next_step="the file is cut or no JSON: write it again, best as JSON lines",
    )


# --- a row ---


class _Scan:
    """A JSON value as it comes: its bytes, but for long texts, which are spooled.

    Attributes:
        skeleton: the value's bytes, with a placeholder for each long text.
        has_ended: whether a bracket or quote has closed the value.
        is_over: whether it is longer than a row may be; nothing of it is kept then.
    """

    def __init__(self) -> None:
        self.skeleton = bytearray()
        self.has_ended = self.is_over = False
        self._longs: list[_Spool] = []
        self._spool: _Spool | None = None
        self._depth = self._size = self._text_from = 0
        self._in_text = False
        self._fault = ""

    def feed(self, data: bytes, at: int, *, stops: bool = False) -> int:
        """Takes bytes from `at` on, until the value has ended where `stops`.

        Returns:
            Up to where they are taken: perhaps not all, where the last is half an escape.
        """
        begun = at
        while at < len(data) and not (stops and self.has_ended):
            if self._in_text:
                match = _INSIDE.match(data, at)
                assert match is not None  # it matches nothing, too
                end = match.end()
                self._add_text(data[at:end])
                at = end
                if data[at : at + 1] != b'"':
                    break
                at += 1
                self._end_text()
            else:
                at = self._structure(data, at)
        self._size += at - begun
        if self._size > MAX_ROW_BYTES or len(self.skeleton) > _MOST_BESIDE:
            self.is_over = True
            self.skeleton.clear()
            self._longs.clear()
        return at

    def fields(self, name: str, options: DataOptions) -> dict[str, object] | BadRow:
        """The value as a row of a file."""
        if self.is_over:
            return BadRow(
                name,
                f"more than {MAX_ROW_BYTES} bytes, or {_MOST_BESIDE} beside its long texts",
                "too long",
                "is this a row, and in JSON lines one object a line? Cut longer documents",
            )
        if self._fault:
            return _not_json(name, self._fault)
        row = _parsed(bytes(self.skeleton), name)
        if self._longs and options.chat and isinstance(row, dict):
            fault = f"a text of more than {LONG_BYTES} bytes, which no conversation has"
            return BadRow(name, fault, "too long")
        if self._longs and isinstance(row, dict):
            return {key: self._told(value) for key, value in row.items()}
        return row

    def _told(self, value: object) -> object:
        if isinstance(value, str) and value[:1] == "\0" and value[1:].isdecimal():
            index = int(value[1:])
            return self._longs[index] if index < len(self._longs) else value
        return value

    def _structure(self, data: bytes, at: int) -> int:
        match = _OUTSIDE.search(data, at)
        end = match.end() if match else len(data)
        if not self.is_over:
            self.skeleton += data[at:end]
        if match:
            mark = match.group()
            if mark == b'"':
                self._in_text, self._text_from = True, len(self.skeleton)
            else:
                self._depth += 1 if mark in b"{[" else -1
                self.has_ended = self._depth <= 0
        return end

    def _add_text(self, raw: bytes) -> None:
        if self.is_over or self._fault:
            return
        if self._spool is None:
            self.skeleton += raw
            if len(self.skeleton) - self._text_from <= LONG_BYTES:
                return
            raw = bytes(self.skeleton[self._text_from :])
            del self.skeleton[self._text_from :]
            self.skeleton += b"\\u0000%d" % len(self._longs)
            self._spool = _Spool()
        try:
            self._spool.add(raw)
        except ValueError as error:
            self._fault = str(error)

    def _end_text(self) -> None:
        self._in_text, self.has_ended = False, not self._depth
        if not self.is_over:
            self.skeleton += b'"'
        if self._spool is None:
            return
        try:
            self._spool.end()
        except ValueError as error:
            self._fault = self._fault or str(error)
        self._longs.append(self._spool)
        self._spool = None


class _Spool:
    """A text of JSON as its letters in a temporary file; a `LongText` once it has ended."""

    def __init__(self) -> None:
        with disk_errors(Path(gettempdir())):
            self._file = TemporaryFile()  # noqa: SIM115 (it lives as long as this)
        weakref.finalize(self, self._file.close)
        self._sum, self._decoder = sha256(), _UTF8()
        self._held = b""
        self.size = 0
        self.has_nul = False

    def add(self, raw: bytes) -> None:
        """Takes further bytes as JSON writes them.

        Raises:
            ValueError: they are none.
            DiskFull, StorageError: there is no room for the temporary file.
        """
        raw = self._held + raw
        match = _WHOLE.match(raw)
        assert match is not None  # it matches nothing, too
        end = match.end()
        self._held = raw[end:]
        self._put(raw[:end])
        if len(self._held) >= _LONGEST_LETTER:  # then no letter comes of it
            self._put(self._held)

    def end(self) -> None:
        """Takes the end. Raises ValueError where it is in a letter."""
        self._put(self._held)
        self._decoder.decode(b"", final=True)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the letters in UTF-8."""
        return self._sum.digest()

    def read(self, offset: int, size: int) -> bytes:
        """Letters in UTF-8."""
        with disk_errors(Path(gettempdir())):
            self._file.seek(offset)
            return self._file.read(size)

    def _put(self, raw: bytes) -> None:
        text: str = loads(f'"{self._decoder.decode(raw)}"')
        part = text.encode()
        with disk_errors(Path(gettempdir())):
            self._file.write(part)
        self._sum.update(part)
        self.size += len(part)
        self.has_nul = self.has_nul or b"\0" in part


def _parsed(raw: bytes, name: str) -> dict[str, object] | BadRow:
    try:
        row = loads(raw.removeprefix(codecs.BOM_UTF8), object_pairs_hook=_object)
    except ValueError as error:
        return _not_json(name, str(error) or type(error).__name__)
    if not isinstance(row, dict):
        return BadRow(name, f"{_kind(row)}, not an object with columns", "no object")
    return row


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two fields of an object are called {twice!r}")
    return members


def _kind(value: object) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


def _not_json(name: str, fault: str) -> BadRow:
    if "surrogates not allowed" in fault:
        return BadRow(name, "half of a surrogate pair, which no text has", "no text")
    return BadRow(name, f"not JSON: {fault}", "not JSON")
