"""Which files there are, and each as a stream of bytes."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Final, Literal, NoReturn, cast

from atoll.bits.errors import DataUnusable
from atoll.train.corpus.options import DataOptions

Kind = Literal["text", "jsonl", "parquet", "arrow"]
_COMPRESSED: Final = (".gz", ".zst")
_KINDS: Final[dict[str, Kind]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
_PACKED: Final = (".7z", ".bz2", ".rar", ".tar", ".tgz", ".xz", ".zip")
_SNIFFED_BYTES: Final = 8192


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read, and as what."""

    path: Path
    kind: Kind
    bytes: int


def find_files(options: DataOptions) -> tuple[list[SourceFile], list[SourceFile]]:
    """The files of `held_out_paths` and those of `paths`, in the order of their tokens.

    Raises:
        DataUnusable: a path does not exist, or there is no file at all.
    """
    held_out = _files_under(options.held_out_paths, options) if options.held_out_paths else []
    return held_out, _files_under(options.paths, options)


def _files_under(paths: Sequence[Path], options: DataOptions) -> list[SourceFile]:
    found = [file for path in paths for file in _files_at(path, options)]
    if not found:
        raise DataUnusable(
            f"no text files under {', '.join(map(str, paths)) or 'no path'}",
            next_step="hidden and binary files are left out: name them one by one in data.paths, "
            "or set data.hidden = true",
        )
    return found


def _files_at(path: Path, options: DataOptions) -> Iterator[SourceFile]:
    with reading(path):
        if not path.exists():
            raise DataUnusable(
                f"no such file or folder: {path}", next_step="check the job's [data]"
            )
        is_folder = path.is_dir()
    if not is_folder:
        source = _source(path, options)
        if options.format == "auto" and _is_packed(source):
            raise DataUnusable(
                f"{path} is packed, and of such files only .gz and .zst are unpacked here",
                next_step='unpack it; with data.format = "text" its bytes are taken as they are',
            )
        yield source
    elif options.format == "datasets" or (options.format == "auto" and _is_saved_dataset(path)):
        yield from _arrow_files(path)
    else:
        for file in sorted(_walk(path)):
            if options.suffixes and file.suffix not in options.suffixes and not file.is_dir():
                continue
            if _is_hidden(file, path) and not options.hidden:
                continue
            _check_inside(file, path)
            if file.is_dir():  # a link to a folder whose files are found where they are
                continue
            source = _source(file, options)
            if options.hidden or not (_is_packed(source) or _is_binary(source)):
                yield source


def _walk(folder: Path) -> Iterator[Path]:
    """All that is under a folder and is no folder itself; links, which are not followed, too."""

    def refuse(error: OSError) -> NoReturn:
        raise error

    with reading(folder):
        for place, folders, files in os.walk(folder, onerror=refuse):
            links = (name for name in folders if Path(place, name).is_symlink())
            yield from (Path(place, name) for name in (*files, *links))


def _check_inside(file: Path, folder: Path) -> None:
    """Raises DataUnusable where a link leads out of its folder: whoever names a folder has looked
    into that one, and all that is taken becomes public."""
    if file.is_symlink() and not Path(realpath(file)).is_relative_to(realpath(folder)):
        raise DataUnusable(
            f"{file} is a link to {file.readlink()}, which is not in {folder}",
            next_step="name the link itself in data.paths, if all may have it, or take it out",
        )


def _source(path: Path, options: DataOptions) -> SourceFile:
    if not path.is_file():
        raise DataUnusable(
            f"{path} is neither a file nor a folder" if path.exists() else f"{path} leads nowhere",
            next_step="take it out, or write what it gives to a file",
        )
    kind: Kind = _KINDS.get(_inner_suffix(path), "text")
    if options.format != "auto":
        kind = "arrow" if options.format == "datasets" else options.format
    elif kind == "text" and options.chat:
        kind = "jsonl"
    return SourceFile(path, kind, path.stat().st_size)


def _compression(path: Path) -> str:
    """`.gz` or `.zst`, in whatever case it is written; empty for neither."""
    suffix = path.suffix.lower()
    return suffix if suffix in _COMPRESSED else ""


def _inner_suffix(path: Path) -> str:
    """What a name ends with before its compression, in small letters."""
    return (path.with_suffix("") if _compression(path) else path).suffix.lower()


def _is_packed(source: SourceFile) -> bool:
    return source.kind == "text" and _inner_suffix(source.path) in _PACKED


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _is_binary(source: SourceFile) -> bool:
    """Whether a file that would be read as text is none: git's rule, a zero byte near its start."""
    if source.kind != "text" or _compression(source.path):
        return False
    with reading(source.path), source.path.open("rb") as stream:
        return b"\0" in stream.read(_SNIFFED_BYTES)


# --- folders of the `datasets` library ---


def _is_saved_dataset(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json")) and (
        (folder / "dataset_info.json").is_file() or (folder / "dataset_dict.json").is_file()
    )


def _arrow_files(folder: Path) -> Iterator[SourceFile]:
    """The Arrow files that `save_to_disk` wrote; of a DatasetDict, those of its split `train`."""
    import json  # noqa: PLC0415 (this one folder's)

    if (folder / "dataset_dict.json").is_file():
        folder = folder / "train"
    state = folder / "state.json"
    try:
        plain = json.loads(state.read_bytes())
        names = [str(entry["filename"]) for entry in plain["_data_files"]]
        chosen = plain.get("_indices_data_files")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataUnusable(
            f"{state} does not list a data set's files: {type(error).__name__}: {error}",
            next_step="save it again with Dataset.save_to_disk, or name a split's own folder",
        ) from error
    if chosen:
        raise DataUnusable(
            f"{folder} is a selection of rows, which are not written out",
            next_step="call flatten_indices() before save_to_disk",
        )
    for name in names:
        path = folder / Path(name).name
        if not path.is_file():
            raise DataUnusable(f"{path} is missing", next_step=f"it is named in {state}")
        yield SourceFile(path, "arrow", path.stat().st_size)


# --- streams ---


@contextmanager
def reading(path: Path, where: str = "") -> Iterator[None]:
    """Turns what goes wrong with a file into a DataUnusable that names it, and where in it."""
    try:
        yield
    except (OSError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataUnusable(
            f"cannot read {path}{where and f', {where}'}: {error}",
            next_step="mend the file, or leave it out",
        ) from error


@contextmanager
def open_stream(path: Path, start: int = 0) -> Iterator[BinaryIO]:
    """The file's bytes, uncompressed, from an offset in them. Raises DataUnusable."""
    with reading(path):
        stream = _opened(path)
    with stream:
        with reading(path):
            if _compression(path):
                _skip(stream, start)
            else:
                stream.seek(start)
        yield stream


def _opened(path: Path) -> BinaryIO:
    if _compression(path) == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if _compression(path) == ".zst":
        raw = need_pyarrow(path).input_stream(str(path), compression="zstd")
        return cast(BinaryIO, io.BufferedReader(raw))
    return path.open("rb")


def _skip(stream: BinaryIO, size: int) -> None:
    while size and (part := stream.read(min(size, 1 << 20))):
        size -= len(part)


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
