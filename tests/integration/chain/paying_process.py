"""Pays 1 wei twenty times through a queue, says a line for each step, and may be killed any time.

Arguments: RPC URL, deployment file, queue file. Started by `test_txqueue.py`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from eth_account import Account

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.txconfig import QueueConfig
from atoll.chain.txqueue import TxQueue
from atoll.protocol.types import Address

KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
SOMEONE = Address("0x000000000000000000000000000000000000bEEF")


async def main(url: str, deployment: str, path: str) -> None:
    chain = await AtollChain.connect(url, Deployment.load(Path(deployment)))
    queue = TxQueue(chain, Account.from_key(KEY), Path(path), QueueConfig(poll_seconds=0.02))
    running = asyncio.create_task(queue.run())
    for index in range(20):
        await queue.submit(f"pay:{index}", chain.calls.transfer(SOMEONE, 1))
        print(index, flush=True)  # noqa: T201 - the test counts lines
        if index % 7 == 6:
            await queue.wait(f"pay:{index}")
    for index in range(20):
        await queue.wait(f"pay:{index}")
    running.cancel()
    queue.close()
    await chain.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
