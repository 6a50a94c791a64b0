"""The transaction queue's file: made whole or not at all, and read by whoever looks.

Rule of this file: reading needs no lock, so that an operator may look while the service runs; who
writes holds it (`txstore.TxStore`).
"""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

from atoll.chain.database import (
    Database,
    has_log,
    is_damage,
    make_database,
    open_read_only,
)
from atoll.chain.txrecords import Intent, Pairing, intent_of
from atoll.errors import ConfigError, StorageError
from atoll.protocol.types import Address

SCHEMA = """
CREATE TABLE meta (chain_id INTEGER NOT NULL, account TEXT NOT NULL, pair TEXT NOT NULL,
    claims INTEGER NOT NULL);
CREATE TABLE intents (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    generation INTEGER NOT NULL,
    target TEXT NOT NULL,
    data BLOB NOT NULL,
    label TEXT NOT NULL,
    permissionless INTEGER NOT NULL,
    value TEXT NOT NULL,
    stake TEXT NOT NULL,
    state TEXT NOT NULL,
    nonce INTEGER,
    gas_limit INTEGER,
    tx_hash TEXT,
    block_number INTEGER,
    block_hash BLOB,
    gas_used INTEGER,
    fee_wei TEXT,
    final INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    message TEXT NOT NULL DEFAULT '',
    UNIQUE (key, generation)
);
CREATE INDEX intents_by_state ON intents (final, state);
CREATE TABLE signed (
    tx_hash TEXT PRIMARY KEY,
    intent INTEGER NOT NULL REFERENCES intents (id) ON DELETE CASCADE,
    raw BLOB NOT NULL,
    max_fee INTEGER NOT NULL,
    priority_fee INTEGER NOT NULL,
    cancels INTEGER NOT NULL
);
"""
QUEUE_FILE = "transactions.sqlite"
"""In a service's data folder, and in a client's home."""
_TABLES = ("meta", "intents", "signed")
PAIRING = "SELECT pair, claims, (SELECT COUNT(*) FROM signed) FROM meta"


def open_or_make(path: Path, account: Address, chain_id: int, pair: str) -> Database:
    """The file, which was made whole once. Raises StorageError."""
    if not path.exists():
        if has_log(path):
            raise _damaged(path, "its log is there without it")
        begins = (chain_id, account, pair or secrets.token_hex(16), 0)
        make_database(path, SCHEMA, [("INSERT INTO meta VALUES (?, ?, ?, ?)", begins)])
    try:
        database = Database(path, "")
    except StorageError as error:
        raise (_damaged(path, str(error)) if is_damage(error) else error) from error
    try:
        ((found,),) = database.rows("PRAGMA quick_check(1)")
        if found != "ok":
            raise _damaged(path, str(found))
        if len(_tables(database)) != len(_TABLES) or len(database.rows(PAIRING)) != 1:
            raise _damaged(path, "it lacks what it began with")
    except BaseException:
        database.close()
        raise
    return database


def _tables(database: Database) -> list[sqlite3.Row]:
    marks = ", ".join("?" * len(_TABLES))
    return database.rows(f"SELECT 1 FROM sqlite_master WHERE name IN ({marks})", _TABLES)  # noqa: S608 - only question marks


def _damaged(path: Path, why: str) -> StorageError:
    return StorageError(
        f"{path} is damaged: {why}",
        next_step="bring a copy of it back; without one, wait until the chain has what the account "
        f"sent, then move {path.name}* away: what is under way may be sent once more",
    )


def pairing_of(rows: list[sqlite3.Row]) -> Pairing:
    ((pair, claims, signed),) = rows
    return Pairing(str(pair), int(claims), int(signed))


def read_pairing(path: Path) -> Pairing | None:
    """What a queue's file says, whoever has it open; None where there is no such file.

    Raises:
        StorageError: it is damaged, or cannot be read.
    """
    if not path.exists() and not has_log(path):
        return None
    try:
        with closing(open_read_only(path)) as database:
            return pairing_of(database.execute(PAIRING).fetchall())
    except (sqlite3.Error, ValueError) as error:
        raise _damaged(path, str(error) or "it lacks what it began with") from error


def pair_with(path: Path, pair: str, claims: int) -> None:
    """Has a queue's file be beside another journal, or one that claims less; nothing where there is
    no such file. Raises StorageError.
    """
    if path.exists():
        with closing(Database(path, "")) as database:
            database.execute("UPDATE meta SET pair = ?, claims = ?", (pair, claims))


def read_signed(path: Path) -> list[str]:
    """The hashes of every transaction that was signed, whoever has the file open; none where there
    is no such file. Raises as `read_pairing`.
    """
    if not path.exists():
        return []
    try:
        with closing(open_read_only(path)) as database:
            return [str(row[0]) for row in database.execute("SELECT tx_hash FROM signed")]
    except sqlite3.Error as error:
        raise _damaged(path, str(error)) from error


def read_intents(path: Path) -> list[Intent]:
    """Every intent in a queue's file, oldest first, whoever has it open.

    Raises:
        ConfigError: there is no such file.
        StorageError: it cannot be read.
    """
    if not path.exists():
        raise ConfigError(f"no transaction was ever asked for: there is no {path}")
    try:
        with closing(open_read_only(path)) as database:
            database.row_factory = sqlite3.Row
            return [intent_of(row) for row in database.execute("SELECT * FROM intents ORDER BY id")]
    except (sqlite3.Error, KeyError, ValueError) as error:
        step = "`atoll doctor --config …`"
        raise StorageError(f"cannot read {path}: {error}", next_step=step) from error


def read_intent(path: Path, key: str) -> Intent | None:
    """The latest intent of a key in a queue's file, whoever has it open; None where there is none.

    Raises:
        StorageError: it cannot be read.
    """
    if not path.exists():
        return None
    found = [intent for intent in read_intents(path) if intent.key == key]
    return max(found, key=lambda intent: intent.generation, default=None)
