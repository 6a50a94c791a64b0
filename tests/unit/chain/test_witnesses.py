"""Which blocks are asked for their logs, and what receipts cost who reads them."""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.chain.several import Blocks, Endpoint, chain_of

from atoll.chain import logs
from atoll.chain.decode import event_topics
from atoll.chain.index import EventIndex
from atoll.chain.logs import LogReader, bloom_of
from atoll.chain.response_checks import BlockHeader, TxReceipt
from atoll.chain.rpc import FailoverProvider
from atoll.errors import RpcUnavailable
from atoll.protocol.types import Address, BlockRef, Digest

ZERO = Digest(bytes(32))
TX_HASH = f"0x{1:064x}"
BLOCK = BlockHeader(BlockRef(1, ZERO, 1), ZERO, 0, (TX_HASH,), 0)
RECEIPT = {
    "transactionHash": TX_HASH, "status": "0x1", "blockNumber": "0x1", "blockHash": f"0x{0:064x}",
    "gasUsed": "0x1", "effectiveGasPrice": "0x1", "logs": [],
}  # fmt: skip


def test_a_stranger_s_topic_is_not_kept() -> None:
    """Anybody may write any number of them into blocks that have a log of ours."""
    topic = secrets.token_bytes(32)
    before = sys.getrefcount(topic)
    assert bloom_of([topic, topic]).bit_count() in {1, 2, 3}
    assert sys.getrefcount(topic) == before


class OneByOne:
    """Has no receipts of whole blocks."""

    async def ask(self, method: str, params: Sequence[Any], read: Callable[[Any], Any]) -> Any:
        if method == "eth_getBlockReceipts":
            raise RpcUnavailable("no such method")
        return read(RECEIPT)


async def test_receipts_that_come_one_by_one_are_checked_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkers: list[int] = []
    check = logs._all_of

    def noted(block: BlockHeader, receipts: list[TxReceipt]) -> list[TxReceipt]:
        checkers.append(threading.get_ident())
        return check(block, receipts)

    monkeypatch.setattr(logs, "_all_of", noted)
    assert [item.tx_hash for item in await logs._receipts(BLOCK, OneByOne().ask)] == [TX_HASH]
    assert threading.get_ident() not in checkers and len(checkers) == 1


OURS, STRANGE = Address("0x" + "11" * 20), Address("0x" + "22" * 20)
HIT = bloom_of([bytes.fromhex(OURS[2:]), min(event_topics())])
MISS = bloom_of([bytes.fromhex(STRANGE[2:])])


class Counted:
    """A chain of blocks with these blooms; the ranges whose logs were asked for."""

    urls = ("http://one.example.org",)

    def __init__(self, blocks: list[tuple[int, int]]) -> None:
        self.blocks, self.asked = blocks, list[tuple[int, int]]()

    async def ask(self, method: str, params: list[Any], read: Callable[[Any], Any]) -> Any:
        number = int(params[0], 16)
        bloom, transactions = self.blocks[number - 1]
        names = [f"0x{number:032x}{each:032x}" for each in range(transactions)]
        if method == "eth_getBlockReceipts":
            wanted = {"blockNumber": params[0], "blockHash": f"0x{number:064x}"}
            return read([{**RECEIPT, **wanted, "transactionHash": name} for name in names])
        linked = {"hash": f"0x{number:064x}", "parentHash": f"0x{number - 1:064x}"}
        return read(
            {
                "number": params[0], **linked,
                "timestamp": "0x1", "logsBloom": f"0x{bloom:0512x}", "transactions": names,
                "baseFeePerGas": "0x0",
            }
        )  # fmt: skip

    async def ask_several(
        self, _: int, __: str, params: list[Any], read: Callable[[Any], Any]
    ) -> list[Any]:
        self.asked.append((int(params[0]["fromBlock"], 16), int(params[0]["toBlock"], 16)))
        return [read([])]


@pytest.mark.parametrize(
    ("blocks", "asked"),
    [
        ([(MISS, 3), (MISS, 1), (0, 0), (HIT, 0)], []),
        ([(0, 1)], [(1, 1)]),  # the bloom of a chain that leaves it empty
        ([(MISS, 1), (0, 0), (0, 2), (MISS, 1), (0, 1), (MISS, 1)], [(3, 5)]),
    ],
)
async def test_nobody_is_asked_for_the_logs_of_blocks_whose_headers_prove_that_there_are_none(
    blocks: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    chain = Counted(blocks)
    found = await LogReader(cast(FailoverProvider, chain), [OURS]).read(1, len(blocks), None)
    assert found is not None and found[1] == []
    assert [header.ref.number for header in found[0]] == list(range(1, len(blocks) + 1))
    assert chain.asked == asked


async def test_of_a_block_that_may_have_some_they_are_asked_for_and_witnessed() -> None:
    chain = Counted([(MISS, 1), (HIT, 1)])
    with pytest.raises(ValueError, match="without some of the block's logs"):
        await LogReader(cast(FailoverProvider, chain), [OURS]).read(1, 2, None)
    assert chain.asked == [(2, 2)]


async def test_a_receipt_s_logs_are_those_of_its_own_block_whatever_they_name(
    tmp_path: Path,
) -> None:
    """One that named a block behind the last one ended whoever looked for it."""

    def elsewhere(method: str, _: list[Any], truth: Any) -> Any:
        if method != "eth_getBlockReceipts":
            return [] if method == "eth_getLogs" else truth
        moved = {"blockNumber": "0xffff", "blockHash": TX_HASH, "transactionHash": TX_HASH}
        return [{**each, "logs": [{**log, **moved} for log in each["logs"]]} for each in truth]

    blocks = Blocks(9, {4: 2, 7: 1})
    async with chain_of(blocks, Endpoint(elsewhere)) as chain, chain_of(blocks, Endpoint()) as true:
        index = EventIndex(chain, confirmations=0, path=tmp_path / "index")
        await index.poll()
        found = [(each.block.number, each.log_index, each.transaction) for each in index.history()]
        index.close()
        wanted = await true.logs(0, 8)
    assert found == [(each.block_number, each.index, each.transaction) for each in wanted]
    assert len(found) == 3
