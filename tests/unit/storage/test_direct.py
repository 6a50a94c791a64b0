"""Past the page cache or through it: the same bytes."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from atoll.errors import StorageError
from atoll.storage import LEGACY, V1, LocalStore, Profile, direct
from atoll.storage.direct import Buffers, OutFile, read_into

PAGE = 4096
MIB = 1 << 20


def no_such_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_O_DIRECT", None)


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, when: Callable[..., bool]) -> None:
    real = getattr(os, name)

    def refusing(*args: object) -> object:
        if when(*args):
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(*args)

    monkeypatch.setattr(os, name, refusing)


def no_direct_open(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "open", lambda _, flags, *mode: bool(flags & os.O_DIRECT))


def larger_units_than_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_direct(descriptor: int, *_: object) -> bool:
        return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)

    refuse(monkeypatch, "preadv", is_direct)
    refuse(monkeypatch, "pwrite", is_direct)


def no_sync_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_SYNCFS", None)


def nothing(_: pytest.MonkeyPatch) -> None:
    return


LACKS = [nothing, no_such_flag, no_direct_open, larger_units_than_pages, no_sync_of_all]


@pytest.mark.parametrize("lack", LACKS)
@pytest.mark.parametrize("profile", [V1, LEGACY])
def test_a_file_comes_back_whatever_the_file_system_offers(
    lack: Callable[[pytest.MonkeyPatch], None],
    profile: Profile,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    source, store = tmp_path / "in", LocalStore(tmp_path / "store")
    source.write_bytes(os.urandom(20 * MIB + PAGE + 1))
    with monkeypatch.context() as patched:
        lack(patched)
        cid = store.add_file(source, profile)
        store.read_file_to(cid, tmp_path / "out", 21 * MIB)
    assert (tmp_path / "out").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 3 * PAGE])
def test_any_size_is_read_up_to_the_buffer(size: int, tmp_path: Path) -> None:
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    with Buffers(1, 2 * PAGE).borrowed() as buffer:
        assert read_into(tmp_path / "file", buffer) == min(size, 2 * PAGE)
        assert buffer[: min(size, 2 * PAGE)] == data[: 2 * PAGE]


def test_pieces_land_where_they_belong(tmp_path: Path) -> None:
    out = OutFile(tmp_path / "file")
    with Buffers(1, PAGE).borrowed() as buffer:
        buffer[:] = b"b" * PAGE
        out.write(memoryview(buffer), PAGE)
        out.write(b"c" * 10, 2 * PAGE)
        out.write(memoryview(buffer)[:100], 0)
        out.write(b"a" * (PAGE - 100), 100)
    out.close()
    expected = b"b" * 100 + b"a" * (PAGE - 100) + b"b" * PAGE + b"c" * 10
    assert (tmp_path / "file").read_bytes() == expected


def test_a_buffer_has_one_holder_at_a_time() -> None:
    buffers = Buffers(2, PAGE)
    one, two = buffers.acquire(), buffers.acquire()
    assert one is not two
    buffers.release(one)
    assert buffers.acquire() is one


def test_a_disk_that_fails_to_sync_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    (tmp_path / "in").write_bytes(os.urandom(20 * MIB))
    store = LocalStore(tmp_path / "store")
    with monkeypatch.context() as patched:
        patched.setattr(direct, "_SYNCFS", fail)
        with pytest.raises(StorageError, match=os.strerror(errno.EIO)):
            store.add_file(tmp_path / "in")
    assert store.usage().blocks == 0
    assert not any((tmp_path / "store" / "tmp").iterdir())
    assert store.file_bytes(store.add_file(tmp_path / "in")) == 20 * MIB


def test_equal_blocks_are_written_once(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(bytes(200 * MIB))
    store = LocalStore(tmp_path / "store")
    with mock.patch.object(OutFile, "write", autospec=True, side_effect=OutFile.write) as write:
        store.add_file(tmp_path / "in")
    assert write.call_count < 20
    assert store.usage().blocks == 2
