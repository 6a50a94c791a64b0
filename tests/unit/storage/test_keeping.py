"""Pins, collection, quotas, damage: what is owed stays, the rest may go."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.support.disk import Disk

from atoll.errors import DiskFull, StorageError
from atoll.protocol.canonical import CidLink, encode
from atoll.storage import DAG_CBOR, DAG_PB, Cid, LocalStore, MalformedDag
from atoll.storage.block_links import MAX_ITEMS, cbor_links, links_of
from atoll.storage.garbage_collection import SPARE
from atoll.storage.pins import Pins

MIB = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path, sync=False)


def age(store: LocalStore, seconds: float = 7200.0) -> None:
    """Makes every block look unused for that long."""
    for path in (store.root / "blocks").rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - seconds
            os.utime(path, (then, then))


def test_a_pin_keeps_the_whole_file(store: LocalStore) -> None:
    kept, spare = store.add_bytes(os.urandom(3 * MIB)), store.add_bytes(os.urandom(3 * MIB))
    store.pin(kept, "job/1")
    age(store)
    done = store.collect()
    assert (done.pinned_blocks, done.freed_bytes > 3 * MIB) == (4, True)
    assert len(store.read_bytes(kept, 3 * MIB)) == 3 * MIB
    assert not store.has(spare)


def test_each_reason_holds_on_its_own(store: LocalStore) -> None:
    cid = store.add_bytes(b"update")
    for reason in ("round/1", "round/1", "dispute/1"):
        store.pin(cid, reason)
    age(store)
    assert store.unpin("round/1") == 1
    store.collect()
    assert store.has(cid)
    assert store.unpin("dispute/1", Cid.of(b"other")) == 0
    assert store.unpin("dispute/1", cid) == 1
    store.collect()
    assert not store.has(cid)


def test_a_pin_reaches_through_documents(store: LocalStore) -> None:
    states = [store.add_bytes(os.urandom(MIB + 1)) for _ in range(2)]
    linked = {
        "states": [CidLink(cid.to_bytes()) for cid in states],
        "n": -5,
        "loss": 1.5,
        "x": None,
    }
    document = store.add_block(encode(linked), DAG_CBOR)
    store.pin(document, "trace")
    age(store)
    store.collect()
    assert store.verify().missing == ()
    assert [len(store.read_bytes(cid, 2 * MIB)) for cid in states] == [MIB + 1] * 2


def test_what_was_just_used_stays(store: LocalStore) -> None:
    cid = store.add_bytes(b"new")
    assert store.collect().freed_bytes == 0
    age(store)
    store.add_bytes(b"new")
    assert store.collect().freed_bytes == 0
    age(store)
    assert store.collect().freed_bytes == 3
    assert not store.has(cid)


def test_nothing_goes_while_work_that_used_it_is_in_progress(store: LocalStore) -> None:
    with store.holding():
        cid = store.add_bytes(b"leaf")
        assert store.collect(grace_s=0).freed_bytes == 0
    age(store)
    assert store.collect(grace_s=0).freed_bytes == 4
    assert not store.has(cid)


def test_work_may_be_in_progress_for_more_than_a_day(store: LocalStore) -> None:
    with store.holding():
        cid = store.add_bytes(b"leaf")
        age(store, 90_000)
        (mark,) = (store.root / "tmp").iterdir()
        os.utime(mark, (0, 0))
        for _ in range(2):
            assert LocalStore(store.root, sync=False).collect().freed_bytes == 0
    assert store.collect().freed_bytes == 4
    assert not store.has(cid)


def test_a_pin_made_during_a_collection_counts(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cid = store.add_bytes(b"late")
    age(store)
    scan = store._folder.scan

    def scan_then_pin() -> object:
        found = list(scan())
        store.pin(cid, "just in time")
        return found

    monkeypatch.setattr(store._folder, "scan", scan_then_pin)
    assert store.collect().freed_bytes == 0
    assert store.has(cid)


def test_longest_unused_goes_first(store: LocalStore) -> None:
    cids = []
    for i in range(4):
        cids.append(store.add_block(bytes([i]) * 1000))
        age(store)
    assert store.collect(keep_bytes=2000).kept_bytes == 2000
    assert [store.has(cid) for cid in cids] == [False, False, True, True]


def test_a_quota_makes_room_and_then_refuses(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, sync=False, quota_bytes=100_000)
    for i in range(30):
        store.pin(store.add_block(bytes([i]) * 1000), "owed")
    for i in range(300):
        age(store, 100)
        store.add_block(bytes([99, i % 256, i // 256]) * 1000)
    assert store.usage().bytes <= 100_000
    assert store.verify().missing == ()
    with pytest.raises(DiskFull, match="quota") as caught:
        for i in range(100):
            store.pin(store.add_block(bytes([i, 7]) * 1000), "owed")
    assert caught.value.next_step is not None
    assert store.usage().bytes <= 100_000


def test_what_can_be_made_again_gives_way_to_what_is_owed(tmp_path: Path) -> None:
    """Else states that an auditor keeps of 256 seats would leave no room for a round's updates."""
    store = LocalStore(tmp_path, sync=False, quota_bytes=100_000)
    for seat in range(2):
        store.pin(store.add_bytes(os.urandom(25_000)), f"job/1/round/3{SPARE}/carried/{seat}")
    first = store.add_bytes(os.urandom(40_000))
    store.pin(first, "job/1/round/3")
    store.pin(store.add_bytes(os.urandom(40_000)), "job/1/round/4")
    assert [pin.reason for pin in store.pins()] == ["job/1/round/3", "job/1/round/4"]
    assert len(store.read_bytes(first, 40_000)) == 40_000
    with pytest.raises(DiskFull, match="quota"):
        store.add_bytes(os.urandom(40_000))


@pytest.mark.parametrize("way", ["add_bytes", "add_block", "put_block"])
def test_without_a_quota_it_gives_way_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    store, mib = LocalStore(tmp_path, sync=False), 1 << 20
    end = mib * 3

    def disk(_: object) -> SimpleNamespace:
        return SimpleNamespace(free=end - store.usage().bytes)

    monkeypatch.setattr("atoll.storage.quota.shutil.disk_usage", disk)
    owed, other = store.add_bytes(os.urandom(mib)), store.add_bytes(os.urandom(mib))
    spare = store.add_bytes(os.urandom(mib))
    store.pin(owed, "job/1/round/3")
    store.pin(spare, f"job/1/round/3{SPARE}/carried/0")
    block = os.urandom(mib)
    ways: dict[str, Callable[[], object]] = {
        "add_bytes": lambda: store.add_bytes(block),
        "add_block": lambda: store.add_block(block),
        "put_block": lambda: store.put_block(Cid.of(block), block),
    }
    if way == "put_block":  # as SQLite does where nothing at all is left

        def remove(self: Pins, reason: str, cid: Cid | None = None) -> int:
            if disk(None).free < 4096:
                raise DiskFull("no room for a pin's end")
            return ending(self, reason, cid)

        ending = Pins.remove
        monkeypatch.setattr(Pins, "remove", remove)
    ways[way]()
    assert [store.has(cid) for cid in (Cid.of(block), owed, spare)] == [True, True, False]
    assert [pin.reason for pin in store.pins()] == ["job/1/round/3"]
    age(store)
    store.pin(Cid.of(block), "job/1/round/3")
    assert not store.has_room(4 * mib)
    assert store.has(other)  # all that is here would not be enough
    store.add_bytes(os.urandom(mib))
    assert not store.has(other)


def test_what_is_about_to_be_pinned_does_not_give_way(tmp_path: Path) -> None:
    """It was here to be made again; work in progress found it here, and has yet to pin it."""
    store = LocalStore(tmp_path, quota_bytes=100_000, sync=False)
    wanted, spare = b"wanted" * 5_000, b"spare" * 6_000
    for block in (wanted, spare):
        store.pin(store.add_block(block), f"job/1/round/3{SPARE}/carried/0")
    age(store)
    with store.holding():
        found = store.add_block(wanted)
        store.add_block(b"other" * 10_000)
        store.pin(found, "job/1/round/3")
    assert (store.has(found), store.has(Cid.of(spare))) == (True, False)


def test_work_that_takes_long_keeps_nobody_from_what_gives_way(tmp_path: Path) -> None:
    """As a merge that waits for its worker, while another replay keeps a state after each round."""
    store = LocalStore(tmp_path, quota_bytes=100_000, sync=False)
    with store.holding():
        for number in range(6):
            state = store.add_block(bytes([number]) * 40_000)
            store.pin(state, f"job/1/round/{number}{SPARE}/replays/0")
    assert store.has(state)


def test_everyone_who_opens_a_folder_keeps_to_its_quota(tmp_path: Path) -> None:
    service, worker = LocalStore(tmp_path, sync=False), LocalStore(tmp_path, sync=False)
    service.set_quota(100_000)
    owed = service.add_block(b"owed" * 10_000)
    service.pin(owed, "round/1")
    spare = service.add_block(b"spare" * 10_000)
    age(service)
    later = LocalStore(tmp_path, sync=False)
    later.add_block(b"later" * 8_000)
    assert (later.has(owed), later.has(spare)) == (True, False)
    with pytest.raises(DiskFull, match="quota of 100000"):
        later.add_block(b"x" * 70_000)
    assert worker.quota_bytes is None
    service.set_quota(None)
    assert LocalStore(tmp_path, sync=False).quota_bytes is None


def test_a_quota_collects_nothing_that_work_in_progress_has_made(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, sync=False)
    store.set_quota(100_000)
    with store.holding():
        made = store.add_block(b"made" * 15_000)
        with pytest.raises(DiskFull):
            store.add_block(b"more" * 15_000)
        store.pin(made, "round/1")
    age(store)
    with pytest.raises(DiskFull):
        store.add_block(b"more" * 15_000)
    assert store.has(made)


@pytest.mark.parametrize("sync", [True, False])
def test_a_quota_is_there_after_a_power_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sync: bool
) -> None:
    disk = Disk(monkeypatch)
    LocalStore(tmp_path, sync=sync).set_quota(100_000)
    assert disk.after_a_power_cut(tmp_path / "quota") == b"100000"


def test_a_quota_that_is_no_number_is_named(store: LocalStore) -> None:
    (store.root / "quota").write_text("plenty")
    with pytest.raises(StorageError, match="number of bytes") as caught:
        LocalStore(store.root)
    assert caught.value.next_step is not None


def test_pins_that_cannot_be_read_are_named(store: LocalStore) -> None:
    cid = store.add_block(b"block")
    (store.root / "pins.db").write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError, match=r"pins\.db") as caught:
        store.pin(cid, "job/1")
    assert type(caught.value) is StorageError


def test_pins_for_which_the_disk_has_no_room_say_so(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cid = store.add_block(b"block")
    connect = sqlite3.connect

    def connect_to_a_full_disk(path: Path, **options: float) -> sqlite3.Connection:
        database = connect(path, **options)  # type: ignore[call-overload]
        database.execute("PRAGMA max_page_count = 1")  # as many as there are
        return cast("sqlite3.Connection", database)

    monkeypatch.setattr(sqlite3, "connect", connect_to_a_full_disk)
    with pytest.raises(DiskFull):
        store.pin(cid, "x" * 10_000)
    monkeypatch.undo()
    store.pin(cid, "job/1")
    assert [pin.reason for pin in store.pins()] == ["job/1"]


def test_verify_finds_damage_and_loss(store: LocalStore) -> None:
    whole, broken = store.add_bytes(b"whole"), store.add_bytes(b"broken")
    store.pin(broken, "owed")
    path = next(p for p in (store.root / "blocks").rglob("*") if p.name == broken.digest.hex())
    path.write_bytes(b"brokem")
    found = store.verify()
    assert (found.blocks, found.damaged, found.missing) == (1, (broken.digest.hex(),), (broken,))
    store.put_block(broken, b"broken")
    assert store.verify().missing == ()
    assert store.has(whole)


def test_a_hostile_pinned_block_does_not_stop_collection(store: LocalStore) -> None:
    bad = store.add_block(b"\xff\xff", DAG_PB)
    store.pin(bad, "owed")
    spare = store.add_bytes(b"spare")
    age(store)
    store.collect()
    assert (store.has(bad), store.has(spare)) == (True, False)


def test_adders_and_collectors_do_not_fight(store: LocalStore) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []

    def loop(act: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                act()
        except BaseException as error:
            errors.append(error)

    def add() -> None:
        data = os.urandom(1)
        with store.holding():
            cid = store.add_bytes(data)
            assert store.read_bytes(cid, 1) == data

    acts = [add, add, lambda: store.collect(grace_s=0), store.verify]
    threads = [threading.Thread(target=loop, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for _ in range(300):
        add()
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.parametrize(
    "block",
    [b"", b"\x9f\xff", b"\x82\x00", b"\xd8\x2a\x00", b"\xd8\x2b\x41\x00", b"\xd8\x2a\x41\x01",
     b"\x00\x00", b"\x5b" + b"\xff" * 8, b"\x9b" + b"\xff" * 8, b"\xf7", b"\xfb\x00", b"\xc0\x00"],
)  # fmt: skip
def test_malformed_documents_are_refused(block: bytes) -> None:
    with pytest.raises(MalformedDag):
        links_of(Cid.of(block, DAG_CBOR), block)


def test_deep_documents_do_not_overflow() -> None:
    assert list(cbor_links(b"\x81" * (MAX_ITEMS - 1) + b"\x00")) == []


def test_what_is_dropped_goes_at_once_but_for_what_a_pin_reaches(store: LocalStore) -> None:
    """While work is in progress, too, which keeps everything else."""
    shared = os.urandom(MIB)
    kept, own = store.add_bytes(shared + b"kept"), store.add_bytes(shared + os.urandom(2 * MIB))
    other = store.add_bytes(b"nobody pins this")
    store.pin(kept, "job/1")
    with store.holding():
        assert 2 * MIB <= store.drop(own) < 3 * MIB
    assert not store.has(own)
    assert store.has(other)
    assert store.read_bytes(kept, 2 * MIB) == shared + b"kept"
    assert store.drop(kept) == 0


def test_room_is_the_disk_s_and_the_quota_s_after_what_may_go(store: LocalStore) -> None:
    assert store.has_room(MIB)
    assert not store.has_room(1 << 60)
    pinned = store.add_bytes(os.urandom(2 * MIB))
    store.pin(pinned, "job/1")
    store.set_quota(4 * MIB)
    assert store.has_room(MIB)
    assert not store.has_room(3 * MIB)
    spare = store.add_bytes(os.urandom(MIB))
    age(store)
    assert store.has_room(MIB + MIB // 2)
    assert not store.has(spare)
