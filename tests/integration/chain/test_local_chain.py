"""A development chain that ends, and goes on from its file, tells what it told before."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from atoll_devnet.processes.chain import ChainConfig, LocalChain

BLOCK_SECONDS = 0.05


async def pay(chain: LocalChain, account: str) -> None:
    await chain.rpc("eth_sendTransaction", {"from": account, "to": account, "value": "0x1"})


async def test_what_a_chain_writes_has_the_transactions_that_made_it(tmp_path: Path) -> None:
    chain = LocalChain(ChainConfig(tmp_path, block_seconds=BLOCK_SECONDS))
    await chain.start()
    (account,) = await chain.rpc("eth_accounts")
    for _ in range(10):
        await pay(chain, account)
    await asyncio.to_thread(chain.stop)
    state = json.loads(chain.state_file.read_text())
    assert state["accounts"][account.lower()]["nonce"] == len(state["transactions"]) == 10
    await chain.start()
    try:
        await pay(chain, account)
        await chain.crash()
        await chain.start()
        height = await chain.block_number()
        blocks = [await chain.rpc("eth_getBlockByNumber", hex(n), False) for n in range(height + 1)]
        assert sum(len(block["transactions"]) for block in blocks) == 11
        assert int(await chain.rpc("eth_getTransactionCount", account, "latest"), 16) == 11
    finally:
        chain.kill()


async def test_a_chain_holds_still_before_it_writes(tmp_path: Path) -> None:
    """Anvil's file would lack the transactions of a block that is mined while it is written."""
    chain = LocalChain(ChainConfig(tmp_path, block_seconds=BLOCK_SECONDS))
    await chain.start()
    try:
        (account,) = await chain.rpc("eth_accounts")
        await pay(chain, account)
        await asyncio.to_thread(chain._hold_still)
        height = await chain.block_number()
        mined = await chain.rpc("eth_getTransactionCount", account, "latest")
        await pay(chain, account)
        await asyncio.sleep(20 * BLOCK_SECONDS)
        assert int(mined, 16) == 1
        assert await chain.block_number() == height
    finally:
        chain.kill()
