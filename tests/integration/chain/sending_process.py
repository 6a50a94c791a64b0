"""Watches with an account, and sends 1 wei some times, a line for each, as others do meanwhile.

Arguments: RPC URL, deployment file, home, name, how often. Started by `test_client_homes.py`.
"""

from __future__ import annotations

import asyncio
import sys

from eth_account import Account
from tests.integration.chain.paying_process import KEY, SOMEONE

from atoll import Client, ClientConfig
from atoll.chain.txconfig import QueueConfig


async def main(url: str, deployment: str, home: str, name: str, times: int) -> None:
    queue = QueueConfig(rebroadcast_seconds=1.0)
    config = ClientConfig(home=home, confirmations=0, poll_seconds=0.02, queue=queue)
    async with Client(url, deployment, Account.from_key(KEY), config) as client:
        print("watches", flush=True)  # noqa: T201 - the test reads lines
        await asyncio.to_thread(sys.stdin.readline)  # until every one of them does
        for index in range(times):
            call = client.chain.calls.transfer(SOMEONE, 1)
            sent = await client.transact(f"{name}:{index}", call)
            print("sent", sent.nonce, flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5], int(sys.argv[5])))
