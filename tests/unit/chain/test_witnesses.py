"""What a block's receipts cost who reads them, strangers' logs included."""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from atoll.chain import logs
from atoll.chain.answers import Header, TxReceipt
from atoll.chain.logs import LogReader, bloom_of
from atoll.chain.rpc import FailoverProvider
from atoll.errors import RpcUnavailable
from atoll.law.words import BlockRef, Digest

ZERO = Digest(bytes(32))
TX_HASH = f"0x{1:064x}"
BLOCK = Header(BlockRef(1, ZERO, 1), ZERO, 0, (TX_HASH,), 0)
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

    async def ask(self, method: str, _: list[Any], read: Callable[[Any], Any]) -> Any:
        if method == "eth_getBlockReceipts":
            raise RpcUnavailable("no such method")
        return read(RECEIPT)


async def test_receipts_that_come_one_by_one_are_checked_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkers: list[int] = []
    check = logs._all_of

    def noted(block: Header, receipts: list[TxReceipt]) -> list[TxReceipt]:
        checkers.append(threading.get_ident())
        return check(block, receipts)

    monkeypatch.setattr(logs, "_all_of", noted)
    reader = LogReader(cast(FailoverProvider, OneByOne()), [])
    assert [item.tx_hash for item in await reader._receipts(BLOCK)] == [TX_HASH]
    assert threading.get_ident() not in checkers and len(checkers) == 1
