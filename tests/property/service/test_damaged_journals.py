"""Hundreds of journals that are damaged or cut anywhere: none says what was not written."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from tests.unit.service.test_journal import DoNote, Note, filled, opened
from tests.unit.service.test_journal_gone import JOURNAL, SUBJECTS, Folder, begun, outcome

from atoll.chain.txfile import QUEUE_FILE
from atoll.errors import StorageError
from atoll.service.journal import AlreadySigned
from atoll.service.serialization import JournalError


def test_of_damaged_files_none_says_what_was_not_written(tmp_path: Path) -> None:
    """Six hundred journals, each with one to eight bytes changed anywhere."""
    entries, random, outcomes = filled(tmp_path), Random(16), Counter[str]()
    whole = (tmp_path / "journal.sqlite").read_bytes()
    for number in range(600):
        folder = tmp_path / str(number)
        folder.mkdir()
        damaged = bytearray(whole)
        for _ in range(random.randint(1, 8)):
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        (folder / "journal.sqlite").write_bytes(damaged)
        outcomes[_outcome(folder, entries)] += 1
    assert outcomes.keys() == {"as it was", "less", "refused"}
    assert outcomes["refused"] > 100


def _outcome(folder: Path, entries: dict[str, Note]) -> str:
    """What a damaged journal does; another entry, or another signature, fails the test."""
    try:
        with closing(opened(folder)) as journal:
            found = {name: journal.read(1).of(DoNote, name) for name in entries}
            for name, entry in entries.items():
                with pytest.raises(AlreadySigned):
                    journal.sign_once(f"subject {name}", b"something else")
                assert found[name] in (None, entry)
            assert len(journal.read(1)) == len([entry for entry in found.values() if entry])
            return "as it was" if found == entries else "less"
    except (JournalError, StorageError) as error:
        assert error.next_step or "schema" in str(error)
        return "refused"


def test_of_files_cut_anywhere_none_signs_otherwise(tmp_path: Path) -> None:
    """Of a service that ended, and of one that was killed with its logs beside the files."""
    ended, killed = begun(tmp_path / "ended"), tmp_path / "killed"
    with Folder(tmp_path / "runs") as runs:
        runs.sign(*range(SUBJECTS))
        shutil.copytree(runs.path, killed)
    assert outcome(shutil.copytree(killed, tmp_path / "whole")) == "as it was"
    random, outcomes = Random(43), Counter[str]()
    files = [
        (ended, JOURNAL), (killed, JOURNAL), (killed, f"{JOURNAL}-wal"),
        (killed, QUEUE_FILE), (killed, f"{QUEUE_FILE}-wal"),
    ]  # fmt: skip
    for number in range(300):
        whole, name = files[number % len(files)]
        folder = shutil.copytree(whole, tmp_path / str(number))
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: random.randrange(len(data))])
        if name.startswith(QUEUE_FILE):  # the journal is whole: whatever starts signs the same
            outcomes[outcome(folder)] += 1
        else:
            outcomes["journal " + outcome(folder)] += 1
    assert outcomes["journal refused"] > 140
    assert outcomes.keys() <= {"journal refused", "journal as it was", "refused", "as it was"}
