"""Where endpoints have to agree, none hides a log behind a hash that is right; what that costs.

No clock decides: on a loaded machine, too, nobody is found slow but who is meant to be, and who is
distrusted stays so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.chain.several import Blocks, Endpoint, Lie, chain_of, word

from atoll.chain import agreement as agreement_module
from atoll.chain import rpc as rpc_module
from atoll.chain.contracts import AtollChain
from atoll.chain.index import Change, EventIndex
from atoll.chain.indexed import Indexed
from atoll.chain.logs import PARALLEL
from atoll.chain.rpc import FailoverProvider
from atoll.errors import RpcUnavailable
from atoll.protocol.events import GatewayAnnounced

SOME = {4: 1, 7: 3, 8: 1, 19: 2}
DAY = 86_400.0
STRANGE_BLOOM = f"0x{7:0512x}"


@pytest.fixture(autouse=True)
def _days(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for, and for how long others go first."""
    monkeypatch.setattr(agreement_module, "SLOW_SECONDS", DAY)
    monkeypatch.setattr(rpc_module, "LONGEST_PAUSE_SECONDS", DAY)
    monkeypatch.setattr(FailoverProvider, "_patience_s", lambda *_: DAY)


def of_blocks(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Lie:
    def lie(method: str, _: list[Any], truth: Any) -> Any:
        return {**truth, **change(truth)} if method == "eth_getBlockByNumber" and truth else truth

    return lie


def without_the_last(logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the last log of each block: the bloom says the same where others are like it."""
    last = {log["blockNumber"]: log for log in logs}
    return [log for log in logs if log is not last[log["blockNumber"]]]


def with_the_first_twice(logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return logs + [{**log, "data": logs[0]["data"], "logIndex": "0xfff"} for log in logs[-1:]]


def of_logs(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Lie:
    """Of logs and receipts alike, behind true blocks."""

    def lie(method: str, _: list[Any], truth: Any) -> Any:
        if method == "eth_getLogs":
            return change(truth)
        if method == "eth_getBlockReceipts":
            kept = change([log for receipt in truth for log in receipt["logs"]])
            names = [receipt["transactionHash"] for receipt in truth]
            of_each = [[log for log in kept if log["transactionHash"] == name] for name in names]
            return [{**item, "logs": logs} for item, logs in zip(truth, of_each, strict=True)]
        return truth

    return lie


LIES = {
    "a bloom of its own": of_blocks(lambda _: {"logsBloom": STRANGE_BLOOM}),
    "no transactions": of_blocks(lambda _: {"logsBloom": f"0x{0:0512x}", "transactions": []}),
    "fewer transactions": of_blocks(lambda block: {"transactions": block["transactions"][:1]}),
    "receipts without a log": of_logs(without_the_last),
    "receipts with another log": of_logs(with_the_first_twice),
}


@asynccontextmanager
async def indexing(chain: AtollChain, path: Path, confirmations: int) -> AsyncIterator[EventIndex]:
    index = EventIndex(chain, confirmations=confirmations, path=path / "index")
    try:
        yield index
    finally:
        index.close()


def announced(changes: Iterable[Change]) -> list[str]:
    events = (change.event for change in changes if isinstance(change, Indexed))
    return [event.url for event in events if isinstance(event, GatewayAnnounced)]


def all_of(blocks: Blocks) -> list[str]:
    return [url for number in range(blocks.count) for url in blocks.urls(number)]


def by_number(endpoint: Endpoint) -> Counter[str]:
    """How often it was asked for which block by its number."""
    return Counter({each: n for each, n in endpoint.asked.items() if each.startswith("0x")})


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("confirmations", [0, 2])
async def test_an_endpoint_alone_hides_and_invents_nothing(
    lie: str, place: int, confirmations: int, tmp_path: Path
) -> None:
    blocks = Blocks(20 + confirmations, SOME)
    endpoints = [Endpoint(), Endpoint()]
    endpoints.insert(place, Endpoint(LIES[lie]))
    async with (
        chain_of(blocks, *endpoints, agreement=2) as chain,
        indexing(chain, tmp_path, confirmations) as index,
    ):
        assert announced(await index.poll()) == all_of(blocks)
        if place < 2:  # the third is not asked
            assert chain.provider.preferred()[-1] == chain.provider.urls[place]


@pytest.mark.parametrize("lie", LIES)
async def test_two_of_five_hide_and_invent_nothing_where_three_have_to_agree(
    lie: str, tmp_path: Path
) -> None:
    blocks = Blocks(20, SOME)
    liars = [Endpoint(LIES[lie]), Endpoint(LIES[lie])]
    async with (
        chain_of(blocks, *liars, Endpoint(), Endpoint(), Endpoint(), agreement=3) as chain,
        indexing(chain, tmp_path, 0) as index,
    ):
        assert announced(await index.poll()) == all_of(blocks)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("place", range(2))
async def test_where_too_few_agree_nothing_is_believed(
    lie: str, place: int, tmp_path: Path
) -> None:
    blocks = Blocks(20, {4: 2})
    endpoints = [Endpoint()]
    endpoints.insert(place, Endpoint(LIES[lie]))
    async with (
        chain_of(blocks, *endpoints, agreement=2) as chain,
        indexing(chain, tmp_path, 0) as index,
    ):
        told = (
            r"1 of 2 RPC endpoints give the same (receipts of )?block \d+, and rpc_agreement is 2"
        )
        with pytest.raises(RpcUnavailable, match=told):
            await index.poll()
        assert index.confirmed == -1
        assert list(index.history()) == []


async def test_each_block_costs_as_many_questions_as_have_to_agree_and_one_where_none_have_to(
    tmp_path: Path,
) -> None:
    for agreement in (1, 2, 3):
        blocks, endpoints = Blocks(40, {}), [Endpoint() for _ in range(4)]
        place = tmp_path / str(agreement)
        async with (
            chain_of(blocks, *endpoints, agreement=agreement) as chain,
            indexing(chain, place, 0) as index,
        ):
            await index.poll()
        once = Counter(hex(number) for number in range(39))  # the last one is known as the newest
        assert [by_number(each) == once for each in endpoints[:agreement]] == [True] * agreement
        assert all(not by_number(each) for each in endpoints[agreement:])
        newest = [each.asked["latest"] for each in endpoints]
        assert newest == ([1, 0, 0, 0] if agreement == 1 else [1, 1, 1, 1])


@pytest.mark.parametrize("agreement", [1, 2])
async def test_who_follows_asks_for_no_block_twice(agreement: int, tmp_path: Path) -> None:
    blocks, endpoints = Blocks(10, {}), [Endpoint(), Endpoint(), Endpoint()]
    async with (
        chain_of(blocks, *endpoints, agreement=agreement) as chain,
        indexing(chain, tmp_path, 2) as index,
    ):
        for blocks.count in range(10, 20):
            await index.poll()
            if index.confirmed < 10:  # the newest that was seen first is not confirmed yet
                for each in endpoints:
                    each.asked.clear()
        assert index.confirmed == 16
    assert [by_number(each).total() for each in endpoints] == [0, 0, 0]
    assert endpoints[0].asked["latest"] == 7


@pytest.mark.parametrize("lie", ["a bloom of its own", "no transactions"])
async def test_who_gives_another_bloom_is_asked_last_as_who_names_another_block(
    lie: str, tmp_path: Path
) -> None:
    """And is not believed for what it gives as its newest block, which is asked for no more."""
    blocks = Blocks(200, dict.fromkeys(range(200), 1))
    liar = Endpoint(LIES[lie])
    async with (
        chain_of(blocks, liar, Endpoint(), Endpoint(), agreement=2) as chain,
        indexing(chain, tmp_path, 0) as index,
    ):
        assert announced(await index.poll()) == all_of(blocks)
        assert chain.provider.useless_answers > 0
    assert by_number(liar).total() <= PARALLEL


async def test_one_that_lies_about_old_blocks_alone_costs_no_more_than_are_asked_for_at_once(
    tmp_path: Path,
) -> None:
    blocks = Blocks(200, {})

    def old(method: str, params: list[Any], truth: Any) -> Any:
        return (
            LIES["a bloom of its own"](method, params, truth)
            if params != ["latest", False]
            else truth
        )

    liar, others = Endpoint(old), [Endpoint(), Endpoint()]
    async with (
        chain_of(blocks, liar, *others, agreement=2) as chain,
        indexing(chain, tmp_path, 0) as index,
    ):
        await index.poll()
    assert 0 < by_number(liar).total() <= PARALLEL
    assert [by_number(each).total() for each in others] == [199, 199]


async def test_who_names_logs_in_blocks_that_have_none_makes_nobody_read_their_receipts(
    tmp_path: Path,
) -> None:
    blocks = Blocks(40, SOME)

    def everywhere(method: str, params: list[Any], truth: Any) -> Any:
        if method != "eth_getLogs":
            return truth
        first, last = (int(params[0][name], 16) for name in ("fromBlock", "toBlock"))
        places = ({"blockNumber": hex(n), "blockHash": word(n + 1)} for n in range(first, last + 1))
        return [{**truth[0], **place} for place in places]

    endpoints = [Endpoint(everywhere), Endpoint(), Endpoint()]
    async with (
        chain_of(blocks, *endpoints, agreement=2) as chain,
        indexing(chain, tmp_path, 0) as index,
    ):
        assert announced(await index.poll()) == all_of(blocks)
    assert [each.asked["eth_getBlockReceipts"] for each in endpoints] == [len(SOME), len(SOME), 0]


async def test_one_that_lags_is_passed_over_and_not_distrusted(tmp_path: Path) -> None:
    blocks, endpoints = Blocks(40, SOME), [Endpoint(), Endpoint(lag=3), Endpoint()]
    async with (
        chain_of(blocks, *endpoints, agreement=2) as chain,
        indexing(chain, tmp_path, 0) as index,
    ):
        assert announced(await index.poll()) == all_of(blocks)
        assert chain.provider.preferred() == chain.provider.urls
    assert by_number(endpoints[2]) == {hex(37): 1, hex(38): 1}


async def test_one_that_is_slow_is_waited_for_no_longer_than_others_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers after all are read.

    Time passes for one question at a time, once it waits for nobody but the slow one.
    """
    blocks, slow = Blocks(100, SOME), Endpoint(waits=asyncio.Event())
    async with (
        chain_of(blocks, slow, Endpoint(), Endpoint(), agreement=2) as chain,
        indexing(chain, tmp_path, 0) as index,
    ):
        real = asyncio.wait

        async def wait(tasks: Any, **kwargs: Any) -> Any:
            asked = set(tasks.values()) if isinstance(tasks, dict) else set()
            passed = {"timeout": 0} if asked == {chain.provider.urls[0]} else {}
            return await real(tasks, **kwargs | passed)

        monkeypatch.setattr(asyncio, "wait", wait)
        assert announced(await index.poll()) == all_of(blocks)
        assert chain.provider.preferred()[-1] == chain.provider.urls[0]
    assert 0 < by_number(slow).total() <= PARALLEL
