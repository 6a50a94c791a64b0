"""What was written, and said to be, is there after a power cut."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.disk import Disk

from atoll.files import durable_rename, write_beside, write_once


def renamed(path: Path, data: bytes) -> None:
    new = path.with_name("new")
    new.write_bytes(data)
    durable_rename(new, path)


WAYS: list[Callable[[Path, bytes], None]] = [write_once, renamed]


@pytest.mark.parametrize("write", WAYS)
def test_a_file_and_its_name_are_on_the_disk(
    write: Callable[[Path, bytes], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk, path = Disk(monkeypatch), tmp_path / "file"
    write(path, b"content")
    assert disk.after_a_power_cut(path) == b"content"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_so_is_one_on_a_disk_without_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    disk, path = Disk(monkeypatch), tmp_path / "file"
    write_once(path, b"content")
    assert disk.after_a_power_cut(path) == b"content"


def test_a_file_that_is_replaced_is_the_old_one_or_the_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk, path = Disk(monkeypatch), tmp_path / "file"
    write_once(path, b"old")
    durable_rename(write_beside(path, b"new"), path)
    assert disk.after_a_power_cut(path) == b"new"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        renamed(path, b"third")
    assert path.read_bytes() == disk.after_a_power_cut(path) == b"new"


@pytest.mark.parametrize("write", WAYS)
def test_a_file_system_that_syncs_no_folders_serves_as_well_as_it_can(
    write: Callable[[Path, bytes], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fsync = os.fsync

    def of_files_alone(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", of_files_alone)
    write(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
