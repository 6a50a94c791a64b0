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
from pathlib import Path

from atoll.chain.call import Call
from atoll.chain.txfile import PAIRING, open_or_make, pairing_of
from atoll.chain.txrecords import (
    GasUse,
    Intent,
    Pairing,
    Receipt,
    SignedTransaction,
    TxState,
    intent_of,
    with_gas,
)
from atoll.errors import ConfigError
from atoll.protocol.types import Address

GAS = "SELECT label, gas_used, fee_wei FROM intents WHERE gas_used > 0"


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
            self._db = open_or_make(path, account, chain_id, pair)
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
        return intent_of(row) if row else None

    def in_state(self, *states: TxState) -> list[Intent]:
        """Intents that are not final, in these states, in the order of nonce and arrival."""
        marks = ", ".join("?" * len(states))
        rows = self._db.execute(
            f"SELECT * FROM intents WHERE final = 0 AND state IN ({marks}) ORDER BY nonce, id",  # noqa: S608 - only question marks
            states,
        )
        return [intent_of(row) for row in rows]

    @property
    def is_idle(self) -> bool:
        """Whether every intent is final."""
        row = self._db.execute("SELECT 1 FROM intents WHERE final = 0 LIMIT 1").fetchone()
        return row is None

    def all(self) -> list[Intent]:
        """Every intent ever, oldest first."""
        return [intent_of(row) for row in self._db.execute("SELECT * FROM intents ORDER BY id")]

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
            gas = with_gas(gas, self._db.rows(f"{GAS} AND {which}", (up_to_block,)))
        self._db.execute(f"UPDATE intents SET final = 1 WHERE {which}", (up_to_block,))  # noqa: S608 - of this file alone
        self._final_gas = gas

    def gas_by_label(self) -> dict[str, GasUse]:
        """Gas of mined transactions, reverted ones included.

        The first call reads every one, later ones those that are not final: the rest stays.
        """
        if self._final_gas is None:
            self._final_gas = with_gas({}, self._db.rows(f"{GAS} AND final = 1"))
        return with_gas(self._final_gas, self._db.rows(f"{GAS} AND final = 0"))

    @property
    def pairing(self) -> Pairing:
        """What it knows of the journal beside it."""
        return pairing_of(self._db.rows(PAIRING))

    def claimed(self, claims: int) -> None:
        """The journal beside it has claimed so many subjects by now; durable when this returns."""
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
