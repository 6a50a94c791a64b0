"""Which files there are, each with what it is read as, and which are excluded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from atoll.nested import loads
from atoll.numerics.errors import DataUnusable
from atoll.train.corpus.folders import (
    DESCRIBES,
    Excluded,
    Use,
    files_of,
    is_describing,
    split_of,
    splits_taken,
)
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.rows import columns
from atoll.train.corpus.streams import inner_suffix, open_stream, reading

Kind = Literal["text", "jsonl", "csv", "parquet", "arrow"]
_KINDS: Final[dict[str, Kind]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
_PACKED: Final = (".7z", ".bz2", ".rar", ".tar", ".tgz", ".xz", ".zip")
_SNIFFED_BYTES: Final = 8192
_SNIFFED_JSON: Final = 1 << 20
_ARRAY_OF_ROWS: Final = re.compile(rb"\[\s*(?:\{|\]|$)")
_WRAPPED: Final = re.compile(
    rb'\{\s*(?:"[^"]{0,99}"\s*:\s*(?:"[^"]{0,999}"|[-+.\w]{1,99})\s*,\s*){0,99}'
    rb'"(?:data|rows|records|examples|samples|instances|train)"\s*:\s*\[\s*\{'
)
"""An object that has rows under one of the usual names, behind a few plain values."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read, and as what."""

    path: Path
    kind: Kind
    bytes: int


class SourceFiles(NamedTuple):
    """The files of `held_out_paths` and those of `paths`, in the order of their tokens, and what
    folders have beside them."""

    held_out: list[SourceFile]
    train: list[SourceFile]
    excluded: list[Excluded]


def find_files(options: DataOptions) -> SourceFiles:
    """The files that the options name.

    Raises:
        DataUnusable: a path does not exist, a file is of no kind that is read, or there is none.
    """
    excluded: list[Excluded] = []
    held_out = []
    if options.held_out_paths:
        held_out = _files_under(options.held_out_paths, options, "held_out", excluded)
    train = _files_under(options.paths, options, "train", excluded)
    # A folder may be named for both: what one leaves out is the other's, or is excluded once.
    taken = {file.path for file in (*held_out, *train)}
    rest = {item.path: item for item in excluded if item.path not in taken}
    return SourceFiles(held_out, train, list(rest.values()))


def _files_under(
    paths: Sequence[Path], options: DataOptions, use: Use, excluded: list[Excluded]
) -> list[SourceFile]:
    source_files: list[SourceFile] = []
    mine: list[Excluded] = []
    for path in paths:
        for file in _files_at(path, options, use):
            if isinstance(file, Excluded):
                mine.append(file)
            else:
                source_files.append(file)
    if not source_files:
        where = ", ".join(map(str, paths)) or "no path"
        raise DataUnusable(
            f"no text files under {where}" + (f": {told(mine)}" if mine else ""),
            next_step="name a file that is excluded in data.paths itself; hidden ones are taken "
            "with data.hidden = true",
        )
    excluded += mine
    return source_files


def told(excluded: Iterable[Excluded]) -> str:
    """Files that are excluded, by reason, with the first names of each."""
    by_reason: dict[str, list[str]] = {}
    for item in excluded:
        by_reason.setdefault(item.reason, []).append(item.path.name)
    return "; ".join(f"{names_told(names)} ({reason})" for reason, names in by_reason.items())


def names_told(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _files_at(path: Path, options: DataOptions, use: Use) -> Iterator[SourceFile | Excluded]:
    with reading(path):
        if not path.exists():
            raise DataUnusable(
                f"no such file or folder: {path}", next_step="check the job's [data]"
            )
        is_folder = path.is_dir()
    if not is_folder:
        yield _named(path, options)
    elif options.format == "datasets" or (options.format == "auto" and _is_saved_dataset(path)):
        yield from _arrow_files(path, use)
    else:
        yield from _of_folder(path, options, use)


def _named(path: Path, options: DataOptions) -> SourceFile:
    """A file that is named itself: refused where it would be excluded from a folder."""
    source = _source(path, options)
    if options.format == "auto" and _is_packed(source):
        raise DataUnusable(
            f"{path} is packed, and of such files only .gz and .zst are unpacked here",
            next_step='unpack it; with data.format = "text" its bytes are taken as they are',
        )
    if options.format == "auto" and source.kind == "text" and inner_suffix(path) == ".json":
        _check_json(path, is_object_refused=True)
    return source


def _of_folder(folder: Path, options: DataOptions, use: Use) -> Iterator[SourceFile | Excluded]:
    seen: dict[tuple[int, int], Path] = {}
    for file_found in files_of(folder, options, use):
        if isinstance(file_found, Excluded):
            yield file_found
            continue
        file = file_found.path
        source = _source(file, options)
        with reading(file):
            about = file.stat()
        twin = seen.setdefault((about.st_dev, about.st_ino), file)
        if twin is not file:
            yield Excluded(file, f"the same file as {twin.name}")
        elif _is_packed(source):
            yield Excluded(file, "packed")
        elif _is_binary(source):
            yield Excluded(file, "binary: it has zero bytes")
        else:
            if options.format == "auto" and source.kind == "text":
                _check_json(file, is_object_refused=file_found.is_of_dataset)
            yield source


def _source(path: Path, options: DataOptions) -> SourceFile:
    if not path.is_file():
        raise DataUnusable(
            f"{path} is neither a file nor a folder" if path.exists() else f"{path} leads nowhere",
            next_step="take it out, or write what it gives to a file",
        )
    kind: Kind = _KINDS.get(inner_suffix(path), "text")
    if options.format != "auto":
        kind = "arrow" if options.format == "datasets" else options.format
    elif kind == "text" and (options.chat or _has_rows(path, options)):
        kind = "jsonl"
    return SourceFile(path, kind, path.stat().st_size)


def _is_packed(source: SourceFile) -> bool:
    return source.kind == "text" and inner_suffix(source.path) in _PACKED


def _is_binary(source: SourceFile) -> bool:
    """Whether a file that would be read as text is none: git's rule, a zero byte near its start."""
    if source.kind != "text":
        return False
    with open_stream(source.path) as stream, reading(source.path):
        return b"\0" in stream.read(_SNIFFED_BYTES)


# --- .json, which may be anything ---


def _has_rows(path: Path, options: DataOptions) -> bool:
    """Whether it is .json of an array of objects, or an object a line, and not one object as
    settings are, nor an array of words as a menu's is.
    """
    if inner_suffix(path) != ".json":
        return False
    head = _head(path)
    if head[:1] != b"{":
        return _ARRAY_OF_ROWS.match(head) is not None
    line, end, rest = head.partition(b"\n")
    try:
        row = loads(line)
    except ValueError:
        return False
    return bool(end and rest.strip()) or bool(columns(options, row.keys()))


def _check_json(path: Path, *, is_object_refused: bool) -> None:
    """Raises DataUnusable where a .json file that has no rows is no text either."""
    if inner_suffix(path) != ".json":
        return
    head = _head(path)
    if _WRAPPED.match(head) or (is_object_refused and head[:1] in (b"{", b"[")):
        what = "an array of other things" if head[:1] == b"[" else "one JSON object"
        raise DataUnusable(
            f"{path} is {what}, and rows are an array of objects, or an object a line",
            next_step="write its rows to a file of their own: jq -c '.data[]' "
            f'{path.name} > rows.jsonl; with data.format = "text" it is taken as it stands',
        )


def _head(path: Path) -> bytes:
    with open_stream(path) as stream, reading(path):
        return stream.read(_SNIFFED_JSON).lstrip()


# --- folders of the `datasets` library ---


def _is_saved_dataset(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json")) and (
        (folder / "dataset_info.json").is_file() or (folder / "dataset_dict.json").is_file()
    )


def _arrow_files(folder: Path, use: Use) -> Iterator[SourceFile | Excluded]:
    """The Arrow files that `save_to_disk` wrote; of a DatasetDict, those of the split for `use`."""
    if not (folder / "dataset_dict.json").is_file():
        yield from _saved_files(folder)
        return
    with reading(folder):
        splits = [entry for entry in sorted(folder.iterdir()) if (entry / "state.json").is_file()]
    from_names = [split_of(Path(entry.name)) for entry in splits]
    taken = splits_taken(from_names, use, folder)
    for split, name in zip(splits, from_names, strict=True):
        for file in _saved_files(split):
            is_taken = name in taken or isinstance(file, Excluded)
            yield file if is_taken else Excluded(file.path, f"split {split.name}")


def _saved_files(folder: Path) -> Iterator[SourceFile | Excluded]:
    state = folder / "state.json"
    try:
        plain = loads(state.read_bytes())
        names = [Path(str(entry["filename"])).name for entry in plain["_data_files"]]
        chosen = plain.get("_indices_data_files")
    except (OSError, ValueError, KeyError, TypeError) as error:
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
        path = folder / name
        if not path.is_file():
            raise DataUnusable(f"{path} is missing", next_step=f"it is named in {state}")
        yield SourceFile(path, "arrow", path.stat().st_size)
    with reading(folder):
        others = sorted(
            item for item in folder.iterdir() if item.is_file() and item.name not in names
        )
    for other in others:
        describes = is_describing(other)
        yield Excluded(other, DESCRIBES if describes else "state.json does not name it")
