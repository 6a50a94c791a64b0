"""A long history holds nobody up who starts: it is read with the first look at the chain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from tests.unit.chain.test_index import CONFIRMATIONS, DEPLOYMENT, Node

from atoll.chain import index as index_module
from atoll.chain import log_store
from atoll.chain.contracts import AtollChain
from atoll.chain.decode import RawLog
from atoll.chain.index import EventIndex
from atoll.chain.indexed import Indexed
from atoll.chain.logs import LogReader
from atoll.chain.rpc import FailoverProvider
from atoll.errors import UndecodableLog
from atoll.protocol.events import ContractEvent

URLS = [f"http://{number}" for number in range(7)]
Decode = Callable[[RawLog], ContractEvent | None]


def opened(node: Node, path: Path) -> EventIndex:
    chain = AtollChain("http://127.0.0.1:1", DEPLOYMENT)
    chain.events = LogReader(cast(FailoverProvider, node), DEPLOYMENT.addresses)
    return EventIndex(chain, confirmations=CONFIRMATIONS, path=path / "index")


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    """A chain whose events are on disk."""
    node = Node(21)
    for number, url in enumerate(URLS):
        node.announce(number + 1, 0, url)
    index = opened(node, tmp_path)
    await index.poll()
    index.close()
    return node


def noted(monkeypatch: pytest.MonkeyPatch, decode: Decode) -> list[RawLog]:
    seen: list[RawLog] = []

    def note(raw: RawLog) -> ContractEvent | None:
        seen.append(raw)
        return decode(raw)

    monkeypatch.setattr(index_module, "decode_log", note)
    return seen


def undecodable(_: RawLog) -> ContractEvent | None:
    raise UndecodableLog("no event")


@pytest.mark.parametrize("decode", [index_module.decode_log, undecodable])
async def test_it_is_decoded_in_pieces_and_not_before(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decode: Decode
) -> None:
    monkeypatch.setattr(log_store, "PAGE", 3)
    decoded = noted(monkeypatch, decode)
    index = opened(node, tmp_path)
    assert decoded == []
    poll = asyncio.create_task(index.poll())
    for so_far in (3, 6, 7):
        await asyncio.sleep(0)
        assert len(decoded) == so_far
    await poll
    index.close()


async def test_who_stops_while_it_is_read_is_told_all_of_it_later_and_once(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_store, "PAGE", 3)
    index = opened(node, tmp_path)
    poll = asyncio.create_task(index.poll())
    await asyncio.sleep(0)
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll
    told = [each for each in await index.poll() if isinstance(each, Indexed)]
    assert told == list(index.history()) and len(told) == len(URLS)
    assert await index.poll() == []
    index.close()
