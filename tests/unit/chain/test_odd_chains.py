"""What is not needed never stops the index, and what came is not asked for again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.chain.several import Blocks, Endpoint, Lie, chain_of, word
from tests.unit.chain.test_hidden_logs import SOME, all_of, announced, indexing, of_blocks

from atoll.chain import rpc
from atoll.chain.response_checks import EMPTY_ROOT, header
from atoll.errors import RpcUnavailable

Change = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "TRIES", 1)


def of_receipts(change: Change) -> Lie:
    def lie(method: str, _: list[Any], truth: Any) -> Any:
        return [change(one) for one in truth] if method == "eth_getBlockReceipts" else truth

    return lie


def without(*names: str) -> Change:
    return lambda one: {name: value for name, value in one.items() if name not in names}


def nulled(*names: str) -> Change:
    return lambda one: {**one, **dict.fromkeys(names)}


def logs_of(change: Change) -> Change:
    return lambda one: {**one, "logs": [change(log) for log in one["logs"]]}


def with_a_system_transaction(method: str, _: list[Any], truth: Any) -> Any:
    """As of chains that move their own state: it is in the block, and has no receipt."""
    if method == "eth_getBlockByNumber" and truth is not None:
        return {**truth, "transactions": [*truth["transactions"], word(999_999)]}
    return truth


def no_block_receipts(method: str, params: list[Any], truth: Any) -> Any:
    found = with_a_system_transaction(method, params, truth)
    return None if method == "eth_getBlockReceipts" else found


IN_A_LOG = ("blockNumber", "blockHash", "transactionHash", "logIndex")
ODD = {
    "no base fee": of_blocks(lambda _: {"baseFeePerGas": None}),
    "no price": of_receipts(without("effectiveGasPrice")),
    "no price, gas or status": of_receipts(nulled("effectiveGasPrice", "gasUsed", "status")),
    "logs without their place": of_receipts(logs_of(nulled(*IN_A_LOG))),
    "a system transaction": with_a_system_transaction,
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("has_logs", [True, False])
async def test_what_nodes_leave_out_stops_no_index(
    odd: str, has_logs: bool, tmp_path: Path
) -> None:
    """Logs are asked for, or, where no endpoint serves them, follow from receipts."""

    def lie(method: str, params: list[Any], truth: Any) -> Any:
        if method == "eth_getLogs" and not has_logs:
            return "limit exceeded"
        return ODD[odd](method, params, truth)

    blocks = Blocks(24, SOME)
    async with chain_of(blocks, Endpoint(lie)) as chain, indexing(chain, tmp_path, 2) as index:
        assert announced(await index.poll()) == all_of(blocks)
        assert index.confirmed == 21


async def test_receipts_one_by_one_may_lack_the_chain_s_own_transaction(tmp_path: Path) -> None:
    class OneByOne(Blocks):
        def answer(self, method: str, params: list[Any], last: int) -> Any:
            if method != "eth_getTransactionReceipt":
                return super().answer(method, params, last)
            every = (one for number in range(last) for one in self.receipts(number))
            return next((one for one in every if one["transactionHash"] == params[0]), None)

    blocks = OneByOne(24, SOME)
    endpoint = Endpoint(no_block_receipts)
    async with chain_of(blocks, endpoint) as chain, indexing(chain, tmp_path, 2) as index:
        assert announced(await index.poll()) == all_of(blocks)


async def test_a_receipt_that_is_missing_is_missed_where_the_state_has_its_logs(
    tmp_path: Path,
) -> None:
    def lie(method: str, _: list[Any], truth: Any) -> Any:
        if method == "eth_getLogs":
            return []
        return truth[:-1] if method == "eth_getBlockReceipts" else truth

    blocks = Blocks(24, SOME)
    async with chain_of(blocks, Endpoint(lie)) as chain, indexing(chain, tmp_path, 2) as index:
        with pytest.raises(RpcUnavailable, match="not those that the chain's state"):
            await index.poll()


@pytest.mark.parametrize(("root", "is_read"), [(EMPTY_ROOT, True), (word(1), False)])
def test_null_is_no_transaction_only_where_the_block_says_so(root: str, is_read: bool) -> None:
    block = {**Blocks(1, {}).block(0), "transactions": None, "transactionsRoot": root}
    if is_read:
        assert header(block).transactions == ()
    else:
        with pytest.raises(TypeError, match="not a list"):
            header(block)


@pytest.mark.parametrize("most", [1, 3, 7])
async def test_ranges_are_halved_and_remembered(most: int, tmp_path: Path) -> None:
    ranges = list[int]()

    class Narrow(Blocks):
        def answer(self, method: str, params: list[Any], last: int) -> Any:
            if method == "eth_getLogs":
                first, end = (int(params[0][name], 16) for name in ("fromBlock", "toBlock"))
                ranges.append(end - first + 1)
            return super().answer(method, params, last)

    blocks = Narrow(40, dict.fromkeys(range(0, 40, 3), 1))
    endpoint = Endpoint(most_blocks=most)
    async with chain_of(blocks, endpoint) as chain, indexing(chain, tmp_path, 0) as index:
        assert announced(await index.poll()) == all_of(blocks)
        assert max(ranges) == 40 and ranges[-1] <= most
        ranges.clear()
        blocks.count, blocks.announcements = 60, {**blocks.announcements, 41: 1, 58: 2}
        assert len(announced(await index.poll())) == 3
        assert max(ranges) <= most
