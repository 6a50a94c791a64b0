"""What the transaction queue must not forget, in SQLite.

Rule of this file: a row is on disk before anything that depends on it leaves this machine
(write-ahead log, `synchronous=FULL`), and one process at a time holds the file. It is made whole or
not at all, so that one without a beginning was damaged, and is not taken for a new one.

A service's file carries the id of the journal beside it, and how much that one had claimed to sign
when it was last asked: so a journal that is gone, or older, is known by what was sent.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from atoll.chain.call import Call
from atoll.chain.database import (
    Database,
    has_log,
    is_damage,
    make_database,
    open_read_only,
)
from atoll.errors import ConfigError, StorageError
from atoll.protocol.words import Address

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
TABLES = ("meta", "intents", "signed")
PAIRING = "SELECT pair, claims, (SELECT COUNT(*) FROM signed) FROM meta"
GAS = "SELECT label, gas_used, fee_wei FROM intents WHERE gas_used > 0"


class TxState(StrEnum):
    """Where a transaction stands."""

    QUEUED = "queued"
    """Accepted; no nonce yet."""
    SENT = "sent"
    """Signed under a nonce, and broadcast or about to be."""
    MINED = "mined"
    """Succeeded in a block."""
    REVERTED = "reverted"
    """In a block, without effect."""
    FAILED = "failed"
    """Refused before it was sent, or withdrawn; used no nonce, or an empty transfer did."""
    MOOT = "moot"
    """Anyone may do it, and there was nothing to do: done by another, or not due. No failure."""


ENDED_WITHOUT_EFFECT = frozenset({TxState.REVERTED, TxState.FAILED, TxState.MOOT})


@dataclass(frozen=True, slots=True)
class Intent:
    """One transaction somebody asked for.

    Attributes:
        generation: how often this key was asked for again after a transaction of its had used a
            nonce and ended without effect.
        tx_hash, block_number, gas_used, fee_wei: of the transaction that got into a block.
        final: too deep in the chain to be looked at again, or never sent.
        error: the contract's custom error, where there was one.
    """

    id: int
    key: str
    generation: int
    call: Call
    value: int
    state: TxState
    nonce: int | None
    gas_limit: int | None
    tx_hash: str | None
    block_number: int | None
    block_hash: bytes | None
    gas_used: int | None
    fee_wei: int | None
    final: bool
    error: str | None
    message: str


@dataclass(frozen=True, slots=True)
class SignedTransaction:
    """One signed transaction of an intent; a replacement is a second one under the same nonce.

    Attributes:
        cancels: an empty transfer that only frees the nonce.
    """

    tx_hash: str
    intent: int
    raw: bytes
    max_fee: int
    priority_fee: int
    cancels: bool


@dataclass(frozen=True, slots=True)
class GasUse:
    """Gas of the mined transactions of one label; fees in wei."""

    transactions: int
    gas: int
    highest: int
    fees: int


@dataclass(frozen=True, slots=True)
class Pairing:
    """What a queue's file says of the journal beside it.

    Attributes:
        pair: the id that both carry.
        claims: how many slots that journal had claimed to sign, when it last said so.
        signed: how many transactions were signed here.
    """

    pair: str
    claims: int
    signed: int


class TxStore:
    """The queue's memory of one account on one chain.

    Args:
        pair: the id of the journal beside it; empty where there is none, or any will do.

    Raises:
        ConfigError: another process holds the file, or it belongs to another account or chain, or
            beside another journal.
        StorageError: it is damaged, or cannot be used.
    """

    def __init__(self, path: Path, account: Address, chain_id: int, pair: str = "") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        self._lock = os.fdopen(lock, "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise ConfigError(
                f"another process already sends transactions of {account} ({path} is locked)",
                next_step="stop the other one: a key has one writer",
            ) from error
        try:
            self._db = _open_or_make(path, account, chain_id, pair)
        except BaseException:
            self._lock.close()
            raise
        try:
            self._check_whose(account, chain_id, pair)
        except BaseException:
            self.close()
            raise
        self._final_gas: dict[str, GasUse] | None = None

    def close(self) -> None:
        """Lets go of the file; what was written stays."""
        self._db.close()
        self._lock.close()

    def add(self, key: str, generation: int, call: Call, value: int) -> None:
        """Writes a new intent, durably."""
        self._db.execute(
            "INSERT INTO intents (key, generation, target, data, label, permissionless, value,"
            " stake, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (key, generation, call.to, call.data, call.label, call.permissionless, str(value),
             str(call.stake), TxState.QUEUED),
        )  # fmt: skip

    def add_again(self, ended: Intent, call: Call, value: int) -> None:
        """Asks anew for what ended without effect, durably; one that took no nonce starts over."""
        if ended.nonce is not None:
            self.add(ended.key, ended.generation + 1, call, value)
            return
        self._db.execute(
            "UPDATE intents SET target = ?, data = ?, label = ?, permissionless = ?, value = ?,"
            " stake = ?, state = ?, final = 0, error = NULL, message = '' WHERE id = ?",
            (call.to, call.data, call.label, call.permissionless, str(value), str(call.stake),
             TxState.QUEUED, ended.id),
        )  # fmt: skip

    def find(self, key: str) -> Intent | None:
        """The latest intent of a key."""
        row = self._db.execute(
            "SELECT * FROM intents WHERE key = ? ORDER BY generation DESC LIMIT 1", (key,)
        ).fetchone()
        return _intent(row) if row else None

    def in_state(self, *states: TxState) -> list[Intent]:
        """Intents that are not final, in these states, in the order of nonce and arrival."""
        marks = ", ".join("?" * len(states))
        rows = self._db.execute(
            f"SELECT * FROM intents WHERE final = 0 AND state IN ({marks}) ORDER BY nonce, id",  # noqa: S608 - only question marks
            states,
        )
        return [_intent(row) for row in rows]

    @property
    def is_idle(self) -> bool:
        """Whether every intent is final."""
        row = self._db.execute("SELECT 1 FROM intents WHERE final = 0 LIMIT 1").fetchone()
        return row is None

    def all(self) -> list[Intent]:
        """Every intent ever, oldest first."""
        return [_intent(row) for row in self._db.execute("SELECT * FROM intents ORDER BY id")]

    def signed(self, intent: Intent) -> list[SignedTransaction]:
        """What was signed for an intent, newest first."""
        rows = self._db.execute(
            "SELECT * FROM signed WHERE intent = ? ORDER BY rowid DESC", (intent.id,)
        )
        return [SignedTransaction(**{**dict(row), "cancels": bool(row["cancels"])}) for row in rows]

    def sign(self, intent: Intent, nonce: int, gas_limit: int, signed: SignedTransaction) -> None:
        """Records a signed transaction and its nonce in one step, before it is broadcast.

        One that was signed before, bit for bit, is the newest again.
        """
        with self._db.transaction():
            self._db.execute(
                "UPDATE intents SET state = ?, nonce = ?, gas_limit = ? WHERE id = ?",
                (TxState.SENT, nonce, gas_limit, intent.id),
            )
            self._db.execute(
                "INSERT OR REPLACE INTO signed (tx_hash, intent, raw, max_fee, priority_fee,"
                " cancels) VALUES (?, ?, ?, ?, ?, ?)",
                (signed.tx_hash, intent.id, signed.raw, signed.max_fee, signed.priority_fee,
                 signed.cancels),
            )  # fmt: skip

    def note(self, intent: Intent, message: str, error: str | None = None) -> None:
        """Why an intent does not move on, for whoever asks."""
        if (intent.message, intent.error) != (message, error):
            self._db.execute(
                "UPDATE intents SET message = ?, error = ? WHERE id = ?",
                (message, error, intent.id),
            )

    def end(self, intent: Intent, state: TxState, message: str, error: str | None) -> None:
        """An intent that never got into a block ends here."""
        self._db.execute(
            "UPDATE intents SET state = ?, final = 1, message = ?, error = ? WHERE id = ?",
            (state, message, error, intent.id),
        )

    def mined(self, intent: Intent, receipt: Receipt, state: TxState) -> None:
        """Records the block an intent got into."""
        self._db.execute(
            "UPDATE intents SET state = ?, tx_hash = ?, block_number = ?, block_hash = ?,"
            " gas_used = ?, fee_wei = ? WHERE id = ?",
            (state, receipt.tx_hash, receipt.block_number, receipt.block_hash, receipt.gas_used,
             str(receipt.fee_wei), intent.id),
        )  # fmt: skip

    def unmined(self, intent: Intent) -> None:
        """The block went away in a reorg: the signed transactions are broadcast again."""
        self._db.execute(
            "UPDATE intents SET state = ?, tx_hash = NULL, block_number = NULL, block_hash = NULL,"
            " gas_used = NULL, fee_wei = NULL, error = NULL, message = '' WHERE id = ?",
            (TxState.SENT, intent.id),
        )

    def requeue(self, intent: Intent) -> None:
        """The nonce went to a transaction that is not ours: start over with another.

        What was signed under it stays known as ours: a reorg may let it in yet.
        """
        self._db.execute(
            "UPDATE intents SET state = ?, nonce = NULL, gas_limit = NULL WHERE id = ?",
            (TxState.QUEUED, intent.id),
        )

    def has_signed(self, tx_hash: str) -> bool:
        """Whether a transaction is one of this file's, also one that was replaced."""
        found = self._db.execute("SELECT 1 FROM signed WHERE tx_hash = ?", (tx_hash,)).fetchone()
        return found is not None

    def finalise(self, up_to_block: int) -> None:
        """Whatever is in that block or below it is not looked at again."""
        which = "final = 0 AND block_number <= ?"
        gas = self._final_gas
        if gas is not None:
            gas = _with_gas(gas, self._db.rows(f"{GAS} AND {which}", (up_to_block,)))
        self._db.execute(f"UPDATE intents SET final = 1 WHERE {which}", (up_to_block,))  # noqa: S608 - of this file alone
        self._final_gas = gas

    def gas_by_label(self) -> dict[str, GasUse]:
        """Gas of mined transactions, reverted ones included.

        The first call reads every one, later ones those that are not final: the rest stays.
        """
        if self._final_gas is None:
            self._final_gas = _with_gas({}, self._db.rows(f"{GAS} AND final = 1"))
        return _with_gas(self._final_gas, self._db.rows(f"{GAS} AND final = 0"))

    @property
    def pairing(self) -> Pairing:
        """What it knows of the journal beside it."""
        return _pairing(self._db.rows(PAIRING))

    def claimed(self, claims: int) -> None:
        """The journal beside it has claimed so many slots by now; durable when this returns."""
        self._db.execute("UPDATE meta SET claims = max(claims, ?)", (claims,))

    def _check_whose(self, account: Address, chain_id: int, pair: str) -> None:
        path = self._db.path
        (row,) = self._db.rows("SELECT chain_id, account, pair FROM meta")
        if (row["chain_id"], row["account"]) != (chain_id, account):
            raise ConfigError(
                f"{path} belongs to {row['account']} on chain {row['chain_id']}, "
                f"not to {account} on chain {chain_id}",
                next_step="use a folder of its own for each account and chain: another --home "
                "(ATOLL_HOME), or a service's data_dir",
            )
        if pair and row["pair"] != pair:
            raise ConfigError(
                f"{path} was beside another journal",
                next_step="bring the journal back that was beside it, or move the file away",
            )


def _open_or_make(path: Path, account: Address, chain_id: int, pair: str) -> Database:
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
        if len(_tables(database)) != len(TABLES) or len(database.rows(PAIRING)) != 1:
            raise _damaged(path, "it lacks what it began with")
    except BaseException:
        database.close()
        raise
    return database


def _tables(database: Database) -> list[sqlite3.Row]:
    marks = ", ".join("?" * len(TABLES))
    return database.rows(f"SELECT 1 FROM sqlite_master WHERE name IN ({marks})", TABLES)  # noqa: S608 - only question marks


def _damaged(path: Path, why: str) -> StorageError:
    return StorageError(
        f"{path} is damaged: {why}",
        next_step="bring a copy of it back; without one, wait until the chain has what the account "
        f"sent, then move {path.name}* away: what is under way may be sent once more",
    )


def _pairing(rows: list[sqlite3.Row]) -> Pairing:
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
            return _pairing(database.execute(PAIRING).fetchall())
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
            return [_intent(row) for row in database.execute("SELECT * FROM intents ORDER BY id")]
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


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the chain says of a transaction in a block."""

    tx_hash: str
    succeeded: bool
    block_number: int
    block_hash: bytes
    gas_used: int
    fee_wei: int


def _with_gas(uses: Mapping[str, GasUse], rows: Iterable[sqlite3.Row]) -> dict[str, GasUse]:
    """By label; each row, of label, gas and fee, is a transaction more."""
    found = dict(uses)
    for label, gas, fee in rows:
        old = found.get(label, GasUse(0, 0, 0, 0))
        found[label] = GasUse(
            old.transactions + 1, old.gas + gas, max(old.highest, gas), old.fees + int(fee)
        )
    return found


def _intent(row: sqlite3.Row) -> Intent:
    is_anybodys, stake = bool(row["permissionless"]), int(row["stake"])
    call = Call(Address(row["target"]), row["data"], row["label"], is_anybodys, stake)
    return Intent(
        id=row["id"],
        key=row["key"],
        generation=row["generation"],
        call=call,
        value=int(row["value"]),
        state=TxState(row["state"]),
        nonce=row["nonce"],
        gas_limit=row["gas_limit"],
        tx_hash=row["tx_hash"],
        block_number=row["block_number"],
        block_hash=row["block_hash"],
        gas_used=row["gas_used"],
        fee_wei=int(row["fee_wei"]) if row["fee_wei"] is not None else None,
        final=bool(row["final"]),
        error=row["error"],
        message=row["message"],
    )
