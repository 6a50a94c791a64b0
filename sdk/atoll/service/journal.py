"""The journal: what this service has computed, signed and measured, on disk before it matters.

Rule of this file: a row is durable (`synchronous=FULL`) when a method returns, and one slot is
never signed twice with different content: the UNIQUE constraint of `signed` sees to it, not care.

Every row has a checksum, and all are looked at when the file is opened. What can be computed again
goes where it is damaged; what says what was signed, or ordered, does not, and nothing starts then.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from atoll.chain.database import Database
from atoll.errors import ProtocolError
from atoll.service.facts import OF_SERVICE, Fact, Facts
from atoll.service.plain import JournalError, from_json, to_json

SCHEMA_VERSION = 2
RETIRED = "retired"
"""In `meta`: the journal was moved to this file, and goes on from there."""
MOVED_AT = "moved at"
"""In `meta`: unix time at which a journal was last read in here."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL,
    sum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (
    job INTEGER NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
    written_at REAL NOT NULL, sum BLOB NOT NULL, PRIMARY KEY (job, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS signed (
    slot TEXT NOT NULL PRIMARY KEY, content BLOB NOT NULL, written_at REAL NOT NULL,
    sum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS measures (
    job INTEGER NOT NULL, round INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
    sum BLOB NOT NULL, PRIMARY KEY (job, round, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, body BLOB NOT NULL,
    sum BLOB NOT NULL) WITHOUT ROWID;
"""
TABLES: Final = {
    "signed": ("slot", "content", "written_at"),
    "facts": ("job", "key", "kind", "body", "written_at"),
    "notes": ("name", "body"),
    "meta": ("name", "value"),
    "measures": ("job", "round", "name", "value"),
}
"""The columns of each, without the checksum, which is the last one; a key's come first."""
KEYS: Final = {"signed": 1, "facts": 2, "notes": 1, "meta": 1, "measures": 3}
"""How many of the columns are the key."""
SUM_BYTES: Final = 8
log = structlog.get_logger("atoll.journal")


class AlreadySigned(ProtocolError):
    """Something else was signed for this slot before: signing this would be equivocation."""


class Journal:
    """One SQLite file of one service.

    Args:
        path: the file; its folder must exist.

    Raises:
        JournalError: the file is of another schema version, or was moved to another machine, or
            what it says of signatures or orders is damaged.
        StorageError: the file cannot be used; any method that writes may raise it, too.

    Attributes:
        damaged: rows that were damaged, and are gone.
        measured: how many measures were added since it was opened.
    """

    def __init__(self, path: Path) -> None:
        self._db = open_rows(path)
        self.measured = 0
        try:
            self._check_version()
            self.damaged = sweep(self._db)
            self._check_is_not_retired()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def write(self, job: int, key: str, fact: Fact) -> None:
        """Stores a fact under the key of the command that left it; replaces what lay there."""
        put(self._db, "facts", (job, key, fact.kind(), to_json(fact), time.time()))

    def read(self, job: int, key: str | None = None) -> Facts:
        """Every fact of a job; where a key is named, that one alone."""
        where = "job = ?1 AND (?2 IS NULL OR key = ?2)"
        rows = self._db.rows(f"SELECT key, kind, body FROM facts WHERE {where}", (job, key))  # noqa: S608 - our own words
        return Facts({key: self._revive(kind, body) for key, kind, body in rows})

    def sign_once(self, slot: str, content: bytes) -> None:
        """Claims a slot for one content, before it is signed or sent.

        Claiming it again for the same content is fine: that is what a restart does.

        Raises:
            AlreadySigned: the slot was claimed for something else.
        """
        with self._db.transaction():
            # Claimed first and read after, so that of two who come at once one finds the other's.
            add(self._db, "signed", (slot, content, time.time()))
            row = self._db.execute("SELECT content FROM signed WHERE slot = ?", (slot,)).fetchone()
        if bytes(row[0]) != content:
            raise AlreadySigned(f"{slot}: refusing to sign {content.hex()} after {row[0].hex()}")

    def signed(self, slot: str) -> bytes | None:
        """What was claimed for a slot, or None."""
        row = self._db.execute("SELECT content FROM signed WHERE slot = ?", (slot,)).fetchone()
        return None if row is None else bytes(row[0])

    def publish(self, name: str, body: bytes) -> None:
        """Has the gateway serve a note from now on; replaces what had the name."""
        put(self._db, "notes", (name, body))

    def note(self, name: str) -> bytes | None:
        """The note of that name, or None."""
        row = self._db.execute("SELECT body FROM notes WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def secret(self, name: str) -> bytes:
        """32 random bytes that stay this journal's own, drawn when first asked for."""
        row = (f"secret:{name}", secrets.token_hex(32))
        with self._db.transaction():
            add(self._db, "meta", row)
            found = self._db.execute("SELECT value FROM meta WHERE name = ?", row[:1]).fetchone()
        return bytes.fromhex(found[0])

    @property
    def moved_at(self) -> float:
        """Unix time at which it last took in another machine's journal; 0 where it never did."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (MOVED_AT,)).fetchone()
        return 0.0 if row is None else float(row[0])

    def measure(self, job: int, round_: int, name: str, value: float) -> None:
        """Adds to a measure of a round (seconds, steps, bytes or gas, as the name says)."""
        key = (job, round_, name)
        with self._db.transaction():
            found = self._db.rows(
                "SELECT value FROM measures WHERE job = ? AND round = ? AND name = ?", key
            )
            before = found[0][0] if found else 0.0
            put(self._db, "measures", (*key, before + value))
        self.measured += 1

    def _revive(self, kind: str, body: str) -> Fact:
        try:
            return from_json(Fact.kinds[kind], body)
        except KeyError:
            raise JournalError(
                f"the journal holds {kind}, which this version does not know",
                next_step="run the version of atoll that wrote this data folder, or a newer one",
            ) from None

    def _check_version(self) -> None:
        add(self._db, "meta", ("version", str(SCHEMA_VERSION)))
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


# --- rows with checksums ---


def open_rows(path: Path) -> Database:
    """The file of a journal, whose pages are whole.

    Raises:
        JournalError: it is of another version, or damaged.
        StorageError: it cannot be used.
    """
    database = Database(path, SCHEMA)
    try:
        version = [row[1] for row in database.rows("PRAGMA table_info(signed)")][-1:]
        if version != ["sum"]:
            raise JournalError(f"the journal {path} has a schema before {SCHEMA_VERSION}")
        (found,) = database.rows("PRAGMA integrity_check(1)")
        if found[0] != "ok":
            raise _damaged(path, found[0])
    except BaseException:
        database.close()
        raise
    return database


def sweep(database: Database) -> int:
    """Looks at every checksum. How many rows were damaged and are gone.

    Raises:
        JournalError: a damaged row says what was signed or ordered, or is the journal's own.
    """
    lost = 0
    for table, columns in TABLES.items():
        names = ", ".join((*columns, "sum"))
        for *values, told in database.rows(f"SELECT {names} FROM {table}"):  # noqa: S608 (our own names)
            if told == _sum(table, values):
                continue
            if table in {"signed", "meta"} or (table == "facts" and values[0] == OF_SERVICE):
                raise _damaged(database.path, f"a row of {table}, {values[0]!r}")
            lost += 1
            log.warning("a damaged row goes", table=table, row=values[: KEYS[table]])
            where = " AND ".join(f"{name} IS ?" for name in columns[: KEYS[table]])
            database.execute(f"DELETE FROM {table} WHERE {where}", values[: KEYS[table]])  # noqa: S608
    return lost


def put(database: Database, table: str, values: Sequence[Any]) -> None:
    """Writes a row; replaces the one of its key."""
    _insert(database, f"INSERT OR REPLACE INTO {table}", table, values)


def add(database: Database, table: str, values: Sequence[Any]) -> None:
    """Writes a row where there is none of its key."""
    _insert(database, f"INSERT OR IGNORE INTO {table}", table, values)


def _insert(database: Database, how: str, table: str, values: Sequence[Any]) -> None:
    row = (*values, _sum(table, values))
    database.execute(f"{how} VALUES ({', '.join('?' * len(row))})", row)


def _sum(table: str, values: Sequence[Any]) -> bytes:
    plain = [value.hex() if isinstance(value, bytes) else value for value in values]
    return hashlib.sha256(json.dumps([table, plain]).encode()).digest()[:SUM_BYTES]


def _damaged(path: Path, what: str) -> JournalError:
    return JournalError(
        f"the journal {path} is damaged: {what}",
        next_step="bring a copy back with `atoll journal import`, after moving this file away; "
        "without one, wait until every round that this key takes part in has settled",
    )
