"""Which blocks a reader asks for, and which it knows from those that came after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from atoll.chain.headers import KEPT_HEADERS, HeaderReader
from atoll.chain.response_checks import BlockHeader
from atoll.chain.rpc import FailoverProvider


class OneChain:
    """Answers for blocks from a list, and notes which were asked for."""

    urls = ("http://one.example.org",)

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self.asked: list[str] = []

    def grow(self, name: int) -> None:
        parent = self.blocks[-1]["hash"] if self.blocks else f"0x{0:064x}"
        self.blocks.append(
            {
                "number": hex(len(self.blocks)),
                "hash": f"0x{name:064x}",
                "parentHash": parent,
                "timestamp": "0x1",
                "transactions": [],
                "baseFeePerGas": "0x0",
            }
        )

    async def ask(self, _: str, params: list[Any], read: Callable[[Any], Any]) -> Any:
        self.asked.append(params[0])
        number = len(self.blocks) - 1 if params[0] == "latest" else int(params[0], 16)
        return read(self.blocks[number] if number < len(self.blocks) else None)


@pytest.fixture
def chain() -> OneChain:
    return OneChain()


@pytest.fixture
def reader(chain: OneChain) -> HeaderReader:
    return HeaderReader(cast(FailoverProvider, chain))


async def follow(chain: OneChain, reader: HeaderReader, names: range) -> None:
    for name in names:
        chain.grow(name)
        await reader.newest()
    chain.asked.clear()


def names(headers: list[BlockHeader | None]) -> list[int | None]:
    return [None if h is None else int.from_bytes(h.ref.hash, "big") for h in headers]


async def test_a_block_that_was_seen_as_the_newest_is_not_asked_for(
    chain: OneChain, reader: HeaderReader
) -> None:
    await follow(chain, reader, range(100, 105))
    assert names([await reader.header(n) for n in range(5)]) == [100, 101, 102, 103, 104]
    assert chain.asked == []


async def test_one_that_was_missed_is_and_so_are_those_below_it(
    chain: OneChain, reader: HeaderReader
) -> None:
    await follow(chain, reader, range(100, 103))
    chain.grow(103)  # nobody looked
    await follow(chain, reader, range(104, 105))
    assert names([await reader.header(n) for n in (4, 3, 2)]) == [104, 103, 102]
    assert chain.asked == ["0x3", "0x2"]


async def test_a_chain_that_turned_has_other_blocks(chain: OneChain, reader: HeaderReader) -> None:
    await follow(chain, reader, range(100, 105))
    del chain.blocks[3:]
    chain.grow(203)
    await follow(chain, reader, range(204, 206))
    assert names([await reader.header(n) for n in (2, 3, 4, 5)]) == [102, 203, 204, 205]
    assert chain.asked == ["0x2", "0x3"]


async def test_the_newest_is_asked_for_anew_unless_it_may_be_older(
    chain: OneChain, reader: HeaderReader
) -> None:
    await follow(chain, reader, range(100, 101))
    chain.grow(101)
    assert names([await reader.newest(within=3600), await reader.newest()]) == [100, 101]
    assert chain.asked == ["latest"]


async def test_so_many_are_kept_and_no_more(chain: OneChain, reader: HeaderReader) -> None:
    await follow(chain, reader, range(100, 100 + KEPT_HEADERS + 5))
    assert names([await reader.header(5), await reader.header(4)]) == [105, 104]
    assert chain.asked == ["0x4"]


@pytest.mark.parametrize("parents", [{4: 104}, {4: 103, 3: 104}, {3: 103}])
async def test_blocks_that_name_one_another_in_a_circle_are_asked_for(
    chain: OneChain, reader: HeaderReader, parents: dict[int, int]
) -> None:
    """As of an endpoint that makes them up: a walk along them would hold the process for ever."""
    for name in range(100, 105):
        chain.grow(name)
    for number, parent in parents.items():
        chain.blocks[number]["parentHash"] = f"0x{parent:064x}"
    whole = chain.blocks
    for length in range(1, 6):
        chain.blocks = whole[:length]
        await reader.newest()
    chain.asked.clear()
    assert names([await reader.header(2)]) == [102]
    assert chain.asked == ["0x2"]
