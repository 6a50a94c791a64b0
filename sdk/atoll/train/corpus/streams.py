"""A file as a stream of bytes: unpacked, and in UTF-8 where a mark says that it is in UTF-16 or 32.

Rule of this file: offsets count the bytes that come out, without a mark of byte order at the
beginning, so that a stream goes on from any of them.
"""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from atoll.numerics.errors import DataUnusable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_COMPRESSED: Final = (".gz", ".zst")
_READ_BYTES: Final = 1 << 16
_MARKS: Final = (  # the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, ""),
)


@contextmanager
def reading(path: Path, where: str = "") -> Iterator[None]:
    """Turns what goes wrong with a file into a DataUnusable that names it, and where in it."""
    try:
        yield
    except (OSError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeError) as error:
        raise DataUnusable(
            f"cannot read {path}{where and f', {where}'}: {error}",
            next_step="mend the file, or leave it out",
        ) from error


@contextmanager
def open_stream(path: Path, start: int = 0) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked and in UTF-8, from an offset in them. Raises DataUnusable."""
    with reading(path):
        stream = _unpacked(path)
    with stream:
        with reading(path):
            text = _without_mark(stream)
            if text is stream and not compression(path):
                stream.seek(start, io.SEEK_CUR)
            else:
                _skip(text, start)
        yield text


def compression(path: Path) -> str:
    """`.gz` or `.zst`, in whatever case it is written; empty for neither."""
    suffix = path.suffix.lower()
    return suffix if suffix in _COMPRESSED else ""


def inner_suffix(path: Path) -> str:
    """What a name ends with before its compression, in small letters."""
    return (path.with_suffix("") if compression(path) else path).suffix.lower()


def need_pyarrow(path: Path) -> ModuleType:
    """pyarrow. Raises DataUnusable where it is not installed."""
    try:
        import pyarrow  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise DataUnusable(
            f"{path} needs pyarrow, which is not installed",
            next_step="pip install 'atoll[parquet]'",
        ) from error
    module: ModuleType = pyarrow
    return module


def _unpacked(path: Path) -> BinaryIO:
    if compression(path) == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if compression(path) == ".zst":
        raw = need_pyarrow(path).input_stream(str(path), compression="zstd")
        return cast(BinaryIO, io.BufferedReader(raw))
    return path.open("rb")


def _without_mark(stream: BinaryIO) -> BinaryIO:
    """The stream after its mark of byte order, in UTF-8; the same one where that is what it is."""
    head = cast(io.BufferedReader, stream).peek(4)
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            stream.read(len(mark))
            return (
                cast(BinaryIO, io.BufferedReader(_AsUtf8(stream, encoding))) if encoding else stream
            )
    return stream


class _AsUtf8(io.RawIOBase):
    """A stream of another encoding as UTF-8. Reading raises UnicodeError where it is damaged."""

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        self._stream, self._held = stream, b""
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        while not self._held and not self._ended:
            raw = self._stream.read(_READ_BYTES)
            self._ended = not raw
            self._held = self._decoder.decode(raw, final=self._ended).encode()
        count = min(len(view), len(self._held))
        view[:count], self._held = self._held[:count], self._held[count:]
        return count


def _skip(stream: BinaryIO, size: int) -> None:
    while size and (part := stream.read(min(size, 1 << 20))):
        size -= len(part)
