"""What the transaction queue writes down of each transaction, as data.

Rule of this file: no I/O; a row of the file becomes a record here and nowhere else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from atoll.chain.call import Call
from atoll.protocol.types import Address


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
        claims: how many subjects that journal had claimed to sign, when it last said so.
        signed: how many transactions were signed here.
    """

    pair: str
    claims: int
    signed: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the chain says of a transaction in a block."""

    tx_hash: str
    succeeded: bool
    block_number: int
    block_hash: bytes
    gas_used: int
    fee_wei: int


def with_gas(uses: Mapping[str, GasUse], rows: Iterable[sqlite3.Row]) -> dict[str, GasUse]:
    """By label; each row, of label, gas and fee, is a transaction more."""
    found = dict(uses)
    for label, gas, fee in rows:
        old = found.get(label, GasUse(0, 0, 0, 0))
        found[label] = GasUse(
            old.transactions + 1, old.gas + gas, max(old.highest, gas), old.fees + int(fee)
        )
    return found


def intent_of(row: sqlite3.Row) -> Intent:
    """A row of `intents`; amounts are text in it, since SQLite's integers end at 64 bits."""
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
