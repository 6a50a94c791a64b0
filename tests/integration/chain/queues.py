"""A transaction queue on a chain, and a clock that tests turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import Anvil

from atoll.chain.contracts import AtollChain
from atoll.chain.txconfig import QueueConfig
from atoll.chain.txqueue import TxQueue
from atoll.chain.txstatus import TxStatus
from atoll.protocol.types import Address

SOMEONE = Address("0x000000000000000000000000000000000000bEEF")
EAGER = QueueConfig(poll_seconds=0.02, rebroadcast_seconds=1.0, doubt_seconds=0.0)


class Clock:
    """Unix seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def running(queue: TxQueue) -> AsyncIterator[TxQueue]:
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        queue.close()


def status_of(queue: TxQueue, key: str = "pay") -> TxStatus:
    """Of a transaction that the queue was given."""
    status = queue.status(key)
    assert status is not None
    return status


async def nonce_of(chain: AtollChain, account: LocalAccount) -> int:
    return await chain.nonce(Address(account.address))


def outbid(anvil: Anvil, account: LocalAccount, nonce: int, to: str, data: bytes) -> None:
    """Sends a transaction past any queue, for a fee that puts it first in the block."""
    raw = account.sign_transaction(
        {
            "type": 2, "chainId": 31337, "nonce": nonce, "gas": 100_000, "value": 0,
            "maxFeePerGas": 10**12, "maxPriorityFeePerGas": 10**11, "to": to, "data": data,
        }
    )  # fmt: skip
    anvil.ask("eth_sendRawTransaction", "0x" + bytes(raw.raw_transaction).hex())
