"""The folder of blocks: whole or absent, checked when read, shared by several processes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from atoll.errors import CorruptBlock, DiskFull, NotFound, TooLarge
from atoll.storage import DAG_CBOR, LEGACY, Cid, LocalStore

MIB = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_bytes_read_back(store: LocalStore) -> None:
    data = os.urandom(3 * MIB + 17)
    cid = store.add_bytes(data)
    assert store.read_bytes(cid, len(data)) == data
    assert store.add_bytes(data) == cid
    assert files_below(store.root / "tmp") == []


def test_file_reads_back(store: LocalStore, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(os.urandom(2 * MIB + 1))
    cid = store.add_file(source, LEGACY)
    assert store.read_file_to(cid, target, 3 * MIB) == 2 * MIB + 1
    assert target.read_bytes() == source.read_bytes()


def test_a_document_is_one_block(store: LocalStore) -> None:
    cid = store.add_block(b"\xa0", DAG_CBOR)
    assert str(cid).startswith("bafyrei")
    assert store.read_bytes(cid, 1) == b"\xa0"


def test_missing_things_are_not_found(store: LocalStore, tmp_path: Path) -> None:
    absent = Cid.of(b"absent")
    assert not store.has(absent)
    with pytest.raises(NotFound):
        store.get_block(absent)
    with pytest.raises(NotFound):
        store.add_file(tmp_path / "absent")


def test_a_failed_read_leaves_no_file(store: LocalStore, tmp_path: Path) -> None:
    cid = store.add_bytes(os.urandom(2 * MIB))
    leaf = store.root / "blocks"
    for path in files_below(leaf):
        if path.stat().st_size == MIB:
            path.unlink()
            break
    target = tmp_path / "out"
    target.write_text("before")
    with pytest.raises(NotFound):
        store.read_file_to(cid, target, 4 * MIB)
    assert target.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]


def test_refuses_a_block_of_another_name(store: LocalStore) -> None:
    with pytest.raises(CorruptBlock):
        store.put_block(Cid.of(b"this"), b"that")
    assert files_below(store.root / "blocks") == files_below(store.root / "tmp") == []


def test_refuses_a_huge_block(store: LocalStore) -> None:
    block = bytes(2 * MIB + 1)
    with pytest.raises(TooLarge):
        store.put_block(Cid.of(block), block)
    with pytest.raises(TooLarge):
        store.add_block(block)


def test_one_flipped_bit_on_disk_is_caught_and_repairable(store: LocalStore) -> None:
    cid = store.add_block(b"precious")
    (path,) = files_below(store.root / "blocks")
    path.write_bytes(b"precioUs")
    with pytest.raises(CorruptBlock):
        store.get_block(cid)
    assert not store.has(cid)
    store.put_block(cid, b"precious")
    assert store.get_block(cid) == b"precious"


def test_a_truncated_block_is_rewritten(store: LocalStore) -> None:
    cid = store.add_block(b"precious")
    (path,) = files_below(store.root / "blocks")
    path.write_bytes(b"")
    store.put_block(cid, b"precious")
    assert store.get_block(cid) == b"precious"


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_full_disk_leaves_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os if failing == "fsync" else Path, failing, full)
    with pytest.raises(DiskFull) as caught:
        store.add_bytes(b"block")
    assert caught.value.next_step is not None
    monkeypatch.undo()
    assert files_below(store.root / "blocks") == files_below(store.root / "tmp") == []
