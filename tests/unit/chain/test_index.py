"""A chain that turned is told from an endpoint that lags; what was read is read again in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.identities import DOMAIN, address
from tests.unit.chain import heads
from tests.unit.chain.test_log_decode import log_of

from atoll.chain import log_store
from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.index import EventIndex, Rewound
from atoll.chain.indexed import Indexed
from atoll.chain.logs import LogReader
from atoll.chain.rpc import FailoverProvider
from atoll.protocol.events import GatewayAnnounced

DEPLOYMENT = Deployment(DOMAIN.chain_id, 0, {"Rounds": DOMAIN.rounds, "Config": heads.CONFIG})
CONFIRMATIONS = 2


class Node:
    """Blocks, of which a test names how many are known at each question."""

    urls = ("http://one.example.org",)

    def __init__(self, blocks: int) -> None:
        self.hashes = [f"0x{number:064x}" for number in range(1, blocks + 1)]
        self.logs: list[dict[str, Any]] = []
        self.reaches: Callable[[str], int] = lambda _: len(self.hashes) - 1

    def turn(self, to_block: int, blocks: int) -> None:
        """Has other ones behind a block."""
        others = (f"0x{number:064x}" for number in range(1001, 1001 + blocks))
        self.hashes[to_block + 1 :] = others

    async def ask(self, method: str, params: list[Any], read: Callable[[Any], Any]) -> Any:
        if method == "eth_call":
            return read(self._heads(params[0], self.hashes.index(params[1]["blockHash"])))
        last = self.reaches(params[0])
        number = last if params[0] == "latest" else int(params[0], 16)
        return read(self._block(number) if number <= last else None)

    async def ask_several(
        self, count: int, _: str, params: list[Any], read: Callable[[Any], Any]
    ) -> list[Any]:
        first, last = (int(params[0][name], 16) for name in ("fromBlock", "toBlock"))
        some = [log for log in self.logs if first <= int(log["blockNumber"], 16) <= last]
        return [read(some)] * count

    def _heads(self, call: dict[str, Any], number: int) -> str:
        logs = (heads.timed(log, int(log["blockNumber"], 16)) for log in self.logs)
        ours = sorted(logs, key=lambda raw: (raw.block_number, raw.index))
        return heads.answer(call, (raw for raw in ours if raw.block_number <= number))

    def announce(self, block: int, index: int, url: str) -> None:
        """Puts an event into a block."""
        raw = log_of(GatewayAnnounced(address("a member"), url))
        self.logs.append(
            {
                "address": DOMAIN.rounds,
                "topics": [f"0x{topic.hex()}" for topic in raw.topics],
                "data": f"0x{raw.data.hex()}",
                "blockNumber": hex(block),
                "blockHash": self.hashes[block],
                "logIndex": hex(index),
                "transactionHash": f"0x{index:064x}",
            }
        )

    def _block(self, number: int) -> dict[str, Any]:
        return {
            "number": hex(number),
            "hash": self.hashes[number],
            "parentHash": self.hashes[number - 1] if number else f"0x{0:064x}",
            "timestamp": hex(number),
            "transactions": self._transactions(number),
            "baseFeePerGas": "0x0",
        }

    def _transactions(self, number: int) -> list[str]:
        of_block = (log for log in self.logs if log["blockNumber"] == hex(number))
        return list(dict.fromkeys(log["transactionHash"] for log in of_block))


@pytest.fixture
def node() -> Node:
    return Node(21)


@pytest.fixture
def index(node: Node, tmp_path: Path) -> Iterator[EventIndex]:
    chain = AtollChain("http://127.0.0.1:1", DEPLOYMENT)
    chain.events = LogReader(cast(FailoverProvider, node), DEPLOYMENT.addresses)
    opened = EventIndex(chain, confirmations=CONFIRMATIONS, path=tmp_path / "index")
    yield opened
    opened.close()


async def follow(index: EventIndex, node: Node, first: int, last: int) -> None:
    """Polls at each of these heights."""
    for height in range(first, last + 1):
        node.reaches = lambda _, height=height: height  # type: ignore[misc]
        await index.poll()
    assert index.confirmed == last - CONFIRMATIONS


@pytest.mark.parametrize("lag", [3, 4, 19, 20])
@pytest.mark.parametrize("first", [5, 20])
async def test_a_node_that_is_behind_changes_nothing(
    index: EventIndex, node: Node, first: int, lag: int
) -> None:
    await follow(index, node, first, 20)
    node.reaches = lambda _: 20 - lag
    assert await index.poll() == []
    assert index.confirmed == 18
    node.reaches = lambda _: 20
    assert await index.poll() == []


async def test_one_behind_the_url_that_named_the_newest_block_does_not_either(
    index: EventIndex, node: Node
) -> None:
    """Nor where it is asked first for a block that the newest one does not lead to."""
    await follow(index, node, 18, 18)
    answers = iter([20])
    node.reaches = lambda _: next(answers, 12)
    assert await index.poll() == []
    assert index.confirmed == 16
    node.reaches = lambda _: 20
    (head,) = await index.poll()
    assert not isinstance(head, Rewound)
    assert index.confirmed == 18


@pytest.mark.parametrize("first", [5, 20])
async def test_a_chain_that_turned_and_is_shorter_is_seen_by_a_block_that_was_read(
    index: EventIndex, node: Node, first: int
) -> None:
    await follow(index, node, first, 20)
    node.turn(to_block=10, blocks=2)
    node.reaches = lambda _: 12
    found = [change for change in await index.poll() if isinstance(change, Rewound)]
    assert [each.to_block for each in found] == ([10] if first == 5 else [])


@pytest.mark.parametrize("first", [5, 20])
async def test_at_the_latest_it_is_seen_when_it_is_as_long_again(
    index: EventIndex, node: Node, first: int
) -> None:
    await follow(index, node, first, 20)
    node.turn(to_block=10, blocks=8)
    node.reaches = lambda _: 10
    assert await index.poll() == []
    node.reaches = lambda _: 18
    changes = await index.poll()
    assert isinstance(changes[0], Rewound) and changes[0].to_block <= 10
    assert index.confirmed == 16


@pytest.mark.parametrize("page", [1, 2, 3, 4, 7, 8])
async def test_the_history_is_every_event_once_and_in_order_however_much_is_read_at_once(
    index: EventIndex, node: Node, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(log_store, "PAGE", page)
    places = [(3, 0), (4, 5), (4, 1), (4, 2), (9, 0), (11, 7), (10, 9)]
    for block, at in places:
        node.announce(block, at, f"http://{block}:{at}")
    given = [change for change in await index.poll() if isinstance(change, Indexed)]
    assert [(item.block.number, item.log_index) for item in given] == sorted(places)
    history = index.history()
    assert list(history) == given
    assert list(history) == given
