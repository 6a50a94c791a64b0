"""The journal: what this service has computed, signed and measured, on disk before it matters.

Rule of this file: a row is durable (`synchronous=FULL`) when a method returns, and one subject is
never signed twice with different content: the UNIQUE constraint of `signed` sees to it, not care.

Every row has a checksum, and all are looked at when the file is opened. What can be computed again
goes where it is damaged; what says what was signed, or ordered, does not, and nothing starts then.

A journal is made once, whole, and before the queue's file beside it, which carries its id and how
much it had claimed. So one that is not there, has no beginning or knows less is no new one: it was
lost, and what was signed with it may be signed otherwise.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from atoll.chain.database import Database, has_log, is_damage, make_database, open_read_only
from atoll.chain.deployment import Deployment
from atoll.chain.txfile import QUEUE_FILE, read_pairing
from atoll.errors import ProtocolError, StorageError
from atoll.service.entries import OF_SERVICE, Entries, Entry
from atoll.service.serialization import JournalError, from_json, to_json

SCHEMA_VERSION = 4
VERSION = "version"
"""In `meta`: that of the schema."""
RETIRED = "retired"
"""In `meta`: the journal was moved to this file, and goes on from there."""
PAIR = "pair"
"""In `meta`: the id that this file and the queue's beside it carry."""
WHOSE = "whose"
"""In `meta`: account, chain and network, once they were named."""
BEGUN = "begun"
"""In `meta`: it is known that nothing which still counts was signed before this journal, but what
stands in it."""
RENEWED = "renewed"
"""In `meta`: that may be otherwise, and its operator goes on all the same (`renew_journal`)."""
STAYS_HERE: Final = frozenset({VERSION, RETIRED, PAIR, WHOSE, RENEWED})
"""Of `meta`, what goes to no other journal."""
SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL,
    sum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE entries (
    job INTEGER NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
    written_at REAL NOT NULL, sum BLOB NOT NULL, PRIMARY KEY (job, key)) WITHOUT ROWID;
CREATE TABLE signed (
    subject TEXT NOT NULL PRIMARY KEY, content BLOB NOT NULL, written_at REAL NOT NULL,
    sum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE measures (
    job INTEGER NOT NULL, round INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
    sum BLOB NOT NULL, PRIMARY KEY (job, round, name)) WITHOUT ROWID;
CREATE TABLE notes (name TEXT PRIMARY KEY, body BLOB NOT NULL,
    sum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE sent (tx_hash TEXT PRIMARY KEY, sum BLOB NOT NULL) WITHOUT ROWID;
"""
TABLES: Final = {
    "signed": ("subject", "content", "written_at"),
    "entries": ("job", "key", "kind", "body", "written_at"),
    "notes": ("name", "body"),
    "meta": ("name", "value"),
    "measures": ("job", "round", "name", "value"),
    "sent": ("tx_hash",),
}
"""The columns of each, without the checksum, which is the last one; a key's come first."""
KEYS: Final = {"signed": 1, "entries": 2, "notes": 1, "meta": 1, "measures": 3, "sent": 1}
"""How many of the columns are the key."""
SUM_BYTES: Final = 8
log = structlog.get_logger("atoll.journal")


class AlreadySigned(ProtocolError):
    """Something else was signed for this subject before: signing this would be equivocation."""


class JournalGone(JournalError):
    """What a service may have signed is not known here: to go on could be to sign otherwise."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Belongs:
    """Whose journal it is: an account on a network, which its rounds contract names."""

    account: str
    chain_id: int
    network: str

    @classmethod
    def of(cls, deployment: Deployment, account: str) -> Belongs:
        """An account's on a deployment."""
        return cls(account, deployment.chain_id, deployment.addresses["Rounds"])

    def __str__(self) -> str:
        return f"{self.account} on chain {self.chain_id}, network {self.network}"


class Journal:
    """One SQLite file of one service.

    Args:
        path: the file; its folder must exist. It is made where the queue's file beside it has
            signed nothing yet.
        whose: None where it does not matter.

    Raises:
        JournalGone: it is missing, or is not what the queue's file was beside.
        JournalError: the file is of another schema version, account or network, or was moved to
            another machine, or what it says of signatures or orders is damaged.
        StorageError: the file cannot be used; any method that writes may raise it, too.

    Attributes:
        pair: the id that the queue's file carries, too.
        damaged: rows that were damaged, and are gone.
        measured: how many measures were added since it was opened.
    """

    def __init__(self, path: Path, whose: Belongs | None = None) -> None:
        if not path.exists():
            _make_first(path, whose)
        self._db = open_rows(path)
        self.measured = 0
        self._tell: Callable[[int], None] | None = None
        try:
            self.damaged = sweep(self._db)
            require_ours(self._db, whose)
            self.pair = self._meta(PAIR) or ""
            self._claims = count_claims(self._db)
            _check_pairing(path, self.pair, self._claims)
        except BaseException:
            self._db.close()
            raise

    def tell_claims(self, tell: Callable[[int], None]) -> None:
        """Has the queue beside it know how many subjects are claimed, now and with each claim,
        before anything is signed for it.
        """
        tell(self._claims)
        self._tell = tell

    def close(self) -> None:
        self._db.close()

    def write(self, job: int, key: str, entry: Entry) -> None:
        """Stores an entry under the key of the command that left it; replaces what lay there."""
        put(self._db, "entries", (job, key, entry.kind, to_json(entry), time.time()))

    def read(self, job: int, key: str | None = None) -> Entries:
        """Every entry of a job; where a key is named, that one alone."""
        where = "job = ?1 AND (?2 IS NULL OR key = ?2)"
        rows = self._db.rows(f"SELECT key, kind, body FROM entries WHERE {where}", (job, key))  # noqa: S608 - our own words
        return Entries({key: self._revive(kind, body) for key, kind, body in rows})

    def sign_once(self, subject: str, content: bytes) -> None:
        """Claims a subject for one content, before it is signed or sent.

        Claiming it again for the same content is fine: that is what a restart does.

        Raises:
            AlreadySigned: the subject was claimed for something else.
        """
        with self._db.transaction():
            # Claimed first and read after, so that of two who come at once one finds the other's.
            is_new = add(self._db, "signed", (subject, content, time.time()))
            row = self._db.execute(
                "SELECT content FROM signed WHERE subject = ?", (subject,)
            ).fetchone()
        if bytes(row[0]) != content:
            raise AlreadySigned(f"{subject}: refusing to sign {content.hex()} after {row[0].hex()}")
        self._claims += is_new
        if self._tell is not None:
            self._tell(self._claims)

    def signed(self, subject: str) -> bytes | None:
        """What was claimed for a subject, or None."""
        row = self._db.execute(
            "SELECT content FROM signed WHERE subject = ?", (subject,)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def publish(self, name: str, body: bytes) -> None:
        """Has the gateway serve a note from now on; replaces what had the name."""
        put(self._db, "notes", (name, body))

    def note(self, name: str) -> bytes | None:
        """The note of that name, or None."""
        row = self._db.execute("SELECT body FROM notes WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def withdraw(self, name: str) -> None:
        """Has the gateway serve a note no longer; with a `*` at its end, all that begin so."""
        self._db.execute("DELETE FROM notes WHERE name GLOB ?", (name,))

    def secret(self, name: str) -> bytes:
        """32 random bytes that stay this journal's own, drawn when first asked for."""
        row = (f"secret:{name}", secrets.token_hex(32))
        with self._db.transaction():
            add(self._db, "meta", row)
            value = self._db.execute("SELECT value FROM meta WHERE name = ?", row[:1]).fetchone()
        return bytes.fromhex(value[0])

    def has_sent(self, tx_hash: str) -> bool:
        """Whether a transaction, by its hash in hex, was signed by a service whose journal was read
        in here.
        """
        return bool(self._db.rows("SELECT 1 FROM sent WHERE tx_hash = ?", (tx_hash,)))

    @property
    def is_new(self) -> bool:
        """Whether nobody has looked yet what the account did before this journal was made."""
        return self._meta(BEGUN) is None

    @property
    def is_renewed(self) -> bool:
        """Whether its operator goes on though something may have been signed that it lacks."""
        return self._meta(RENEWED) is not None

    def begin(self) -> None:
        """What the account did before was looked at: from now on the journal has all of it."""
        if self.is_new or self.is_renewed:
            with self._db.transaction():
                put(self._db, "meta", (BEGUN, repr(time.time())))
                self._db.execute("DELETE FROM meta WHERE name = ?", (RENEWED,))

    def measure(self, job: int, round_: int, name: str, value: float) -> None:
        """Adds to a measure of a round (seconds, steps, bytes or gas, as the name says)."""
        key = (job, round_, name)
        with self._db.transaction():
            earlier = self._db.rows(
                "SELECT value FROM measures WHERE job = ? AND round = ? AND name = ?", key
            )
            before = earlier[0][0] if earlier else 0.0
            put(self._db, "measures", (*key, before + value))
        self.measured += 1

    def _revive(self, kind: str, body: str) -> Entry:
        try:
            return from_json(Entry.kinds[kind], body)
        except KeyError:
            raise JournalError(
                f"the journal holds {kind}, which this version does not know",
                next_step="run the version of atoll that wrote this data folder, or a newer one",
            ) from None

    def _meta(self, name: str) -> str | None:
        return meta_of(self._db, name)


# --- a journal beside a queue's file ---


def make_journal(path: Path, pair: str, whose: Belongs | None) -> None:
    """Makes a journal that knows nothing, whole or not at all.

    Raises:
        JournalGone: the log of another one is there.
        StorageError: it cannot be written.
    """
    if has_log(path):
        raise gone(path, "its log is there without it")
    meta = {VERSION: str(SCHEMA_VERSION), PAIR: pair}
    meta |= {} if whose is None else {WHOSE: str(whose)}
    rows = [("INSERT INTO meta VALUES (?, ?, ?)", _row("meta", item)) for item in meta.items()]
    make_database(path, SCHEMA, rows)


def _make_first(path: Path, whose: Belongs | None) -> None:
    """A new service's journal. Raises JournalGone where there was one."""
    beside = read_pairing(path.with_name(QUEUE_FILE))
    if beside is not None and (beside.signed or beside.claims):
        raise gone(path, f"it is missing, and {_what_was_signed(path, beside.signed)}")
    make_journal(path, secrets.token_hex(16) if beside is None else beside.pair, whose)


def require_pair(path: Path) -> None:
    """Looks at a journal and the queue's file beside it, and changes neither; both may be open.

    Raises:
        JournalGone: a service would not start with them.
        StorageError: the queue's file is damaged.
    """
    beside = read_pairing(path.with_name(QUEUE_FILE))
    if beside is None or not (beside.signed or beside.claims):
        return
    if not path.exists():
        raise gone(path, f"it is missing, and {_what_was_signed(path, beside.signed)}")
    try:
        with closing(open_read_only(path)) as database:
            find = "SELECT value FROM meta WHERE name = ?"
            row = database.execute(find, (PAIR,)).fetchone()
            ((claims,),) = database.execute("SELECT COUNT(*) FROM signed").fetchall()
    except sqlite3.Error as error:
        raise gone(path, str(error)) from error
    _check_pairing(path, "" if row is None else str(row[0]), int(claims))


def _check_pairing(path: Path, pair: str, claims: int) -> None:
    """Raises JournalGone where the queue's file was beside another journal, or a newer one."""
    beside = read_pairing(path.with_name(QUEUE_FILE))
    if beside is None:
        return
    if beside.pair != pair:
        what = _what_was_signed(path, beside.signed)
        raise gone(path, f"it is not the one that {QUEUE_FILE} was beside, and {what}")
    if claims < beside.claims:
        raise gone(
            path, f"it knows {claims} of {beside.claims} subjects that were signed: it is older"
        )


def _what_was_signed(path: Path, signed: int) -> str:
    return f"{path.with_name(QUEUE_FILE)} has {signed} transactions that were signed"


def gone(path: Path, why: str) -> JournalGone:
    """What to do where a journal does not know what was signed."""
    return JournalGone(f"the journal {path} is gone: {why}", next_step=_helps(path))


def _helps(path: Path) -> str:
    return (
        f"bring back {path.name} and {QUEUE_FILE}, each with its -wal, as they were left together; "
        "or move what is left of the journal away and `atoll journal import` a copy. With neither, "
        "let every round that this key takes part in settle, then start with --new-journal, which "
        "waits first whether another service acts with the key"
    )


def require_ours(database: Database, whose: Belongs | None) -> None:
    """Raises JournalError where the journal was moved away, or is somebody else's."""
    moved_to = meta_of(database, RETIRED)
    if moved_to is not None:
        raise JournalError(
            f"this journal was moved away, to {moved_to}: running here too would cost the bond",
            next_step="run the service where the file went, or bring it back: atoll journal import",
        )
    require_whose(database, whose)


def require_whose(database: Database, whose: Belongs | None) -> None:
    """Raises JournalError where the journal is somebody else's; it is ours where nobody said."""
    meta = meta_of(database, WHOSE)
    if whose is not None and meta is None:
        put(database, "meta", (WHOSE, str(whose)))
    elif whose is not None and meta != str(whose):
        raise JournalError(
            f"{database.path} is of {meta}, and this service of {whose}",
            next_step="name the --config whose it is, or use another data_dir",
        )


def meta_of(database: Database, name: str) -> str | None:
    """What a journal says of itself under a name, or None."""
    row = database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def count_claims(database: Database) -> int:
    """How many subjects are claimed."""
    ((count,),) = database.rows("SELECT COUNT(*) FROM signed")
    return int(count)


# --- rows with checksums ---


def open_rows(path: Path) -> Database:
    """The file of a journal that was made, whose pages are whole.

    Raises:
        JournalGone: it is missing, or has no beginning.
        JournalError: it is of another version, or damaged.
        StorageError: it cannot be used.
    """
    if not path.exists():
        raise gone(path, "it is missing")
    try:
        database = Database(path, "")
    except StorageError as error:
        raise (gone(path, str(error)) if is_damage(error) else error) from error
    try:
        _check_pages(database)
    except BaseException:
        database.close()
        raise
    return database


def _check_pages(database: Database) -> None:
    path = database.path
    (verdict,) = database.rows("PRAGMA integrity_check(1)")
    if verdict[0] != "ok":
        raise _damaged(path, verdict[0])
    there = {row[0] for row in database.rows("SELECT name FROM sqlite_master")}
    if "meta" not in there or meta_of(database, VERSION) is None:
        raise gone(path, "it has no beginning")
    version = meta_of(database, VERSION)
    if version != str(SCHEMA_VERSION):
        raise JournalError(f"the journal has schema {version}, this program {SCHEMA_VERSION}")
    if not TABLES.keys() <= there or meta_of(database, PAIR) is None:
        raise gone(path, "it lacks what it began with")


def sweep(database: Database) -> int:
    """Looks at every checksum. How many rows were damaged and are gone.

    Raises:
        JournalError: a damaged row says what was signed or ordered, or is the journal's own.
    """
    lost = 0
    for table, columns in TABLES.items():
        names = ", ".join((*columns, "sum"))
        for *values, checksum in database.rows(f"SELECT {names} FROM {table}"):  # noqa: S608 (our own names)
            if checksum == _sum(table, values):
                continue
            if table in {"signed", "meta"} or (table == "entries" and values[0] == OF_SERVICE):
                raise _damaged(database.path, f"a row of {table}, {values[0]!r}")
            lost += 1
            log.warning("a damaged row goes", table=table, row=values[: KEYS[table]])
            where = " AND ".join(f"{name} IS ?" for name in columns[: KEYS[table]])
            database.execute(f"DELETE FROM {table} WHERE {where}", values[: KEYS[table]])  # noqa: S608
    return lost


def put(database: Database, table: str, values: Sequence[Any]) -> None:
    """Writes a row; replaces the one of its key."""
    _insert(database, f"INSERT OR REPLACE INTO {table}", table, values)


def add(database: Database, table: str, values: Sequence[Any]) -> bool:
    """Writes a row where there is none of its key; whether there was none."""
    return _insert(database, f"INSERT OR IGNORE INTO {table}", table, values) > 0


def _insert(database: Database, how: str, table: str, values: Sequence[Any]) -> int:
    row = _row(table, values)
    return database.execute(f"{how} VALUES ({', '.join('?' * len(row))})", row).rowcount


def _row(table: str, values: Sequence[Any]) -> tuple[Any, ...]:
    return (*values, _sum(table, values))


def _sum(table: str, values: Sequence[Any]) -> bytes:
    plain = [value.hex() if isinstance(value, bytes) else value for value in values]
    return hashlib.sha256(json.dumps([table, plain]).encode()).digest()[:SUM_BYTES]


def _damaged(path: Path, what: str) -> JournalGone:
    return JournalGone(f"the journal {path} is damaged: {what}", next_step=_helps(path))
