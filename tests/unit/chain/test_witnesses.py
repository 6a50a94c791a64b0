"""What receipts of a block are taken for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.chain.several import Blocks, Endpoint, chain_of, word

from atoll.chain.index import EventIndex


async def test_a_receipt_s_logs_are_those_of_its_own_block_whatever_they_name(
    tmp_path: Path,
) -> None:
    """One that named a block behind the last one ended whoever looked for it."""

    def elsewhere(method: str, _: list[Any], truth: Any) -> Any:
        if method != "eth_getBlockReceipts":
            return [] if method == "eth_getLogs" else truth
        moved = {"blockNumber": "0xffff", "blockHash": word(1), "transactionHash": word(1)}
        return [{**each, "logs": [{**log, **moved} for log in each["logs"]]} for each in truth]

    blocks = Blocks(9, {4: 2, 7: 1})
    async with chain_of(blocks, Endpoint(elsewhere)) as chain, chain_of(blocks, Endpoint()) as true:
        index = EventIndex(chain, confirmations=0, path=tmp_path / "index")
        await index.poll()
        found = [(each.block.number, each.log_index, each.transaction) for each in index.history()]
        index.close()
        wanted = await true.logs(0, 8)
        assert await chain.logs(0, 8) == wanted
    assert found == [(each.block_number, each.index, each.transaction) for each in wanted]
    assert len(found) == 3


async def test_the_state_before_the_contracts_were_there_is_not_asked_for() -> None:
    begins = 4

    def without_contracts(method: str, params: list[Any], truth: Any) -> Any:
        if method != "eth_call":
            return truth
        at = params[1]
        number = int(at["blockHash"], 16) - 1 if isinstance(at, dict) else int(at, 16)
        return truth if number >= begins else "0x"

    blocks = Blocks(9, {4: 2, 7: 1})
    async with chain_of(blocks, Endpoint(without_contracts)) as chain:
        chain.deployment = replace(chain.deployment, block=begins)
        logs = await chain.logs(begins, 8)
    assert [log.block_number for log in logs] == [4, 4, 7]
