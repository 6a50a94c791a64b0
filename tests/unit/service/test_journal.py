"""The journal: durable, and never two contents for one subject, whenever the process is killed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from atoll.errors import StorageError
from atoll.protocol.views import JobView
from atoll.service.commands import Work
from atoll.service.effects import Effects
from atoll.service.entries import OF_SERVICE, Done, Entry, key_of
from atoll.service.journal import AlreadySigned, Journal
from atoll.service.metrics import read_measures
from atoll.service.serialization import JournalError


@dataclass(frozen=True, slots=True)
class Note(Entry):
    kind: ClassVar[str] = "test-note.v1"
    text: str


@dataclass(frozen=True, slots=True)
class Other(Entry):
    kind: ClassVar[str] = "test-other.v1"
    name: str


@dataclass(frozen=True, slots=True)
class DoNote(Work[Note]):
    kind: ClassVar[str] = "test-do-note.v1"
    name: str

    async def perform(self, effects: Effects, view: JobView) -> Done[Note]:
        return Done(Note(self.name))


A = key_of(DoNote, "a")


def opened(path: Path) -> Journal:
    return Journal(path / "journal.sqlite")


def test_entries_survive_and_belong_to_their_job(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.write(1, A, Note("x"))
    journal.write(1, "b", Other("b"))
    journal.write(2, A, Note("y"))
    journal.close()
    entries = opened(tmp_path).read(1)
    assert entries.of(DoNote, "a") == Note("x")
    assert entries.all_of(Other) == [Other("b")]
    alone = opened(tmp_path).read(1, A)
    assert (alone.of(DoNote, "a"), len(alone)) == (Note("x"), 1)
    assert len(entries) == 2


def test_a_second_entry_of_a_key_replaces_the_first(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.write(1, A, Note("x"))
    journal.write(1, A, Note("z"))
    assert journal.read(1).of(DoNote, "a") == Note("z")


def test_a_subject_is_signed_for_one_content_only(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.sign_once("commit:1:0", b"a")
    journal.sign_once("commit:1:0", b"a")
    with pytest.raises(AlreadySigned, match="commit:1:0"):
        journal.sign_once("commit:1:0", b"b")
    journal.close()
    with pytest.raises(AlreadySigned):
        opened(tmp_path).sign_once("commit:1:0", b"b")


def test_a_secret_is_drawn_once(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    first = journal.secret("a")
    assert len(first) == 32
    assert journal.secret("b") != first
    journal.close()
    assert opened(tmp_path).secret("a") == first


def test_measures_add_up(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.measure(1, 0, "replayed_steps", 5)
    journal.measure(1, 0, "replayed_steps", 3)
    journal.measure(1, 1, "train_seconds", 0.5)
    found = read_measures(tmp_path / "journal.sqlite")
    assert sorted(found) == [(1, 0, "replayed_steps", 8.0), (1, 1, "train_seconds", 0.5)]


def test_an_unknown_kind_asks_for_the_right_version(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.write(1, "b", Other("b"))
    with sqlite3.connect(tmp_path / "journal.sqlite") as db:
        db.execute("UPDATE entries SET kind = 'atoll.later:Unheard'")
    db.close()
    with pytest.raises(JournalError, match="Unheard, which this version") as caught:
        journal.read(1)
    assert caught.value.next_step is not None


def test_another_schema_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with sqlite3.connect(tmp_path / "journal.sqlite") as db:
        db.execute("UPDATE meta SET value = '99'")
    db.close()
    with pytest.raises(JournalError, match="schema 99"):
        opened(tmp_path)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot use .*nowhere"):
        opened(tmp_path / "nowhere")


def change(path: Path, statement: str) -> None:
    """What a journal says, otherwise than through its own methods."""
    with closing(sqlite3.connect(path / "journal.sqlite")) as db, db:
        db.execute(statement)


def filled(path: Path) -> dict[str, Note]:
    """A journal with entries and signed subjects; the entries by the names of their commands."""
    entries = {str(i): Note(f"text {i}" * 20) for i in range(40)}
    with closing(opened(path)) as journal:
        for name, entry in entries.items():
            journal.write(1, key_of(DoNote, name), entry)
            journal.sign_once(f"subject {name}", entry.text.encode())
    return entries


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = replace(body, 'text 7', 'text 8') "
        "WHERE key = 'test-do-note.v1:7'",
        "UPDATE entries SET key = 'test-do-note.v1:77' WHERE key = 'test-do-note.v1:7'",
        "UPDATE entries SET sum = x'00' WHERE key = 'test-do-note.v1:7'",
    ],
)
def test_a_damaged_entry_goes_and_is_counted(tmp_path: Path, statement: str) -> None:
    entries = filled(tmp_path)
    change(tmp_path, statement)
    del entries["7"]
    for damaged in (1, 0):
        with closing(opened(tmp_path)) as journal:
            assert journal.damaged == damaged
            assert {name: journal.read(1).of(DoNote, name) for name in entries} == entries
            assert len(journal.read(1)) == len(entries)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE signed SET content = x'00' WHERE subject = 'subject 7'",
        "UPDATE signed SET subject = 'subject 77' WHERE subject = 'subject 7'",
        "UPDATE meta SET value = '00' WHERE name = 'secret:salt'",
        'UPDATE entries SET body = \'{"text":""}\' WHERE job = 0',
    ],
)
def test_who_cannot_know_what_it_signed_or_was_ordered_does_not_start(
    tmp_path: Path, statement: str
) -> None:
    filled(tmp_path)
    with closing(opened(tmp_path)) as journal:
        journal.secret("salt")
        journal.write(OF_SERVICE, "orders", Note("pauses"))
    change(tmp_path, statement)
    with pytest.raises(JournalError, match="is damaged") as caught:
        opened(tmp_path)
    assert "atoll journal import" in (caught.value.next_step or "")
