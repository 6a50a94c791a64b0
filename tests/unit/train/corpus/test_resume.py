"""A preparation that is killed at any moment goes on, and ends with the same bytes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from atoll.storage.local import LocalStore
from atoll.train.corpus import jsonrows, prepare, progress_journal
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import PreparedData, Progress

BATCH, SAVE = 1 << 12, 1 << 14


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and savings of kilobytes, and shards of 8 KiB, so that there are many of each."""
    monkeypatch.setattr(prepare, "BATCH_BYTES", BATCH)
    monkeypatch.setattr(prepare, "SAVE_BYTES", SAVE)


class Killed(BaseException):
    """Ends a preparation like a kill does: nothing of it is called any more."""


def write_book(folder: Path) -> DataOptions:
    folder.mkdir()
    for number in range(3):
        lines = (f"chapter {number}, line {i}: {i * i} sheep\n" for i in range(4000))
        (folder / f"{number}.txt").write_text("".join(lines))
    return DataOptions((folder,), held_out="0.1")


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
def test_rows_that_are_skipped_are_counted_once_wherever_it_is_stopped(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonrows, "LONG_BYTES", 1 << 14)
    rows = [
        {"text": f"row {i} of sheep\n" * (4000 if i % 97 == 0 and name != "a.csv" else 3)}
        if i % 5
        else {"text": "" if i % 2 else "a\0b"}
        for i in range(2000)
    ]
    if name == "a.csv":
        text = "text\n" + "".join(f'"{row["text"]}"\n' for row in rows)
    else:
        text = json.dumps(rows) if name == "a.json" else "\n".join(map(json.dumps, rows))
    (tmp_path / name).write_text(text)
    options = DataOptions((tmp_path / name,), held_out="0.1", bad_rows="skip")
    whole = prepare.prepare(options, LocalStore(tmp_path / "whole", sync=False))
    assert sum(whole.account.skipped.values()) == 400
    store = LocalStore(tmp_path / "store", sync=False)
    for stop in (1, 4, 2, 7, 6, 1, 3):
        left = [stop]

        def tell(_: Progress, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise Killed

        with pytest.raises(Killed):
            prepare.prepare(options, store, tell)
    assert prepare.prepare(options, store) == whole


@pytest.mark.parametrize("evaluates_on", [(), ("1.txt",)])
def test_it_ends_with_the_same_bytes_wherever_it_is_stopped(
    tmp_path: Path, evaluates_on: tuple[str, ...]
) -> None:
    own = tuple(tmp_path / "book" / name for name in evaluates_on)
    options = replace(write_book(tmp_path / "book"), held_out_paths=own)
    whole = prepare.prepare(options, LocalStore(tmp_path / "whole", sync=False))
    store = LocalStore(tmp_path / "store", sync=False)
    starts: list[int] = []
    for stop in (1, 9, 2, 30, 17, 1, 1, 10):
        told: list[int] = []

        def tell(progress: Progress, told: list[int] = told, stop: int = stop) -> None:
            told.append(progress.bytes)
            if len(told) == stop:
                raise Killed

        with pytest.raises(Killed):
            prepare.prepare(options, store, tell)
        starts.append(told[0])
    assert prepare.prepare(options, store) == whole
    assert starts == sorted(starts)
    assert starts[-1] > 20 * BATCH


def test_a_kill_between_any_two_writes_of_the_journal_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = write_book(tmp_path / "book")
    whole = prepare.prepare(options, LocalStore(tmp_path / "whole", sync=False))
    real = os.fsync
    for writes in range(1, 12):
        store = LocalStore(tmp_path / f"store {writes}", sync=False)
        left = [writes]

        def fsync(descriptor: int, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise Killed
            real(descriptor)

        monkeypatch.setattr(progress_journal.os, "fsync", fsync)
        with pytest.raises(Killed):
            prepare.prepare(options, store)
        monkeypatch.setattr(progress_journal.os, "fsync", real)
        assert prepare.prepare(options, store) == whole


@pytest.mark.parametrize("damage", ["torn state", "other state", "short records", "a lost block"])
def test_a_damaged_journal_begins_anew(damage: str, tmp_path: Path) -> None:
    options = write_book(tmp_path / "book")
    store = LocalStore(tmp_path / "store", sync=False)
    whole = prepare.prepare(options, store)
    (folder,) = (store.root / "preparing").iterdir()
    state = folder / "state.json"
    if damage == "torn state":
        state.write_bytes(state.read_bytes()[:40])
    elif damage == "other state":
        state.write_text('{"file": 3}')
    elif damage == "short records":
        (folder / "train.shards").write_bytes(b"")
        state.write_text(state.read_text().replace('"shards": 0', '"shards": 1'))
    else:
        tail = progress_journal.ProgressJournal._read(journal_of(store, folder)).train.tail  # type: ignore[union-attr]
        next(store.root.rglob(tail)).unlink()
    told: list[Progress] = []
    assert prepare.prepare(options, store, told.append) == whole
    assert told


def journal_of(store: LocalStore, folder: Path) -> progress_journal.ProgressJournal:
    found = progress_journal.ProgressJournal(store, "any")
    found._folder = folder
    return found


def test_other_options_and_other_files_are_other_preparations(tmp_path: Path) -> None:
    options = write_book(tmp_path / "book")
    store = LocalStore(tmp_path / "store", sync=False)

    def prepared(held_out: str) -> PreparedData:
        return prepare.prepare(DataOptions(options.paths, held_out=held_out), store)

    assert prepared("0.1") == prepared("0.1") != prepared("0.2")
    assert len(list((store.root / "preparing").iterdir())) == 2
