"""Which files of a folder are text to train or evaluate on, and why the others are not.

Rule of this file: names and links decide, besides the beginning of a README.md; every file that is
excluded is told with its reason.

A folder of a data set, as the Hub has them, is told by what describes it, or by rows alone being in
it, or by every file being named after a split. There README and the like are no text, and splits
are kept apart. Of a cache of the Hub, the one snapshot that `refs/main` names is such a folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import Final, Literal, NoReturn

from atoll.numerics.errors import DataUnusable
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.streams import inner_suffix, reading

Use = Literal["train", "held_out"]
ROW_SUFFIXES: Final = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")
_DESCRIBING: Final = re.compile(
    r"(readme|license|licence|citation|dataset_card|changelog)(\.(md|txt|rst|cff|bib|html))?"
    r"|dataset_infos?\.json|dataset_dict\.json|state\.json|croissant\.json|\.gitattributes",
    re.IGNORECASE,
)
DESCRIBES: Final = "it describes the data set"
_KNOWN_BY: Final = ("dataset_infos.json", "dataset_info.json")
_FRONT: Final = re.compile(rb"---\r?\n")  # what a card of the Hub begins with
_MAP_CACHE: Final = re.compile(r"cache-[0-9a-f]{16}.*\.arrow")
# As the `datasets` library knows them: words of a path between these signs.
_WORDS: Final = re.compile(r"[-._ 0-9/]+")
_SPLITS: Final = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_HELD_OUT: Final = ("validation", "test")
"""Of these splits the first that is there is evaluated on, where that is asked for."""


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file to read, and whether it is one of a data set's."""

    path: Path
    is_of_dataset: bool


@dataclass(frozen=True, slots=True)
class Excluded:
    """A file that is not read, and why."""

    path: Path
    reason: str


def files_of(folder: Path, options: DataOptions, use: Use) -> Iterator[FolderFile | Excluded]:
    """The files of a folder in their order, each to be read or excluded.

    Raises:
        DataUnusable: a link leads out of the folder, a cache does not say which snapshot it is of,
            or every file is of another split than `use` takes.
    """
    homes: dict[Path, list[Path]] = {}
    for home, file in _walk(folder):
        if isinstance(file, Excluded):
            yield file
        else:
            homes.setdefault(home, []).append(file)
    for home, files in sorted(homes.items()):
        yield from _of_home(home, sorted(files), folder, options, use)


def _of_home(
    home: Path, files: list[Path], folder: Path, options: DataOptions, use: Use
) -> Iterator[FolderFile | Excluded]:
    shown: list[Path] = []
    for file in files:
        if options.suffixes and file.suffix not in options.suffixes and not file.is_dir():
            yield Excluded(file, "of another suffix than data.suffixes")
        elif not options.hidden and _is_hidden(file, folder):
            yield Excluded(file, "hidden")
        else:
            check_inside(file, folder)
            if not file.is_dir():  # a link to a folder whose files are found where they are
                shown.append(file)
    if options.format == "text" or not _is_dataset(home, shown):
        yield from (FolderFile(file, False) for file in shown)
        return
    kept: list[Path] = []
    for file in shown:
        if is_describing(file):
            yield Excluded(file, DESCRIBES)
        elif _MAP_CACHE.fullmatch(file.name):
            yield Excluded(file, "a cache of datasets.map")
        else:
            kept.append(file)
    splits = [split_of(file.relative_to(home)) for file in kept]
    taken = splits_taken(splits, use, home)
    for file, split in zip(kept, splits, strict=True):
        yield FolderFile(file, True) if split in taken else Excluded(file, f"split {split}")


def _walk(folder: Path) -> Iterator[tuple[Path, Path | Excluded]]:
    """All that is under a folder and is no folder itself, links, which are not followed, too; each
    with the folder that it is counted in: the one that was named, or a cache's snapshot."""

    def refuse(error: OSError) -> NoReturn:
        raise error

    with reading(folder):
        for place, folders, files in os.walk(folder, onerror=refuse):
            if _is_cache(Path(place)):
                folders.clear()
                yield from _of_cache(Path(place))
                continue
            links = (name for name in folders if Path(place, name).is_symlink())
            yield from ((folder, Path(place, name)) for name in (*files, *links))


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


# --- caches of the Hub ---


def _is_cache(folder: Path) -> bool:
    """Whether the Hub's client keeps a repository there: blobs, and snapshots that link to them."""
    parts = (folder / "snapshots", folder / "blobs")
    return all(part.is_dir() and not part.is_symlink() for part in parts)


def chosen_snapshot(folder: Path) -> Path:
    """The folder itself, or of a cache the snapshot that is meant. Raises DataUnusable."""
    return _snapshot(folder) if _is_cache(folder) else folder


def _of_cache(cache: Path) -> Iterator[tuple[Path, Path | Excluded]]:
    chosen = _snapshot(cache)
    for snapshot in sorted((cache / "snapshots").iterdir()):
        for _, file in _walk(snapshot):
            if snapshot == chosen or isinstance(file, Excluded):
                yield snapshot, file
            else:
                yield snapshot, Excluded(file, f"of another snapshot than {chosen.name[:12]}")


def _snapshot(cache: Path) -> Path:
    """The snapshot of `refs/main`, or the only one. Raises DataUnusable."""
    there, main = sorted((cache / "snapshots").iterdir()), cache / "refs" / "main"
    if main.is_file():
        chosen = cache / "snapshots" / main.read_text(encoding="ascii", errors="replace").strip()
        if chosen in there:
            return chosen
    if len(there) == 1:
        return there[0]
    raise DataUnusable(
        f"{cache} is a cache of {len(there)} snapshots, of which refs/main names none",
        next_step=f"name one of them: {cache / 'snapshots'}/...",
    )


def _around(folder: Path) -> Path | None:
    """The cache among whose snapshots a folder is."""
    parents = (folder.absolute(), *folder.absolute().parents)
    return next((p.parent for p in parents if p.name == "snapshots" and _is_cache(p.parent)), None)


def check_inside(file: Path, folder: Path) -> None:
    """Raises DataUnusable where a link leads out of its folder: whoever names a folder has looked
    into that one, and all that is taken becomes public. A snapshot's blobs are its files.

    What a link to a folder has in it is no link itself: where the file really is decides.
    """
    cache = _around(file.parent) or _around(Path(realpath(folder)))
    allowed = [folder] if cache is None else [folder, cache / "blobs"]
    target = realpath(file)
    if any(Path(target).is_relative_to(realpath(place)) for place in allowed):
        return
    raise DataUnusable(
        f"{file} is a link to {file.readlink() if file.is_symlink() else target}, which is not in "
        f"{folder}",
        next_step="name the file itself in data.paths, if all may have it, or take the link out; "
        "of a model's folder, put a copy in its stead",
    )


# --- folders of data sets ---


def is_describing(file: Path) -> bool:
    """Whether a file of a data set is about it, and no text of it."""
    return _DESCRIBING.fullmatch(file.name) is not None


def _is_dataset(home: Path, files: Sequence[Path]) -> bool:
    rest = [file for file in files if not is_describing(file)]
    if not rest:
        return False
    if _around(home) is not None or any((home / name).is_file() for name in _KNOWN_BY):
        return True
    if all(inner_suffix(file) in ROW_SUFFIXES for file in rest) or _has_card(home):
        return True
    return all(split_of(Path(file.name)) for file in rest)


def _has_card(home: Path) -> bool:
    card = home / "README.md"
    if not card.is_file():
        return False
    with reading(card), card.open("rb") as stream:
        return _FRONT.match(stream.read(8)) is not None


def split_of(path: Path) -> str:
    """The split that a path's last part names, or the nearest folder; empty for none."""
    for part in reversed(path.parts):
        for word in _WORDS.split(part.lower()):
            if word in _SPLITS:
                return _SPLITS[word]
    return ""


def splits_taken(splits: Sequence[str], use: Use, home: Path) -> tuple[str, ...]:
    """Of files' splits those that are read; files of none, which are trained on, have "".

    Raises:
        DataUnusable: all are splits to evaluate on, and the folder is to be trained on.
    """
    if use == "held_out":
        return next(((split,) for split in _HELD_OUT if split in splits), ("train", ""))
    if splits and not {"train", ""} & set(splits):
        raise DataUnusable(
            f"{home} has no split to train on, but {', '.join(sorted(set(splits)))}",
            next_step="name the files themselves in data.paths to train on them all the same, or "
            "the folder in data.held_out_paths",
        )
    return "train", ""
