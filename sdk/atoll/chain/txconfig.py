"""How a transaction queue bids and waits, and what its parts share.

Rule of this file: data only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.chain.contracts import AtollChain
from atoll.chain.txstore import TxStore
from atoll.protocol.types import Address

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

GWEI = 10**9
TRANSFER_GAS = 21_000
MOST_GAS = 1 << 24
"""Of a transaction (EIP-7825): nodes take none with a higher limit, which would keep its nonce."""
MOST_CALLDATA = (1 << 17) - 1024
"""Bytes. Nodes take no transaction above 128 KiB, of which all else is a few hundred bytes."""


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """How a queue bids and how long it waits.

    Attributes:
        fee_cap: wei a gas that are never exceeded; above them the queue holds back. A call with
            something at stake may be bid more for, as `fee_per_stake` says.
        fee_per_stake: wei of the chain's coin that one transaction may cost for each unit of the
            token that is at stake in it (`Call.stake`).
        priority_fee: wei a gas for the block's builder where no endpoint suggests any, and at
            least of a bid that follows one that no block took.
        doubt_seconds: for so long a refusal has to be repeated, at newer blocks, until it ends a
            transaction.
        unclear_seconds: the same where no endpoint can say what a call would do.
        replace_seconds: after this long without a block, since this process first sent it, a
            transaction is sent again for more.
        rebroadcast_seconds: after this long the same transaction is shown to every node again, or
            the only one is asked whether it has it.
        final_blocks: depth from which a block counts as there to stay.
        poll_seconds: how often `run` looks.
        gas_margin_percent: added to the estimate, since state moves until the block.
        pair: the id of the journal beside the queue's file; empty where any will do.
    """

    fee_cap: int = 200 * GWEI
    fee_per_stake: float = 0.0
    priority_fee: int = GWEI
    doubt_seconds: float = 15.0
    unclear_seconds: float = 120.0
    replace_seconds: float = 30.0
    rebroadcast_seconds: float = 5.0
    final_blocks: int = 64
    poll_seconds: float = 0.5
    gas_margin_percent: int = 25
    pair: str = ""

    def cap(self, stake: int, gas_limit: int) -> int:
        """Wei a gas that a call with so much at stake is bid for at most."""
        return max(self.fee_cap, int(stake * self.fee_per_stake) // gas_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueParts:
    """What every part of one queue works with.

    Attributes:
        account: the key; `address` is its own.
        clock: seconds that nobody sets back or ahead.
    """

    chain: AtollChain
    account: LocalAccount
    address: Address
    store: TxStore
    config: QueueConfig
    clock: Callable[[], float]
