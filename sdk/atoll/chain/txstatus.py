"""Where a transaction stands, and why it failed or waits, for whoever asked for it."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.chain.txrecords import Intent, TxState
from atoll.errors import ChainError, InsufficientFunds, TransactionFailed
from atoll.protocol.types import BlockRef

NO_MONEY = "InsufficientFundsForGas"
"""Not a contract's error: the account cannot pay for gas and value."""
TOO_LARGE = "TransactionTooLarge"
"""Not a contract's error either: no node takes so much calldata, or so much gas."""
TRIED_AGAIN = "is tried again: "
"""What the message begins with of one that is in doubt, and may pass in a moment."""
ABOVE_CAP = "waits: the base fee is above the fee cap"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a call has no effect: for a person, and the custom error where there was one."""

    message: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TxStatus:
    """Where one transaction stands.

    Attributes:
        confirmations: blocks from its own to the newest, both counted; 0 outside a block.
        error: the custom error it was refused with, where there was one.
        message: why it failed or waits, for a person.
    """

    key: str
    label: str
    state: TxState
    nonce: int | None
    tx_hash: str | None
    block: int | None
    confirmations: int
    gas_used: int | None
    fee_wei: int | None
    error: str | None
    message: str

    @property
    def has_effect(self) -> bool:
        """Whether it succeeded in a block."""
        return self.state is TxState.MINED


def status_of(intent: Intent, head: BlockRef | None, final_blocks: int) -> TxStatus:
    """The intent as of the newest block; what is final is not looked at any more."""
    depth = final_blocks if intent.final and intent.block_number else 0
    if intent.block_number is not None and head is not None:
        depth = max(head.number - intent.block_number + 1, depth, 1)
    return TxStatus(
        key=intent.key,
        label=intent.call.label,
        state=intent.state,
        nonce=intent.nonce,
        tx_hash=intent.tx_hash,
        block=intent.block_number,
        confirmations=depth,
        gas_used=intent.gas_used,
        fee_wei=intent.fee_wei,
        error=intent.error,
        message=intent.message,
    )


def failure(status: TxStatus) -> ChainError:
    """What is raised to whoever waits for a transaction without effect."""
    message = status.message or f"{status.label} failed"
    if status.error == NO_MONEY:
        return InsufficientFunds(message, next_step="send the account some native coin for gas")
    return TransactionFailed(message, error=status.error)
