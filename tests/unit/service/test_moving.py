"""A journal as a file: whole or not at all, and never two services that sign for one key."""

from __future__ import annotations

import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from atoll.errors import ConfigError
from atoll.service.entries import OF_SERVICE
from atoll.service.journal import AlreadySigned, Belongs, Journal
from atoll.service.lock import hold_folder
from atoll.service.metrics import read_measures
from atoll.service.moving import Moved, export_journal, import_journal
from atoll.service.orders import NO_ORDERS, ORDERS_KEY, Orders
from atoll.service.serialization import JournalError

WHOSE = Belongs("0x70997970C51812dc3A010C7d01b50e0d17dc79C8", 31337, "0x" + "22" * 20)


def journal(folder: Path) -> Journal:
    folder.mkdir(exist_ok=True, mode=0o700)
    return Journal(folder / "journal.sqlite")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A data folder with two signed subjects, a note, a measure and a secret."""
    with closing(journal(tmp_path / "old")) as here:
        here.sign_once("commit:1", b"one")
        here.sign_once("commit:2", b"two")
        here.publish("held-out/1", b"\x00\xff")
        here.measure(1, 0, "train_seconds", 2.5)
        here.secret("salt")
    return tmp_path / "old"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def test_a_journal_moves_whole(old: Path, file: Path, tmp_path: Path) -> None:
    moved = export_journal(old, WHOSE, file, retire=True)
    assert (moved.signed, stat.S_IMODE(file.stat().st_mode)) == (2, 0o600)
    assert import_journal(tmp_path / "new", WHOSE, file) == moved
    with closing(journal(tmp_path / "new")) as there:
        assert (there.signed("commit:1"), there.note("held-out/1")) == (b"one", b"\x00\xff")
        moved_there = read_measures(tmp_path / "new" / "journal.sqlite")
        assert moved_there == [(1, 0, "train_seconds", 2.5)]
        salt = there.secret("salt")
        with pytest.raises(AlreadySigned):
            there.sign_once("commit:2", b"another")
    with pytest.raises(JournalError, match="moved away"):
        journal(old)
    assert import_journal(old, WHOSE, file) == Moved(0, 0)
    with closing(journal(old)) as back:
        assert back.secret("salt") == salt


def test_a_copy_retires_nothing_and_importing_it_again_changes_nothing(
    old: Path, file: Path
) -> None:
    export_journal(old, WHOSE, file, retire=False)
    journal(old).close()
    assert import_journal(old, WHOSE, file) == Moved(0, 0)


def test_two_histories_are_joined(old: Path, file: Path, tmp_path: Path) -> None:
    export_journal(old, WHOSE, file, retire=False)
    with closing(journal(tmp_path / "other")) as other:
        other.sign_once("commit:2", b"two")
        other.sign_once("commit:3", b"three")
    assert import_journal(tmp_path / "other", WHOSE, file).signed == 1
    with closing(journal(tmp_path / "other")) as other:
        assert [other.signed(f"commit:{i}") for i in (1, 2, 3)] == [b"one", b"two", b"three"]


def test_what_went_away_and_comes_back_brings_what_happened_there(
    old: Path, file: Path, tmp_path: Path
) -> None:
    """A → B → A: of orders and measures B's are the newer ones."""
    with closing(journal(old)) as here:
        here.write(OF_SERVICE, ORDERS_KEY, Orders(pauses=True))
    export_journal(old, WHOSE, file, retire=True)
    import_journal(tmp_path / "away", WHOSE, file)
    with closing(journal(tmp_path / "away")) as away:
        away.write(OF_SERVICE, ORDERS_KEY, NO_ORDERS)
        away.measure(1, 0, "train_seconds", 4.0)
        away.sign_once("commit:3", b"three")
    back = tmp_path / "back.jsonl"
    export_journal(tmp_path / "away", WHOSE, back, retire=True)
    import_journal(old, WHOSE, back)
    import_journal(old, WHOSE, file)  # the older copy takes nothing back
    with closing(journal(old)) as here:
        assert here.read(OF_SERVICE).all_of(Orders) == [NO_ORDERS]
        assert (1, 0, "train_seconds", 6.5) in read_measures(old / "journal.sqlite")
        assert here.signed("commit:3") == b"three"


def test_histories_that_contradict_are_refused_whole(old: Path, file: Path, tmp_path: Path) -> None:
    export_journal(old, WHOSE, file, retire=False)
    with closing(journal(tmp_path / "other")) as other:
        other.sign_once("commit:2", b"something else")
    with pytest.raises(AlreadySigned, match="commit:2"):
        import_journal(tmp_path / "other", WHOSE, file)
    with closing(journal(tmp_path / "other")) as other:
        assert (other.signed("commit:1"), other.note("held-out/1")) == (None, None)


@pytest.mark.parametrize("damage", ["cut", "changed", "line lost"])
def test_a_damaged_file_is_refused(old: Path, file: Path, tmp_path: Path, damage: str) -> None:
    export_journal(old, WHOSE, file, retire=False)
    data = file.read_bytes()
    lines = data.splitlines(keepends=True)
    file.write_bytes(
        {
            "cut": data[: len(data) // 2],
            "changed": data.replace(b"6f6e65", b"6f6e66"),
            "line lost": b"".join(lines[:1] + lines[2:]),
        }[damage]
    )
    with pytest.raises(JournalError, match="no whole journal"):
        import_journal(tmp_path / "new", WHOSE, file)
    assert not (tmp_path / "new").exists()


def test_another_key_or_chain_is_refused(old: Path, file: Path, tmp_path: Path) -> None:
    export_journal(old, WHOSE, file, retire=False)
    for other in (
        replace(WHOSE, account="0x" + "11" * 20),
        replace(WHOSE, chain_id=1),
        replace(WHOSE, network="0x" + "33" * 20),
    ):
        with pytest.raises(ConfigError, match="and this service is"):
            import_journal(tmp_path / "new", other, file)


def test_a_running_service_and_an_existing_file_are_left_alone(old: Path, file: Path) -> None:
    with hold_folder(old), pytest.raises(ConfigError, match="runs in"):
        export_journal(old, WHOSE, file, retire=True)
    journal(old).close()  # nothing was retired
    file.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        export_journal(old, WHOSE, file, retire=True)
    assert file.read_text() == "mine"
