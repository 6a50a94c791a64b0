"""A journal that is gone, older, damaged or another's is not taken for a new one."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.identities import address

from atoll.chain import database as database_module
from atoll.chain.call import Call
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.chain.keys import create_key
from atoll.chain.txfile import QUEUE_FILE, read_pairing, read_signed
from atoll.chain.txrecords import SignedTransaction
from atoll.chain.txstore import TxStore
from atoll.errors import AtollError, ConfigError, StorageError
from atoll.service import main as main_module
from atoll.service.config import ServiceConfig
from atoll.service.doctor.file_checks import check_running
from atoll.service.doctor.subject import Subject
from atoll.service.journal import AlreadySigned, Belongs, Journal, JournalGone, require_pair
from atoll.service.main import main
from atoll.service.moving import export_journal, import_journal, renew_journal
from atoll.service.serialization import JournalError

WHOSE = Belongs(address("me"), 31337, address("rounds"))
OTHERS = (
    replace(WHOSE, account=address("other")),
    replace(WHOSE, chain_id=1),
    replace(WHOSE, network=address("another deployment")),
)
SUBJECTS = 40
JOURNAL = "journal.sqlite"


class Folder:
    """A service's data folder, open, as `open_context` opens it."""

    def __init__(self, path: Path, whose: Belongs = WHOSE) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        with ExitStack() as stack:
            self.journal = stack.enter_context(closing(Journal(path / JOURNAL, whose)))
            where = (path / QUEUE_FILE, address("me"), 31337, self.journal.pair)
            self.queue = stack.enter_context(closing(TxStore(*where)))
            self.journal.tell_claims(self.queue.claimed)
            self._opened = stack.pop_all()

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def sign(self, *subjects: int) -> None:
        """Claims subjects, and signs a transaction for each."""
        for subject in subjects:
            self.journal.sign_once(f"subject {subject}", f"content {subject}".encode())
            self.queue.add(f"key {subject}", 0, Call(address("to"), b"", "say"), 0)
            intent = self.queue.find(f"key {subject}")
            assert intent is not None
            signed = SignedTransaction(f"0x{subject:064x}", intent.id, b"raw", 2, 1, cancels=False)
            self.queue.sign(intent, subject, 21_000, signed)


def begun(path: Path, subjects: int = SUBJECTS) -> Path:
    """A folder whose service has signed, and has ended."""
    with Folder(path) as folder:
        folder.sign(*range(subjects))
    return path


def outcome(path: Path, subjects: int = SUBJECTS) -> str:
    """What a start in the folder does; a subject that could be signed otherwise fails the test."""
    try:
        folder = Folder(path)
    except AtollError as error:
        assert error.next_step, error
        assert isinstance(error, JournalError | StorageError | ConfigError)
        return "refused"
    with folder:
        for subject in range(subjects):
            with pytest.raises(AlreadySigned):
                folder.journal.sign_once(f"subject {subject}", b"otherwise")
    return "as it was"


def gone_from(path: Path) -> str:
    """Why a start in the folder is refused; what to do is said."""
    with pytest.raises(JournalGone) as refused:
        Folder(path)
    step = refused.value.next_step or ""
    assert all(way in step for way in ("bring back", "atoll journal import", "--new-journal"))
    assert refused.value.exit_code == ConfigError.exit_code  # which no unit starts again
    return str(refused.value)


# --- a first start ---


def test_both_files_are_made_with_one_id_and_begin_again_with_it(tmp_path: Path) -> None:
    with Folder(tmp_path) as folder:
        pair = folder.journal.pair
        assert (folder.queue.pairing.pair, len(pair)) == (pair, 32)
        for path in tmp_path.iterdir():  # whoever made it: a service refuses what others can use
            assert path.stat().st_mode & 0o077 == 0, path
    with Folder(tmp_path) as folder:
        assert folder.journal.pair == folder.queue.pairing.pair == pair
        assert folder.journal.is_new


@pytest.mark.parametrize("file", [0, 1])
def test_a_crash_at_a_first_start_leaves_what_a_second_one_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: int
) -> None:
    """Before the one file, and between the two."""
    made: list[Path] = []

    def write_once(path: Path, data: bytes) -> None:
        if len(made) == file:
            raise OSError(5, "no power", str(path))
        made.append(path)
        path.write_bytes(data)

    monkeypatch.setattr(database_module, "write_once", write_once)
    with pytest.raises(StorageError):
        Folder(tmp_path)
    monkeypatch.undo()
    assert [path.name for path in made] == [JOURNAL][:file]
    with Folder(tmp_path) as folder:
        folder.sign(1)
    with Folder(tmp_path) as folder:
        assert folder.journal.signed("subject 1") == b"content 1"


def test_where_nothing_was_signed_a_journal_can_be_made_anew(tmp_path: Path) -> None:
    Folder(tmp_path).__exit__()
    (tmp_path / JOURNAL).unlink()
    with Folder(tmp_path) as folder:
        folder.sign(1)


# --- what is lost ---


def test_every_claim_is_known_to_the_queue_before_it_is_signed(tmp_path: Path) -> None:
    with Folder(tmp_path) as folder:
        for subject in (1, 2):
            folder.journal.sign_once(
                f"subject {subject}", b"said to a gateway, and not by the queue"
            )
            folder.journal.sign_once(
                f"subject {subject}", b"said to a gateway, and not by the queue"
            )
            assert folder.queue.pairing.claims == subject
    (tmp_path / JOURNAL).unlink()
    assert "is missing" in gone_from(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 99, 100, 511, 512, 4095, 4096, 4097, 8192])
def test_a_journal_of_so_many_bytes_is_none(tmp_path: Path, size: int) -> None:
    path = begun(tmp_path) / JOURNAL
    path.write_bytes(path.read_bytes()[:size])
    gone_from(tmp_path)
    assert outcome(tmp_path) == "refused"  # again: to look at it has not mended it


@pytest.mark.parametrize("lost", [JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}*"])
def test_a_copy_that_lacks_a_file_is_half_of_one(tmp_path: Path, lost: str) -> None:
    with Folder(tmp_path / "runs") as runs:
        runs.sign(*range(SUBJECTS))
        half = shutil.copytree(runs.path, tmp_path / "half")
    for path in half.glob(lost):
        path.unlink()
    gone_from(half)


@pytest.mark.parametrize("known", [1, SUBJECTS - 1])
def test_an_older_copy_of_a_journal_is_known_by_what_was_claimed_since(
    tmp_path: Path, known: int
) -> None:
    folder = begun(tmp_path / "folder", known)
    older = (folder / JOURNAL).read_bytes()
    with Folder(folder) as again:
        again.sign(*range(known, SUBJECTS))
    (folder / JOURNAL).write_bytes(older)
    assert f"it knows {known} of {SUBJECTS} subjects" in gone_from(folder)


def test_another_folder_s_journal_is_not_this_one_s(tmp_path: Path) -> None:
    here, there = begun(tmp_path / "here"), begun(tmp_path / "there", 3)
    shutil.copy(there / JOURNAL, here / JOURNAL)
    assert "not the one that" in gone_from(here)


def test_a_journal_is_an_account_s_on_a_network(tmp_path: Path) -> None:
    begun(tmp_path)
    for other in OTHERS:
        with pytest.raises(JournalError, match="and this service of"):
            Journal(tmp_path / JOURNAL, other)
    (tmp_path / QUEUE_FILE).unlink()
    for other in OTHERS:
        with pytest.raises(JournalError, match="and this service of"):
            Journal(tmp_path / JOURNAL, other)


def test_a_queue_s_file_is_not_begun_anew_either(tmp_path: Path) -> None:
    begun(tmp_path)
    data = (tmp_path / QUEUE_FILE).read_bytes()
    for size in (0, 100, 4096, len(data) - 4096):
        (tmp_path / QUEUE_FILE).write_bytes(data[:size])
        with pytest.raises(StorageError, match="is damaged") as refused:
            Folder(tmp_path)
        assert "move transactions.sqlite* away" in (refused.value.next_step or "")
        with pytest.raises(StorageError, match="is damaged"):
            TxStore(tmp_path / QUEUE_FILE, address("me"), 31337)
    (tmp_path / QUEUE_FILE).unlink()
    with Folder(tmp_path) as folder:  # the journal has what counts, and says how much that is
        assert folder.queue.pairing.claims == SUBJECTS
    with pytest.raises(ConfigError, match="beside another journal"):
        TxStore(tmp_path / QUEUE_FILE, address("me"), 31337, "00" * 16)


# --- what helps ---


def test_a_copy_read_in_beside_what_was_signed_goes_on(tmp_path: Path) -> None:
    here = begun(tmp_path / "here")
    copy = tmp_path / "copy"
    export_journal(here, WHOSE, copy, retire=False)
    (here / JOURNAL).unlink()
    gone_from(here)
    assert import_journal(here, WHOSE, copy).signed == SUBJECTS
    assert outcome(here) == "as it was"


def test_a_copy_that_is_too_old_does_not(tmp_path: Path) -> None:
    here, copy = begun(tmp_path / "here", 3), tmp_path / "copy"
    export_journal(here, WHOSE, copy, retire=False)
    with Folder(here) as again:
        again.sign(3, 4)
    (here / JOURNAL).unlink()
    import_journal(here, WHOSE, copy)
    assert "it knows 3 of 5 subjects" in gone_from(here)


def test_what_the_key_sent_elsewhere_goes_along_with_its_journal(tmp_path: Path) -> None:
    first, copy = begun(tmp_path / "first", 2), tmp_path / "copy"
    export_journal(first, WHOSE, copy, retire=True)
    import_journal(tmp_path / "second", WHOSE, copy)
    sent = read_signed(first / QUEUE_FILE)
    with Folder(tmp_path / "second") as second:
        assert all(map(second.journal.has_sent, sent))
        assert not second.journal.has_sent("0x77")
        second.sign(2)
        assert second.queue.pairing.claims == 3
    back = tmp_path / "back"
    export_journal(tmp_path / "second", WHOSE, back, retire=True)
    import_journal(first, WHOSE, back)
    with Folder(first) as again:  # its own id, its own queue, and what was sent meanwhile
        assert again.journal.has_sent(f"0x{2:064x}")
        assert again.journal.signed("subject 2") == b"content 2"


def test_a_new_journal_beside_what_was_signed_keeps_what_is_left(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / JOURNAL).write_bytes((tmp_path / JOURNAL).read_bytes()[:5000])
    for number in (1, 2):
        gone_from(tmp_path)
        renew_journal(tmp_path, WHOSE)
        assert (tmp_path / f"{JOURNAL}.gone-{number}").exists()
        with Folder(tmp_path) as folder:
            assert folder.journal.is_renewed
            folder.sign(SUBJECTS + number)
            folder.journal.begin()
        with Folder(tmp_path) as folder:
            assert not folder.journal.is_renewed
            assert folder.journal.signed(f"subject {SUBJECTS + number}")
        (tmp_path / JOURNAL).write_bytes(b"")


def test_a_new_journal_takes_nothing_from_one_that_is_whole(tmp_path: Path) -> None:
    """Who has `--new-journal` in a unit, or brings an older copy, loses no subject of it."""
    folder = begun(tmp_path / "folder", 3)
    older = (folder / JOURNAL).read_bytes()
    renew_journal(folder, WHOSE)
    with Folder(folder) as again:
        assert again.journal.is_renewed
        with pytest.raises(AlreadySigned):
            again.journal.sign_once("subject 2", b"otherwise")
        again.sign(3)
    (folder / JOURNAL).write_bytes(older)
    gone_from(folder)
    renew_journal(folder, WHOSE)
    with Folder(folder) as again, pytest.raises(AlreadySigned):
        again.journal.sign_once("subject 2", b"otherwise")
    shutil.copy(begun(tmp_path / "other", 1) / JOURNAL, folder / JOURNAL)
    renew_journal(folder, WHOSE)
    Folder(folder).__exit__()


def test_no_new_journal_beside_one_that_was_moved_or_is_another_s(tmp_path: Path) -> None:
    begun(tmp_path / "here")
    export_journal(tmp_path / "here", WHOSE, tmp_path / "copy", retire=True)
    with pytest.raises(JournalError, match="moved away"):
        renew_journal(tmp_path / "here", WHOSE)
    begun(tmp_path / "there")
    for other in OTHERS:
        with pytest.raises(JournalError, match="and this service of"):
            renew_journal(tmp_path / "there", other)
    assert not list(tmp_path.rglob("*.gone-*"))


def test_a_service_started_with_the_option_has_a_new_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text("correct horse battery staple")
    key = create_key(tmp_path / "keys", password.read_text(), devnet=True)
    Deployment(31337, 0, {name: address(name) for name in REQUIRED}).save(tmp_path / "net.json")
    (tmp_path / "config.toml").write_text(
        'rpc_urls = ["http://127.0.0.1:1"]\ndeployment = "net.json"\npassword_file = "password"\n'
        f'keystore = "{key.path}"\ndata_dir = "data"\n'
    )
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with closing(TxStore(data / QUEUE_FILE, key.address, 31337)) as store:
        store.claimed(1)

    async def run(config: ServiceConfig) -> None:
        whose = Belongs(key.address, 31337, address("Rounds"))
        with closing(Journal(config.journal_file, whose)) as journal:
            assert journal.is_renewed

    # What is of the whole process stays as it is for every test after this one.
    monkeypatch.setattr(main_module, "logs_configured", lambda config, speaks: nullcontext())
    monkeypatch.setattr(main_module, "raise_open_files", lambda: None)
    monkeypatch.setattr(main_module.os, "umask", lambda mask: mask)
    asked = ["--config", str(tmp_path / "config.toml")]
    assert main("atoll node run", run, asked) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "journal.sqlite is gone" in first
    assert "--new-journal" in second
    assert main("atoll node run", run, [*asked, "--new-journal"]) == 0
    assert main("atoll node run", run, asked) == 0


def test_doctor_says_what_a_start_would(tmp_path: Path) -> None:
    require_pair(tmp_path / JOURNAL)
    begun(tmp_path)
    whole = (tmp_path / JOURNAL).read_bytes()
    with Folder(tmp_path):  # also beside the running service
        require_pair(tmp_path / JOURNAL)
    for left in (b"", whole[:100], whole[:4096]):
        (tmp_path / JOURNAL).write_bytes(left)
        before = (tmp_path / JOURNAL).read_bytes()
        with pytest.raises(JournalGone):
            require_pair(tmp_path / JOURNAL)
        assert (tmp_path / JOURNAL).read_bytes() == before
    (tmp_path / JOURNAL).unlink()
    found = check_running(Subject(data_dir=tmp_path))
    assert any("is missing" in one.text and "--new-journal" in str(one) for one in found)


def test_what_is_no_queue_s_file_is_said_by_whoever_reads_it(tmp_path: Path) -> None:
    assert read_pairing(tmp_path / QUEUE_FILE) is None
    assert read_signed(tmp_path / QUEUE_FILE) == []
    (tmp_path / QUEUE_FILE).write_bytes(b"no database")
    for read in (read_pairing, read_signed):
        with pytest.raises(StorageError, match="is damaged"):
            read(tmp_path / QUEUE_FILE)
