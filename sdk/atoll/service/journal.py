"""The journal: what this service has computed, signed and measured, on disk before it matters.

Rule of this file: a row is durable (`synchronous=FULL`) when a method returns, and one slot is
never signed twice with different content: the UNIQUE constraint of `signed` sees to it, not care.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, TypeVar

from atoll.chain.database import Database
from atoll.errors import ProtocolError
from atoll.service.plain import JournalError, from_json, to_json

F = TypeVar("F", bound="Fact")

SCHEMA_VERSION = 1
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
"""


class AlreadySigned(ProtocolError):
    """Something else was signed for this slot before: signing this would be equivocation."""


class Fact:
    """Base of everything a finished command leaves behind; subclasses are frozen dataclasses.

    A fact is found again by `key`: a second fact of the same key replaces the first.

    Attributes:
        unblocks: whether it brings data, so that what lacked some is tried again at once.
    """

    __slots__ = ()
    unblocks: ClassVar[bool] = False

    @property
    def key(self) -> str:
        """Kind and slot, as text; unique within a job."""
        raise TypeError(f"{type(self).__name__} does not say what it is about")


class Facts:
    """An immutable set of facts, by key."""

    __slots__ = ("_by_key",)

    def __init__(self, by_key: Mapping[str, Fact] | None = None) -> None:
        self._by_key = dict(by_key or {})

    def get(self, cls: type[F], key: str) -> F | None:
        """The fact of that key, or None; a fact of another kind under the key is an error."""
        found = self._by_key.get(key)
        if found is not None and not isinstance(found, cls):
            raise JournalError(f"{key} is a {type(found).__name__}, not a {cls.__name__}")
        return found

    def all_of(self, cls: type[F]) -> list[F]:
        """Every fact of a kind, in the order of their keys."""
        return [fact for _, fact in sorted(self._by_key.items()) if isinstance(fact, cls)]

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def plus(self, *facts: Fact) -> Facts:
        """These facts added; a fact of the same key is replaced."""
        return Facts({**self._by_key, **{fact.key: fact for fact in facts}})

    def minus(self, keys: frozenset[str]) -> Facts:
        """The facts without these keys."""
        return Facts({key: fact for key, fact in self._by_key.items() if key not in keys})


class Journal:
    """One SQLite file of one service.

    Args:
        path: the file; its folder must exist.
        kinds: every kind of fact that may be read back.

    Raises:
        JournalError: the file is of another schema version.
        StorageError: the file cannot be used; any method that writes may raise it, too.

    """

    def __init__(self, path: Path, kinds: tuple[type[Fact], ...]) -> None:
        self._kinds = {kind.__name__: kind for kind in kinds}
        self._db = Database(path, SCHEMA)
        self._check_version()

    def close(self) -> None:
        self._db.close()

    def write(self, job: int, *facts: Fact) -> None:
        """Stores facts, all or none; one of the same key is replaced."""
        with self._db.transaction():
            for fact in facts:
                self._db.execute(
                    "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?)",
                    (job, fact.key, type(fact).__name__, to_json(fact), time.time()),
                )

    def read(self, job: int) -> Facts:
        """Every fact of a job."""
        rows = self._db.execute("SELECT key, kind, body FROM facts WHERE job = ?", (job,))
        return Facts({key: self._revive(kind, body) for key, kind, body in rows})

    def forget(self, job: int, keys: frozenset[str]) -> None:
        """Removes facts that nothing will ask for again; what was signed is never removed."""
        with self._db.transaction():
            self._db.executemany(
                "DELETE FROM facts WHERE job = ? AND key = ?", [(job, key) for key in sorted(keys)]
            )

    def sign_once(self, slot: str, content: bytes) -> None:
        """Claims a slot for one content, before it is signed or sent.

        Claiming it again for the same content is fine: that is what a restart does.

        Raises:
            AlreadySigned: the slot was claimed for something else.
        """
        with self._db.transaction():
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
            return from_json(self._kinds[kind], body)
        except KeyError:
            raise JournalError(
                f"the journal holds a {kind}, which this version does not know",
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
