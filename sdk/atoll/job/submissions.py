"""Which jobs this home has submitted, under a key of what they say; on disk before they are paid.

Rule of this file: a submission is written before anything is sent for it, so that the same job
submitted again, after a crash or on another machine with this file, is the same job.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from atoll.chain.database import Database
from atoll.job.spec import JobSpec
from atoll.protocol.canonical import Ipld, encode
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import DataSpec, InitSpec
from atoll.protocol.types import JobId

SCHEMA = """
CREATE TABLE IF NOT EXISTS submissions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, name TEXT NOT NULL,
    manifest BLOB NOT NULL, spec TEXT NOT NULL, job INTEGER, written_at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS by_key ON submissions (key);
"""


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission; `job` is None until its transaction has been seen in a block.

    `spec` is the job's file, empty where a bare manifest was submitted.
    """

    id: int
    key: str
    name: str
    manifest: bytes
    spec: str
    job: JobId | None


def key_of(spec: JobSpec, data: DataSpec, init: InitSpec | None) -> str:
    """A digest of what a job says and of what it reads, wherever its files lie.

    What is excluded stays excluded: measured again, it would have other values.
    """
    words = spec.model_dump()
    words["data"] = words["data"] | {"paths": None, "held_out_paths": None, "tokenizer": None}
    words["init"] = words["init"] | {"folder": None}
    if words["task"] is not None:
        words["task"] = words["task"] | {"prompts": None, "held_out": None}
    read: Ipld = {"data": data.model_dump(), "init": init.model_dump() if init else None}
    return sha256(json.dumps(words, sort_keys=True).encode() + encode(read)).hex()


class Submissions:
    """One SQLite file of one home. Raises StorageError where it cannot be used."""

    def __init__(self, path: Path) -> None:
        self._db = Database(path, SCHEMA)

    def close(self) -> None:
        self._db.close()

    def write(self, key: str, name: str, manifest: bytes, spec: str = "") -> Submission:
        """Notes a submission; the same manifest noted again stays one."""
        with self._db.transaction():
            row = self._db.execute(
                "SELECT id FROM submissions WHERE key = ? AND manifest = ?", (key, manifest)
            ).fetchone()
            if row is None:
                self._db.execute(
                    "INSERT INTO submissions (key, name, manifest, spec, written_at)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (key, name, manifest, spec, time.time()),
                )
        submission = self.newest(key)
        assert submission is not None
        return submission

    def created(self, submission: Submission, job: JobId) -> None:
        """Notes the number that the chain gave it."""
        self._db.execute("UPDATE submissions SET job = ? WHERE id = ?", (job, submission.id))

    def newest(self, key: str) -> Submission | None:
        """The last submission under a key."""
        submissions = [item for item in self.all() if item.key == key]
        return submissions[-1] if submissions else None

    def of_job(self, job: JobId) -> Submission | None:
        """The submission that became that job."""
        return next((item for item in self.all() if item.job == job), None)

    def all(self) -> list[Submission]:
        """Every submission, oldest first."""
        rows = self._db.execute(
            "SELECT id, key, name, manifest, spec, job FROM submissions ORDER BY id"
        )
        return [
            Submission(i, key, name, bytes(manifest), spec, None if job is None else JobId(job))
            for i, key, name, manifest, spec, job in rows
        ]
