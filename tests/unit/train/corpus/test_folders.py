"""Which files of a folder are read: every one that is excluded is told with its reason."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.train.corpus.test_formats import saved_dataset

from atoll.numerics.errors import DataUnusable
from atoll.storage.local import LocalStore
from atoll.train.corpus.folders import split_of
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import prepare
from atoll.train.corpus.source_files import SourceFiles, find_files, told

CARD = "---\nlicense: mit\n---\n# Texts\n"


def write(root: Path, **files: str) -> Path:
    """Files by their paths, in which `__` is a folder's end."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def put(root: Path, *names: str) -> Path:
    """A data set's files: of a row each, by their kinds."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            pq.write_table(pa.table({"text": [name]}), path)
        elif name.endswith(".csv"):
            path.write_text(f"text\n{name}\n")
        elif name.endswith(("json", "jsonl")):
            path.write_text(json.dumps({"text": name}) + "\n")
        else:
            path.write_text(CARD if name.endswith("README.md") else name)
    return root


def names(found: SourceFiles, root: Path) -> list[str]:
    return [str(file.path.relative_to(root)) for file in found.train]


def reasons(found: SourceFiles, root: Path) -> dict[str, str]:
    return {str(one.path.relative_to(root)): one.reason for one in found.excluded}


# --- data sets of the Hub ---


def cache(root: Path, *, main: str | None = "aaaa", revisions: str = "ab") -> Path:
    """What the Hub's client keeps of a data set: two snapshots that share a blob."""
    place = root / "datasets--somebody--texts"
    for part in ("blobs", *(f"snapshots/{letter * 4}/data" for letter in revisions)):
        (place / part).mkdir(parents=True)
    if main is not None:
        write(place, refs__main=main)
    (place / "blobs/0123").write_text('{"text":"the one row"}\n')
    (place / "blobs/4567").write_text(CARD)
    for letter in revisions:
        at = place / "snapshots" / (letter * 4)
        (at / "README.md").symlink_to("../../blobs/4567")
        (at / "data/train.jsonl").symlink_to("../../../blobs/0123")
        (at / "data/copy.jsonl").symlink_to("../../../blobs/0123")
        (at / "data/test.jsonl").symlink_to("../../../blobs/0123")
    return place


@pytest.mark.parametrize("is_named_above", [True, False])
def test_of_a_cache_the_snapshot_of_main_is_read_and_a_blob_once(
    is_named_above: bool, tmp_path: Path
) -> None:
    place = cache(tmp_path)
    found = find_files(DataOptions((tmp_path if is_named_above else place,)))
    assert names(found, place) == ["snapshots/aaaa/data/copy.jsonl"]
    assert reasons(found, place) == {
        "snapshots/aaaa/README.md": "it describes the data set",
        "snapshots/aaaa/data/test.jsonl": "split test",
        "snapshots/aaaa/data/train.jsonl": "the same file as copy.jsonl",
        "snapshots/bbbb/README.md": "of another snapshot than aaaa",
        "snapshots/bbbb/data/copy.jsonl": "of another snapshot than aaaa",
        "snapshots/bbbb/data/test.jsonl": "of another snapshot than aaaa",
        "snapshots/bbbb/data/train.jsonl": "of another snapshot than aaaa",
    }


def test_a_snapshot_that_is_named_itself_has_its_files_among_the_blobs(tmp_path: Path) -> None:
    """As `snapshot_download` returns it."""
    place = cache(tmp_path, main=None)
    at = place / "snapshots" / "bbbb"
    for named in (at, at / "data"):
        found = find_files(DataOptions((named,)))
        assert names(found, at) == ["data/copy.jsonl"]
    (at / "data" / "secret.jsonl").symlink_to("/etc/passwd")
    with pytest.raises(DataUnusable, match="is a link to /etc/passwd"):
        find_files(DataOptions((at,)))


def test_a_cache_that_names_no_snapshot_has_one_or_is_refused(tmp_path: Path) -> None:
    only = cache(tmp_path / "a", main=None, revisions="c")
    assert names(find_files(DataOptions((only,))), only) == ["snapshots/cccc/data/copy.jsonl"]
    for number, main in enumerate((None, "dddd", "../../elsewhere")):
        several = cache(tmp_path / f"several{number}", main=main)
        with pytest.raises(DataUnusable, match="a cache of 2 snapshots") as no:
            find_files(DataOptions((several,)))
        assert "snapshots" in (no.value.next_step or "")


LAYOUTS = {
    "rows alone": ("train.jsonl", "validation.jsonl", "test.jsonl", "README.md", "LICENSE"),
    "a card": ("README.md", "train.txt", "valid.txt", "notes/test.txt"),
    "its record": ("dataset_infos.json", "train.txt", "dev.txt", "test.txt"),
    "splits as names": ("train.txt", "val.txt", "test.txt"),
    "splits as folders": ("train/a.parquet", "validation/a.parquet", "test/a.parquet"),
    "the Hub's names": (
        "README.md",
        "data/train-00000-of-00002.parquet",
        "data/train-00001-of-00002.parquet",
        "data/validation-00000-of-00001.parquet",
        "data/test-00000-of-00001.parquet",
    ),
    "splits with a tail": ("data/train_sft-0.parquet", "data/test_sft-0.parquet"),
    "CSV": ("train.csv", "test.csv", "README.md"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_splits_are_kept_apart_and_what_describes_is_no_text(layout: str, tmp_path: Path) -> None:
    root = put(tmp_path / "in", *LAYOUTS[layout])
    found = find_files(DataOptions((root,)))
    assert names(found, root)
    assert all("train" in name for name in names(found, root))
    assert len(found.train) + len(found.excluded) == len(LAYOUTS[layout])
    for name, reason in reasons(found, root).items():
        split = split_of(Path(name))
        assert reason == (f"split {split}" if split else "it describes the data set")


def test_a_folder_of_texts_is_no_data_set_whatever_its_folders_are_called(tmp_path: Path) -> None:
    """Sources have tests, and a README that is meant."""
    root = put(tmp_path / "in", "train/a.py", "test/b.py", "src/dev.py")
    write(root, README__md="words", LICENSE="words")
    (root / "README").rename(root / "r")
    assert len(find_files(DataOptions((root,))).train) == 5
    assert not find_files(DataOptions((root,))).excluded


def test_one_folder_is_trained_on_and_evaluated_on_by_its_splits(tmp_path: Path) -> None:
    root = put(tmp_path / "in", "train.jsonl", "validation.jsonl", "test.jsonl", "README.md")
    options = DataOptions((root,), held_out_paths=(root,))
    found = find_files(options)
    assert [file.path.name for file in found.held_out] == ["validation.jsonl"]
    assert names(found, root) == ["train.jsonl"]
    assert sorted(one.path.name for one in found.excluded) == ["README.md", "test.jsonl"]
    (root / "validation.jsonl").unlink()
    assert [file.path.name for file in find_files(options).held_out] == ["test.jsonl"]
    own = put(tmp_path / "own", "a.jsonl", "b.jsonl")  # without splits: all of it
    found = find_files(DataOptions((root,), held_out_paths=(own,)))
    assert [file.path.name for file in found.held_out] == ["a.jsonl", "b.jsonl"]


def test_a_split_to_test_on_is_trained_on_only_where_its_files_are_named(tmp_path: Path) -> None:
    root = put(tmp_path / "in", "test.jsonl", "validation.jsonl", "README.md")
    with pytest.raises(DataUnusable, match="no split to train on, but test, validation") as no:
        find_files(DataOptions((root,)))
    assert "data.paths" in (no.value.next_step or "")
    named = find_files(DataOptions((root / "test.jsonl",)))
    assert names(named, root) == ["test.jsonl"]


def test_a_saved_dict_keeps_its_splits_apart(tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        saved_dataset(tmp_path / "all" / split)
    write(tmp_path / "all", **{"dataset_dict.json": "{}"})
    (tmp_path / "all/train/cache-0123456789abcdef.arrow").write_bytes(b"x")
    options = DataOptions((tmp_path / "all",), held_out_paths=(tmp_path / "all",))
    found = find_files(options)
    assert {file.path.parent.name for file in found.train} == {"train"}
    assert {file.path.parent.name for file in found.held_out} == {"validation"}
    left = reasons(found, tmp_path / "all")
    assert left["test/data-00000-of-00002.arrow"] == "split test"
    assert left["train/cache-0123456789abcdef.arrow"] == "state.json does not name it"
    assert left["train/dataset_info.json"] == "it describes the data set"
    for split in ("train", "validation"):
        for file in (tmp_path / "all" / split).iterdir():
            file.unlink()
    with pytest.raises(DataUnusable, match="no split to train on, but test"):
        find_files(DataOptions((tmp_path / "all",)))


def test_what_datasets_keeps_beside_its_files_is_no_second_copy(tmp_path: Path) -> None:
    root = tmp_path / "texts" / "0.0.0"
    root.mkdir(parents=True)
    for name in ("texts-train.arrow", "texts-test.arrow", "cache-0123456789abcdef.arrow"):
        table = pa.table({"text": [name]})
        with pa.OSFile(str(root / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as w:
            w.write_table(table)
    write(root, **{"dataset_info.json": "{}"})
    found = find_files(DataOptions((root,)))
    assert names(found, root) == ["texts-train.arrow"]
    assert len(found.excluded) == 3


# --- every file is told ---


def test_every_file_of_a_folder_is_read_or_excluded_with_its_reason(tmp_path: Path) -> None:
    root = write(tmp_path / "in", **{"a.txt": "text", ".env": "secret", "b.log": "noise"})
    (root / "c.bin").write_bytes(b"\x7fELF\0\1")
    (root / "d.txt.gz").write_bytes(gzip.compress(b"\0" * 99))
    (root / "e.zip").write_bytes(b"PK")
    (root / "f.txt").hardlink_to(root / "a.txt")
    (root / "g.txt").write_text("letters", encoding="utf-16")
    found = find_files(DataOptions((root,)))
    assert names(found, root) == ["a.txt", "b.log", "g.txt"]
    assert reasons(found, root) == {
        ".env": "hidden",
        "c.bin": "binary: it has zero bytes",
        "d.txt.gz": "binary: it has zero bytes",
        "e.zip": "packed",
        "f.txt": "the same file as a.txt",
    }
    only = find_files(DataOptions((root,), suffixes=frozenset({".txt"})))
    assert reasons(only, root)["b.log"] == "of another suffix than data.suffixes"
    assert len(only.train) + len(only.excluded) == 8
    with pytest.raises(DataUnusable, match=r"no text files under .*: \.env \(hidden\)"):
        write(tmp_path / "empty", **{".env": "secret"})
        find_files(DataOptions((tmp_path / "empty",)))


def test_many_files_are_told_by_their_first_names(tmp_path: Path) -> None:
    root = write(tmp_path / "in", **{f".{i}": "x" for i in range(9)}, a="text")
    found = find_files(DataOptions((root,)))
    assert told(found.excluded) == ".0, .1, .2 and 6 more (hidden)"


def test_an_account_tells_what_was_read_and_what_was_not_needed(tmp_path: Path) -> None:
    root = write(tmp_path / "in", **{f"{i}.txt": f"text {i}\n" * 99 for i in range(20)})
    write(root, **{".env": "secret"})
    store = LocalStore(tmp_path / "store", sync=False)
    account = prepare(DataOptions((root,), held_out="0.3"), store).account
    assert account.lines() == [
        "files      20 files (0.txt, 1.txt, 10.txt and 17 more) to train on",
        "excluded   1 of the folders: .env (hidden)",
    ]
    plain = account.to_json_value()
    assert (plain["files_to_train_on"], plain["files_excluded"]) == (20, 1)
    assert plain["excluded"] == [{"path": str(root / ".env"), "reason": "hidden"}]
    few = prepare(DataOptions((root,), held_out="0.3", max_tokens=9000), store).account
    assert 0 < few.unread < 20
    assert len(few.train) + few.unread == 20
    assert "more behind data.max_tokens" in few.lines()[0]


@pytest.mark.parametrize("linked", ["snapshots/aaaa", "snapshots", "blobs"])
def test_no_link_of_a_stranger_s_cache_leads_to_what_is_private(
    tmp_path: Path, linked: str
) -> None:
    """Who unpacks a data set and names it has not meant to publish what is in a home."""
    home, place = put(tmp_path / "home", "keys.txt", "aaaa/keys.txt"), tmp_path / "theirs"
    (place / "blobs").mkdir(parents=True)
    if linked == "blobs":
        (place / "blobs").rmdir()
        (place / "snapshots/aaaa").mkdir(parents=True)
        (place / "snapshots/aaaa/train.txt").symlink_to("../../blobs/keys.txt")
    (place / linked).parent.mkdir(exist_ok=True)
    (place / linked).symlink_to(home)
    with pytest.raises(DataUnusable, match=r"is a link to .*/home"):
        find_files(DataOptions((place,)))
    found = names(find_files(DataOptions((place / linked,))), place / linked)
    assert "keys.txt" in found  # the link itself is named: that one was looked into


def test_an_array_of_words_among_sources_is_text_and_named_it_is_refused(tmp_path: Path) -> None:
    """A menu or a list of names in a folder of documents is no row of anybody's."""
    (tmp_path / "page.md").write_text("a page\n")
    (tmp_path / "menu.json").write_text('["Loss", "Seats"]')
    assert {file.path.name for file in find_files(DataOptions(paths=(tmp_path,))).train} == {
        "menu.json",
        "page.md",
    }
    with pytest.raises(DataUnusable, match="an array of other things"):
        find_files(DataOptions(paths=(tmp_path / "menu.json",)))
