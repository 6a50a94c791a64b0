"""What receipts of a block are taken for."""

from __future__ import annotations

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
