"""The journal: what this service has computed, signed and measured, on disk before it matters.

Rule of this file: a row is durable (`synchronous=FULL`) when a method returns, and one slot is
never signed twice with different content: the UNIQUE constraint of `signed` sees to it, not care.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path

from atoll.chain.database import Database
from atoll.errors import ProtocolError
from atoll.service.commands import Fact, Facts
from atoll.service.plain import JournalError, from_json, to_json

SCHEMA_VERSION = 1
RETIRED = "retired"
"""In `meta`: the journal was moved to this file, and goes on from there."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (
    job INTEGER NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
    written_at REAL NOT NULL, PRIMARY KEY (job, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS signed (
    slot TEXT NOT NULL UNIQUE, content BLOB NOT NULL, written_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS measures (
    job INTEGER NOT NULL, round INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (job, round, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
"""


class AlreadySigned(ProtocolError):
    """Something else was signed for this slot before: signing this would be equivocation."""


class Journal:
    """One SQLite file of one service.

    Args:
        path: the file; its folder must exist.

    Raises:
        JournalError: the file is of another schema version, or was moved to another machine.
        StorageError: the file cannot be used; any method that writes may raise it, too.

    """

    def __init__(self, path: Path) -> None:
        self._db = Database(path, SCHEMA)
        try:
            self._check_version()
            self._check_is_not_retired()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def write(self, job: int, key: str, fact: Fact) -> None:
        """Stores a fact under the key of the command that left it; replaces what lay there."""
        self._db.execute(
            "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?)",
            (job, key, fact.kind(), to_json(fact), time.time()),
        )

    def read(self, job: int) -> Facts:
        """Every fact of a job."""
        rows = self._db.execute("SELECT key, kind, body FROM facts WHERE job = ?", (job,))
        return Facts({key: self._revive(kind, body) for key, kind, body in rows})

    def sign_once(self, slot: str, content: bytes) -> None:
        """Claims a slot for one content, before it is signed or sent.

        Claiming it again for the same content is fine: that is what a restart does.

        Raises:
            AlreadySigned: the slot was claimed for something else.
        """
        with self._db.transaction():
            # Claimed first and read after, so that of two who come at once one finds the other's.
            self._db.execute(
                "INSERT INTO signed VALUES (?, ?, ?) ON CONFLICT (slot) DO NOTHING",
                (slot, content, time.time()),
            )
            row = self._db.execute("SELECT content FROM signed WHERE slot = ?", (slot,)).fetchone()
        if bytes(row[0]) != content:
            raise AlreadySigned(f"{slot}: refusing to sign {content.hex()} after {row[0].hex()}")

    def signed(self, slot: str) -> bytes | None:
        """What was claimed for a slot, or None."""
        row = self._db.execute("SELECT content FROM signed WHERE slot = ?", (slot,)).fetchone()
        return None if row is None else bytes(row[0])

    def publish(self, name: str, body: bytes) -> None:
        """Has the gateway serve a note from now on; replaces what had the name."""
        self._db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, body))

    def note(self, name: str) -> bytes | None:
        """The note of that name, or None."""
        row = self._db.execute("SELECT body FROM notes WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def secret(self, name: str) -> bytes:
        """32 random bytes that stay this journal's own, drawn when first asked for."""
        row = (f"secret:{name}", secrets.token_hex(32))
        with self._db.transaction():
            self._db.execute("INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO NOTHING", row)
            found = self._db.execute("SELECT value FROM meta WHERE name = ?", row[:1]).fetchone()
        return bytes.fromhex(found[0])

    def measure(self, job: int, round_: int, name: str, value: float) -> None:
        """Adds to a measure of a round (seconds, steps, bytes or gas, as the name says)."""
        self._db.execute(
            "INSERT INTO measures VALUES (?, ?, ?, ?) ON CONFLICT (job, round, name)"
            " DO UPDATE SET value = value + excluded.value",
            (job, round_, name, value),
        )

    def measures(self) -> dict[int, dict[int, dict[str, float]]]:
        """job → round → name → sum; round −1 holds what belongs to no round."""
        result: dict[int, dict[int, dict[str, float]]] = {}
        for job, round_, name, value in self._db.execute(
            "SELECT job, round, name, value FROM measures ORDER BY job, round, name"
        ):
            result.setdefault(job, {}).setdefault(round_, {})[name] = value
        return result

    def _revive(self, kind: str, body: str) -> Fact:
        try:
            return from_json(Fact.kinds[kind], body)
        except KeyError:
            raise JournalError(
                f"the journal holds {kind}, which this version does not know",
                next_step="run the version of atoll that wrote this data folder, or a newer one",
            ) from None

    def _check_version(self) -> None:
        self._db.execute(
            "INSERT INTO meta VALUES ('version', ?) ON CONFLICT (name) DO NOTHING",
            (str(SCHEMA_VERSION),),
        )
        found = self._db.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()[0]
        if found != str(SCHEMA_VERSION):
            raise JournalError(f"the journal has schema {found}, this program {SCHEMA_VERSION}")

    def _check_is_not_retired(self) -> None:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (RETIRED,)).fetchone()
        if row is not None:
            raise JournalError(
                f"this journal was moved away, to {row[0]}: running here too would cost the bond",
                next_step="run the service where the file went, or bring it back: "
                "atoll journal import",
            )
