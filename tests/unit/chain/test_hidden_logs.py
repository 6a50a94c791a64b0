"""No endpoint hides a log of a block whose state is known; what that costs.

No clock decides: on a loaded machine, too, nobody is found slow but who is meant to be, and who is
distrusted stays so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.chain.several import Blocks, Endpoint, Lie, chain_of, honest

from atoll.chain import agreement as agreement_module
from atoll.chain import index as index_module
from atoll.chain import rpc as rpc_module
from atoll.chain.contracts import AtollChain
from atoll.chain.index import Change, EventIndex, Rewound
from atoll.chain.indexed import Indexed
from atoll.chain.rpc import FailoverProvider
from atoll.errors import RpcUnavailable
from atoll.protocol.events import GatewayAnnounced

SOME = {4: 1, 7: 3, 8: 1, 19: 2}
DAY = 86_400.0


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
    """Without the last log of each block."""
    last = {log["blockNumber"]: log for log in logs}
    return [log for log in logs if log is not last[log["blockNumber"]]]


def with_the_first_twice(logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return logs + [{**log, "data": logs[0]["data"], "logIndex": "0xfff"} for log in logs[-1:]]


def of_logs(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Lie:
    """Of logs and receipts alike, behind true blocks and heads."""

    def lie(method: str, _: list[Any], truth: Any) -> Any:
        if method == "eth_getLogs":
            return change(truth) if truth else truth
        if method == "eth_getBlockReceipts":
            kept = change([log for receipt in truth for log in receipt["logs"]])
            names = [receipt["transactionHash"] for receipt in truth]
            of_each = [[log for log in kept if log["transactionHash"] == name] for name in names]
            return [{**item, "logs": logs} for item, logs in zip(truth, of_each, strict=True)]
        return truth

    return lie


def without(logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return []


def with_another_time(logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**log, "blockTimestamp": "0x1"} for log in logs]


def in_another_block(logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As far as the range that is asked for has one."""
    return [{**logs[0], "blockNumber": logs[-1]["blockNumber"], "logIndex": "0xfff"}, *logs[1:]]


def with_heads(change: Callable[[str], str]) -> Lie:
    return lambda method, _, truth: change(truth) if method == "eth_call" and truth else truth


HIDES: dict[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = {
    "no log": without,
    "all but the last": without_the_last,
    "another one": with_the_first_twice,
    "another time": with_another_time,
    "another block": in_another_block,
}
LIES: dict[str, Lie] = {
    "no transactions": of_blocks(lambda _: {"transactions": []}),
    "fewer transactions": of_blocks(lambda block: {"transactions": block["transactions"][:1]}),
    "other heads": with_heads(lambda words: words[:-1] + "7"),
    "empty heads": with_heads(lambda words: words[:130] + "00" * ((len(words) - 130) // 2)),
} | {f"logs with {name}": of_logs(change) for name, change in HIDES.items()}
AGREED_ON = ("no transactions", "fewer transactions", "other heads", "empty heads")
"""What endpoints have to give alike, where an agreement is asked for."""


def of_logs_alone(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Lie:
    lie = of_logs(change)
    return lambda m, params, truth: lie(m, params, truth) if m == "eth_getLogs" else truth


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


@pytest.mark.parametrize("hides", HIDES)
@pytest.mark.parametrize("beside", [0, 1])
async def test_what_is_hidden_or_made_up_is_read_in_receipts(
    hides: str, beside: int, tmp_path: Path
) -> None:
    """Of one endpoint alone, or of one more that does the same."""
    blocks, liars = Blocks(60, SOME), [Endpoint(of_logs_alone(HIDES[hides]))] * (1 + beside)
    async with chain_of(blocks, *liars) as chain, indexing(chain, tmp_path, 0) as index:
        assert announced(await index.poll()) == all_of(blocks)
        assert index.confirmed == 59
    assert liars[0].asked["eth_getBlockReceipts"] <= len(SOME)


@pytest.mark.parametrize("hides", HIDES)
async def test_another_endpoint_that_has_them_costs_no_receipts(hides: str, tmp_path: Path) -> None:
    blocks, honest_one = Blocks(60, SOME), Endpoint()
    async with (
        chain_of(blocks, honest_one, Endpoint(of_logs_alone(HIDES[hides]))) as chain,
        indexing(chain, tmp_path, 0) as index,
    ):
        assert announced(await index.poll()) == all_of(blocks)
    assert hides == "another one" or honest_one.asked["eth_getBlockReceipts"] <= 1


@pytest.mark.parametrize("hides", ["no log", "all but the last"])
async def test_receipts_that_lack_the_same_are_no_witness(hides: str, tmp_path: Path) -> None:
    """The index waits, and has everything once an endpoint answers."""
    blocks, endpoint = Blocks(40, SOME), Endpoint(of_logs(HIDES[hides]))
    async with chain_of(blocks, endpoint) as chain, indexing(chain, tmp_path, 0) as index:
        with pytest.raises(RpcUnavailable, match="not those that the chain's state"):
            await index.poll()
        assert list(index.history()) == [] and index.confirmed == -1
        endpoint.lie = honest
        assert announced(await index.poll()) == all_of(blocks)
        assert index.confirmed == 39


async def test_one_that_hides_all_of_a_quiet_chain_is_noticed_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it hid comes late, once and in order; nothing behind it was given before."""
    blocks, endpoint = Blocks(10, {2: 1}), Endpoint()
    async with chain_of(blocks, endpoint) as chain, indexing(chain, tmp_path, 0) as index:
        assert announced(await index.poll()) == all_of(blocks)
        endpoint.lie = of_logs_alone(without)
        blocks.announcements = {2: 1, 12: 2, 17: 1}
        for blocks.count in range(11, 21):
            assert announced(await index.poll()) == []
        monkeypatch.setattr(index_module, "CHECK_SECONDS", 0.0)
        blocks.count = 21
        assert announced(await index.poll()) == all_of(blocks)[1:]
        assert announced(index.history()) == all_of(blocks)


async def test_a_range_with_events_shows_one_that_is_hidden(tmp_path: Path) -> None:
    blocks, endpoint = Blocks(10, {2: 1}), Endpoint()
    async with chain_of(blocks, endpoint) as chain, indexing(chain, tmp_path, 0) as index:
        await index.poll()
        endpoint.lie = of_logs_alone(without_the_last)
        blocks.count, blocks.announcements = 20, {2: 1, 12: 2, 17: 1}
        assert announced(await index.poll()) == all_of(blocks)[1:]


@pytest.mark.parametrize("beside", [0, 1])
async def test_a_state_that_is_anothers_for_once_ends_nothing(beside: int, tmp_path: Path) -> None:
    """As of a node whose next block is half made: it gives that one's state for its newest."""
    blocks, asked = Blocks(10, SOME), Counter[str]()

    def once(method: str, _: list[Any], truth: Any) -> Any:
        asked[method] += 1
        is_first = method == "eth_call" and asked[method] == 1 + beside
        return truth[:-1] + "7" if is_first else truth

    async with (
        chain_of(blocks, Endpoint(once)) as chain,
        indexing(chain, tmp_path, 0) as index,
    ):
        given: list[str] = []
        while index.confirmed < 9:
            given += announced(await index.poll())
        assert given == all_of(blocks)


async def test_a_state_that_changes_at_every_look_is_no_state(tmp_path: Path) -> None:
    blocks, looks = Blocks(10, SOME), Counter[str]()

    def another(method: str, params: list[Any], truth: Any) -> Any:
        """Every first look at a block gives other heads than those behind it."""
        looks[method] += 1
        is_other = method == "eth_call" and looks[method] % 2 == 1
        return truth[:-1] + "7" if is_other else truth

    endpoint = Endpoint(another)
    async with chain_of(blocks, endpoint) as chain, indexing(chain, tmp_path, 0) as index:
        with pytest.raises(RpcUnavailable):
            await index.poll()
        endpoint.lie = honest
        assert announced(await index.poll()) == all_of(blocks)


async def test_what_another_state_was_believed_of_is_void_and_no_more_than_that(
    tmp_path: Path,
) -> None:
    """An endpoint with a state of its own is left for a true one: back to the last equal head."""
    blocks, endpoint = Blocks(10, {2: 1, 4: 1}), Endpoint()
    made_up = Blocks(10, {2: 1, 4: 1, 12: 1})
    async with chain_of(blocks, endpoint) as chain, indexing(chain, tmp_path, 0) as index:
        await index.poll()

        def of_its_own(method: str, params: list[Any], _: Any) -> Any:
            return made_up.answer(method, params, blocks.count - 1)

        endpoint.lie = of_its_own
        blocks.count = 15
        assert len(announced(await index.poll())) == 1
        endpoint.lie = honest
        blocks.count, blocks.announcements = 20, {2: 1, 4: 1, 18: 1}
        changes = [*await index.poll(), *await index.poll()]
        assert [change.to_block for change in changes if isinstance(change, Rewound)] == [9]
        assert announced(changes) == all_of(blocks)[2:]
        assert announced(index.history()) == all_of(blocks)


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
        if place < 2 and lie in AGREED_ON:  # the third is not asked
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


@pytest.mark.parametrize("lie", AGREED_ON)
@pytest.mark.parametrize("place", range(2))
async def test_where_too_few_agree_nothing_is_believed(
    lie: str, place: int, tmp_path: Path
) -> None:
    blocks = Blocks(20, {4: 2, 19: 1})
    endpoints = [Endpoint()]
    endpoints.insert(place, Endpoint(LIES[lie]))
    async with (
        chain_of(blocks, *endpoints, agreement=2) as chain,
        indexing(chain, tmp_path, 0) as index,
    ):
        told = r"1 of 2 RPC endpoints give the same (block \d+|heads .*), and rpc_agreement is 2"
        with pytest.raises(RpcUnavailable, match=told):
            await index.poll()
        assert index.confirmed == -1
        assert list(index.history()) == []


async def test_a_range_costs_the_same_however_many_blocks_it_has(tmp_path: Path) -> None:
    for count in (40, 400):
        blocks, endpoint = Blocks(count, SOME), Endpoint()
        async with (
            chain_of(blocks, endpoint) as chain,
            indexing(chain, tmp_path / str(count), 0) as index,
        ):
            await index.poll()
        of_events = {hex(number): 1 for number in SOME}  # whose time the logs do not say
        questions = {"eth_chainId": 1, "latest": 1, "eth_getLogs": 1, "eth_call": 1}
        assert endpoint.asked == Counter(questions | of_events)


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
    assert endpoints[0].asked["eth_call"] == endpoints[0].asked["eth_getBlockReceipts"] == 0


async def test_one_that_lags_is_passed_over_and_not_distrusted(tmp_path: Path) -> None:
    blocks, endpoints = Blocks(40, SOME), [Endpoint(), Endpoint(lag=3), Endpoint()]
    async with (
        chain_of(blocks, *endpoints, agreement=2) as chain,
        indexing(chain, tmp_path, 0) as index,
    ):
        assert announced(await index.poll()) == all_of(blocks)
        assert not any("gives another" in each.last_error for each in chain.provider._endpoints)
    assert endpoints[2].asked["eth_call"] > 0
