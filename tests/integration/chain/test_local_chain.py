"""A development chain that ends, and goes on from its file, tells what it told before."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

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
        await chain.send({"from": account, "to": account, "value": "0x1"})
        await chain.crash()
        await chain.start()
        height = await chain.block_number()
        blocks = [await chain.rpc("eth_getBlockByNumber", hex(n), False) for n in range(height + 1)]
        assert sum(len(block["transactions"]) for block in blocks) == 11
        assert int(await chain.rpc("eth_getTransactionCount", account, "latest"), 16) == 11
    finally:
        chain.kill()


async def test_a_chain_is_still_while_it_is_told_to_be(tmp_path: Path) -> None:
    """Anvil's file would lack the transactions of a block that is mined while it is written."""
    chain = LocalChain(ChainConfig(tmp_path, block_seconds=BLOCK_SECONDS))
    await chain.start()
    try:
        (account,) = await chain.rpc("eth_accounts")
        async with chain.still():
            height = await chain.block_number()
            await pay(chain, account)
            await asyncio.sleep(20 * BLOCK_SECONDS)
            assert await chain.block_number() == height
    finally:
        chain.kill()


async def test_nothing_is_mined_while_blocks_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anvil would leave out the replaced blocks, and go on above them."""
    chain = LocalChain(ChainConfig(tmp_path, block_seconds=BLOCK_SECONDS))
    ask, before = chain.rpc, list[int]()

    async def slow(method: str, *params: object) -> Any:
        if method == "anvil_reorg":
            for _ in range(2):
                before.append(int(await ask("eth_blockNumber"), 16))
                await asyncio.sleep(20 * BLOCK_SECONDS)
        return await ask(method, *params)

    await chain.start()
    try:
        while await chain.block_number() < 20:  # noqa: ASYNC110 (the chain is polled)
            await asyncio.sleep(BLOCK_SECONDS)
        old = await chain.rpc("eth_getBlockByNumber", "latest", False)
        monkeypatch.setattr(chain, "rpc", slow)
        await chain.reorg(10)
        assert before[0] == before[1]
        while await chain.block_number() < before[0] + 2:  # noqa: ASYNC110 (it goes on)
            await asyncio.sleep(BLOCK_SECONDS)
        blocks = [await ask("eth_getBlockByNumber", hex(n), False) for n in range(before[0] + 3)]
        parents = [block["parentHash"] for block in blocks[1:]]
        assert parents == [block["hash"] for block in blocks[:-1]]
        assert old["hash"] not in parents
    finally:
        chain.kill()


async def test_time_goes_on_from_where_it_was(tmp_path: Path) -> None:
    """Older blocks above newer ones would open windows that are over, and what is paid could go."""
    chain = LocalChain(ChainConfig(tmp_path, block_seconds=BLOCK_SECONDS))

    async def times() -> list[int]:
        height = await chain.block_number()
        blocks = [await chain.rpc("eth_getBlockByNumber", hex(n), False) for n in range(height + 1)]
        return [int(block["timestamp"], 16) for block in blocks]

    await chain.start()
    try:
        moved = (await times())[-1] + 5_000
        await chain.rpc("evm_setNextBlockTimestamp", moved)
        await asyncio.to_thread(chain.stop)
        await chain.start()
        await chain.crash()
        await chain.start()
        found = len(await times())
        while len(await times()) < found + 3:  # noqa: ASYNC110 (the chain is polled)
            await asyncio.sleep(BLOCK_SECONDS)
        told = await times()
        assert max(told) >= moved
        assert told == sorted(told)
    finally:
        chain.kill()
