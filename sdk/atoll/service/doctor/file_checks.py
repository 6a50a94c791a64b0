"""The key, who can read what, room on the disk, and what a service left there."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from atoll.chain.database import open_read_only
from atoll.chain.keys import read_password, verify_key
from atoll.errors import AtollError, KeystoreError
from atoll.service.doctor.findings import Finding, failure, ok, warning
from atoll.service.doctor.subject import Subject
from atoll.service.journal import require_pair
from atoll.service.lock import holder_of
from atoll.service.private import exposed, private_paths

LEAST_ROOM: Final = 1 << 30
USUAL_ROOM: Final = 10 << 30


def check_key(subject: Subject) -> list[Finding]:
    """Whether the password opens the keystore, and the key signs for its address."""
    if subject.keystore is None:
        return [warning("key", "no keystore is named", "pass --keystore FILE, or --config FILE")]
    if subject.password_file is None:
        step = "pass --password-file FILE to try the key"
        return [warning("key", f"{subject.keystore} was not opened", step)]
    try:
        info = verify_key(subject.keystore, read_password(subject.password_file))
    except KeystoreError as error:
        return [failure("key", str(error), error.next_step or "atoll keys list")]
    return [ok("key", f"{subject.keystore} signs for {info.address}")]


def check_modes(subject: Subject) -> list[Finding]:
    """Whether anybody else on this machine can read keys, passwords or journals."""
    paths = private_paths(subject.keystore, subject.password_file, subject.data_dir)
    faults = [fault for path in paths if (fault := exposed(path)) is not None]
    if not faults and paths:
        return [ok("modes", f"nobody else can use the {len(paths)} files and folders looked at")]
    return [failure("modes", fault.text, fault.mends) for fault in faults]


def check_disk(subject: Subject) -> list[Finding]:
    """Room where the service writes, and for what the blocks' quota allows."""
    if subject.data_dir is None:
        return []
    room = shutil.disk_usage(_existing(subject.data_dir)).free
    text = f"{_gib(room)} free at {subject.data_dir}"
    if room < LEAST_ROOM:
        return [failure("disk", text, "free some room, or set data_dir to a larger disk")]
    if room < USUAL_ROOM:
        return [warning("disk", text, "free some room, or set data_dir to a larger disk")]
    return [ok("disk", text), *_check_quota(subject, room)]


def check_running(subject: Subject) -> list[Finding]:
    """Who runs in the data folder, and whether the databases there can be read."""
    if subject.data_dir is None:
        return []
    pid = holder_of(subject.data_dir)
    who = f"process {pid} runs in {subject.data_dir}" if pid is not None else "not running"
    databases = [*_check_databases(subject.data_dir), *_check_pair(subject.data_dir)]
    return [ok("service", who), *databases]


def _check_pair(folder: Path) -> Iterator[Finding]:
    """Whether the journal is the one that the queue's file was beside, whoever has them open."""
    try:
        require_pair(folder / "journal.sqlite")
    except AtollError as error:
        yield failure("journal", str(error), error.next_step or "")


def _check_quota(subject: Subject, room: int) -> Iterator[Finding]:
    if subject.quota_bytes is None:
        step = "set quota_bytes in [store]: what is longest unused goes then, what is owed stays"
        yield warning("quota", "blocks may fill the disk", step)
        return
    used = _bytes_below(subject.store_dir)
    text = f"{_gib(used)} of {_gib(subject.quota_bytes)} used by blocks"
    if subject.quota_bytes - used > room:
        step = f"free some room, or set quota_bytes to {used + room // 2}"
        yield warning("quota", f"{text}, more than the disk has room for", step)
    else:
        yield ok("quota", text)


def _check_databases(folder: Path) -> Iterator[Finding]:
    for path in sorted(folder.glob("*.sqlite")):
        try:
            with closing(open_read_only(path)) as database:
                answer = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            answer = str(error)
        if answer != "ok":
            step = f"stop the service and bring back a copy: `atoll journal import`, for {path}"
            yield failure("database", f"{path} is damaged: {answer}", step)


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


def _bytes_below(folder: Path | None) -> int:
    if folder is None or not folder.is_dir():
        return 0
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
