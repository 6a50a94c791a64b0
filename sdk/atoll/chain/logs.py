"""The logs of a range of blocks, known to be all there are.

`eth_getLogs` reads an index beside the chain, which lags behind blocks, is rebuilt, and answers
`[]` for what it does not have: an answer that nothing tells from "nothing happened". So it is held
against what cannot lag, the blocks themselves:

1. Every header of the range is read; each names the one before it, the first the block that the
   caller stands on. So the range is one piece of one chain.
2. A header's bloom has three bits for the address and three for each topic of every log (Yellow
   Paper 4.4.3). Where the bits of our contracts and events are missing, the block has none of our
   logs: proven. That is nearly every block, and nobody is asked for its logs. A bloom of no bit at
   all beside transactions proves nothing: some chains leave it empty.
3. A block that has our logs, or whose bloom says that it may (other logs can set the same bits),
   needs a second witness: another endpoint that gives the same logs for all that was asked, or the
   block's receipts, one for each transaction of its header, whose logs set every bit of its bloom.
   Receipts decide. A bloom that was only alike is settled by them like any other, so that it costs
   a question and never holds the index up. That two endpoints have nothing of a block is no
   witness where its bloom speaks of us: indexes lag together.

Receipts that leave something out are no answer: the next endpoint is asked, and if none has them,
`RpcUnavailable` says so and the caller waits. Transactions of the chain itself may have none: where
the others set every bit of the bloom, nothing is excluded. Where no endpoint serves `eth_getLogs`,
receipts alone tell.

What came of a range that could not be read to its end is kept, and asked for no second time. Of
logs no more blocks are asked for at once than were answered before.

All of this finds what an endpoint fails to say, not what it makes up. Headers can have blooms of
their own behind true hashes; receipts can have logs of strangers, made up to set the bits of one
that is excluded, and need none where other logs of ours set the same. So where an agreement of n
is asked for, n endpoints have to give alike every header of the range, with its bloom and its
transactions, the logs that two have to give else, and what is ours in a block's receipts
(`atoll.chain.agreement`). Fewer than n liars hide nothing then, and make nothing up. Who must not
trust any asks a node of his own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import structlog
from eth_utils.crypto import keccak

from atoll.chain.agreement import Agreement
from atoll.chain.decode import RawLog, event_topics
from atoll.chain.lagging import HeadGrowth, pass_over_lagging
from atoll.chain.replies import Read
from atoll.chain.response_checks import (
    BlockHeader,
    TxReceipt,
    block_receipts,
    header,
    header_at,
    mined_receipt,
    optional,
    raw_logs,
)
from atoll.chain.rpc import FailoverProvider, TooMuchAsked
from atoll.errors import RpcUnavailable
from atoll.protocol.types import Address, Digest

log = structlog.get_logger("atoll.chain.logs")

T = TypeVar("T")
U = TypeVar("U")
PARALLEL = 16
"""Questions about single blocks that are asked at once."""
WITNESSES = 4
"""Receipts of whole blocks that are asked for at once: those of a full one take memory until they
are read.
"""
MOST_KEPT = 4096
"""Headers of ranges that could not be read to their end."""
KEPT_HEADERS = 64
"""Of blocks seen as the newest: the confirmations of most chains, and the polls between."""
LOOKS = 3
"""How often one block is asked for: behind one URL may stand nodes that are not equally far."""


def bloom_of(items: Iterable[bytes]) -> int:
    """The 2048 bits that logs with these addresses and topics set (Yellow Paper 4.4.3)."""
    bloom = 0
    for item in set(items):
        bloom |= _bits_of(item)
    return bloom


def _bits_of(item: bytes) -> int:
    digest = keccak(item)
    places = (int.from_bytes(digest[at : at + 2], "big") & 0x7FF for at in (0, 2, 4))
    bits = 0
    for place in places:
        bits |= 1 << place
    return bits


class Ask(Protocol):
    """Asks for one thing: any endpoint, or one of them. Raises RpcUnavailable."""

    async def __call__(self, method: str, params: Sequence[Any], read: Read[T]) -> T: ...


class LogReader:
    """Reads the logs of some contracts.

    Args:
        agreement: endpoints that have to give a block alike, and what is ours in it.

    Attributes:
        excluded: logs that `eth_getLogs` did not have and the blocks' receipts did.
    """

    def __init__(
        self, provider: FailoverProvider, contracts: Collection[Address], agreement: int = 1
    ) -> None:
        self._provider = provider
        self._least = agreement
        self._agreement = Agreement(provider, agreement) if agreement > 1 else None
        self._contracts = tuple(contracts)
        self._topics = frozenset(event_topics())
        self._contract_bits = [_bits_of(bytes.fromhex(a.removeprefix("0x"))) for a in contracts]
        self._topic_bits = [_bits_of(topic) for topic in self._topics]
        self.excluded = 0
        self._newest: BlockHeader | None = None
        self._newest_at = 0.0
        self._growth = HeadGrowth()
        self._seen: dict[Digest, BlockHeader] = {}
        self._came: dict[int, BlockHeader] = {}
        self._blocks_at_once = 1 << 62  # of logs, as far as endpoints have said

    async def header(self, number: int) -> BlockHeader | None:
        """The block of that height, or None where the chain does not reach up to it.

        Nobody is asked for a block that the newest one names, parent by parent, and that was the
        newest itself when it was seen: who follows a chain has nearly all of them.

        Null is believed of an endpoint only whose newest block is lower: what it knows of the chain
        then fits together.

        Raises:
            RpcUnavailable: no endpoint answers, each contradicts itself, or too few agree.
        """

        return self._named(number) or await self._ask(number)

    def _named(self, number: int) -> BlockHeader | None:
        """The block of that height which the newest names, if every one between was seen."""
        found = self._newest
        while found is not None and found.ref.number > number:
            parent = self._seen.get(found.parent)
            # Blocks of an endpoint that makes them up may name one another in a circle.
            is_below = parent is not None and parent.ref.number < found.ref.number
            found = parent if is_below else None
        return found if found is not None and found.ref.number == number else None

    async def _ask(self, number: int) -> BlockHeader | None:
        if self._agreement is not None:
            return await self._ask_for_agreed(self._agreement, number)
        for _ in range(LOOKS):
            question = ("eth_getBlockByNumber", [hex(number), False])
            found = await self._provider.ask(*question, optional(header_at(number)))
            if found is not None or (await self.newest()).ref.number < number:
                return found
        raise RpcUnavailable(
            f"the RPC endpoint says that it has no block {number}, and has later ones",
            next_step="use another RPC endpoint: this one has dropped old blocks, or answers from "
            "nodes that disagree",
        )

    async def _ask_for_agreed(self, agreement: Agreement, number: int) -> BlockHeader | None:
        for _ in range(LOOKS):
            try:
                return await agreement.block(number)
            except RpcUnavailable as error:
                failure = error
            if (await self.newest()).ref.number < number:
                return None
        raise failure

    async def newest(self, within: float = 0.0) -> BlockHeader:
        """The newest block, as it was at most `within` seconds ago. Raises RpcUnavailable.

        Of an endpoint that is behind another one, it is the other's.
        """
        if self._newest is not None and time.monotonic() - self._newest_at < within:
            return self._newest
        asked_at = time.monotonic()
        if self._agreement is not None:
            found = await self._agreement.newest()
        else:
            found = await self._growing(asked_at)
        self._remember(found, asked_at)
        return found

    async def _growing(self, asked_at: float) -> BlockHeader:
        """The newest block of the first endpoint that is not behind others."""
        found = await self._latest()
        if self._growth.is_doubtful(found.ref, asked_at):
            if await pass_over_lagging(self._provider, found.ref):
                found = await self._latest()
            self._growth.note(found.ref, asked_at)
        return found

    def _remember(self, newest: BlockHeader, asked_at: float) -> None:
        self._newest, self._newest_at = newest, asked_at
        self._seen[newest.ref.hash] = newest
        if len(self._seen) > KEPT_HEADERS:
            del self._seen[next(iter(self._seen))]

    async def _latest(self) -> BlockHeader:
        return await self._provider.ask("eth_getBlockByNumber", ["latest", False], header)

    async def read(
        self, first: int, last: int, parent: Digest | None
    ) -> tuple[list[BlockHeader], list[RawLog]] | None:
        """Headers and logs of the blocks first…last; None where the chain turned in the meantime.

        Args:
            parent: hash of the block before `first`, where the caller knows it.

        Raises:
            RpcUnavailable: no endpoint answers, or none has what the headers promise.
        """
        headers = await self._headers(first, last, parent)
        asked = [at for at, block in enumerate(headers or ()) if not self._has_none(block)]
        logs: list[RawLog] | None = []
        if headers is not None and asked:
            logs = await self._logs_of(headers[asked[0] : asked[-1] + 1])
        if headers is None or logs is None:
            self._came.clear()  # some of it may be of the branch that was left
            return None
        for number in range(first, last + 1):
            self._came.pop(number, None)
        return headers, logs

    async def _logs_of(self, headers: Sequence[BlockHeader]) -> list[RawLog] | None:
        """The logs of blocks that follow one another; None where the chain turned meanwhile.

        Raises RpcUnavailable.
        """
        first, last = headers[0].ref.number, headers[-1].ref.number
        hashes = {item.ref.number: bytes(item.ref.hash) for item in headers}

        def in_range(value: Any) -> list[RawLog]:
            found = raw_logs(value)
            if any(raw.block_number not in hashes or not self._is_ours(raw) for raw in found):
                raise ValueError("logs that were not asked for")
            return found

        witnesses = max(2, self._least)
        told = await self._told(witnesses, range(first, last + 1), in_range)
        strange = any(hashes[raw.block_number] != raw.block_hash for raw in next(iter(told), ()))
        if strange and await self._turned(headers):
            return None
        named = {raw.block_number for answer in told for raw in answer}
        if self._agreement is not None:  # what so many headers exclude, one endpoint does not name
            named -= {item.ref.number for item in headers if self._has_none(item)}
        is_agreed = len(told) == witnesses and all(answer == told[0] for answer in told)
        agreed = told[0] if is_agreed and not strange else []
        sure = {raw.block_number for raw in agreed}
        doubtful = [
            h
            for h in headers
            if h.ref.number not in sure
            and (h.ref.number in named or self.may_hold(h.bloom) or not (told or self._has_none(h)))
        ]
        try:
            witnessed = await _each(doubtful, self._witnessed, max(1, WITNESSES // self._least))
        except RpcUnavailable:
            if await self._turned(headers):
                return None
            raise
        logs = sorted(
            (raw for block in (agreed, *witnessed) for raw in block),
            key=lambda raw: (raw.block_number, raw.index),
        )
        missing = len(set(logs) - set(told[0])) if told else 0
        if missing:
            self.excluded += missing
            log.warning("eth_getLogs left logs out", first=first, last=last, logs=missing)
        return logs

    async def _told(
        self, witnesses: int, blocks: range, read: Read[list[RawLog]]
    ) -> list[list[RawLog]]:
        """What endpoints say of blocks, in as few questions as they answer; nothing if none does.

        How many blocks are too many is remembered.
        """
        pieces: list[list[list[RawLog]]] = []
        while blocks:
            asked = blocks[: self._blocks_at_once]
            question = [self._query(asked[0], asked[-1])]
            try:
                said = await self._provider.ask_several(witnesses, "eth_getLogs", question, read)
            except TooMuchAsked as error:
                if len(asked) == 1:
                    return []
                self._blocks_at_once = len(asked) // 2
                log.info("fewer blocks at once", blocks=self._blocks_at_once, cause=str(error))
            except RpcUnavailable:
                return []
            else:
                pieces.append(said)
                blocks = blocks[len(asked) :]
        tellers = range(min(map(len, pieces)))
        return [[raw for piece in pieces for raw in piece[at]] for at in tellers]

    async def _turned(self, headers: Sequence[BlockHeader]) -> bool:
        """Whether the chain no longer has the last of these blocks."""
        end = await self._ask(headers[-1].ref.number)
        return end is None or end.ref != headers[-1].ref

    def _has_none(self, block: BlockHeader) -> bool:
        """Whether its header proves that it has none of our logs."""
        return not block.transactions or (block.bloom != 0 and not self.may_hold(block.bloom))

    def may_hold(self, bloom: int) -> bool:
        """Whether a block with this bloom may have one of our logs."""
        has_contract = any(bits & ~bloom == 0 for bits in self._contract_bits)
        return has_contract and any(bits & ~bloom == 0 for bits in self._topic_bits)

    async def _headers(
        self, first: int, last: int, parent: Digest | None
    ) -> list[BlockHeader] | None:
        async def one(number: int) -> BlockHeader | None:
            found = self._came.get(number)
            if found is None or number == last:  # which shows that the others still stand
                found = await self.header(number)
                if found is not None:
                    self._came[number] = found
            return found

        if len(self._came) > MOST_KEPT:
            self._came.clear()
        found = await _each(range(first, last + 1), one)
        headers = [item for item in found if item is not None]
        if len(headers) != len(found):
            return None
        parents = [parent, *(item.ref.hash for item in headers)]
        linked = (
            before in (None, item.parent) for before, item in zip(parents, headers, strict=False)
        )
        return headers if all(linked) else None

    def _query(self, first: int, last: int) -> dict[str, Any]:
        return {
            "fromBlock": hex(first),
            "toBlock": hex(last),
            "address": list(self._contracts),
            "topics": [[f"0x{topic.hex()}" for topic in sorted(self._topics)]],
        }

    def _is_ours(self, raw: RawLog) -> bool:
        return raw.address in self._contracts and self._topics.issuperset(raw.topics[:1])

    async def _witnessed(self, block: BlockHeader) -> Sequence[RawLog]:
        """Our logs of one block, from its receipts; as so many endpoints give them alike."""
        if not block.transactions:
            return ()  # what sets a bloom without a transaction is no contract of ours
        if self._agreement is None:
            return await self._in_receipts(block, self._provider.ask)

        async def of_one(url: str) -> tuple[RawLog, ...]:
            async def ask(method: str, params: Sequence[Any], read: Read[T]) -> T:
                return await self._provider.ask_at(url, method, params, read)

            return await self._in_receipts(block, ask)

        return await self._agreement.alike(of_one, f"receipts of block {block.ref.number}")

    async def _in_receipts(self, block: BlockHeader, ask: Ask) -> tuple[RawLog, ...]:
        of_tx = {item.tx_hash: item.logs for item in await _receipts(block, ask)}
        sent = (tx_hash for tx_hash in block.transactions if tx_hash in of_tx)
        everyone_s = ((tx_hash, raw) for tx_hash in sent for raw in of_tx[tx_hash])
        # A log's place is its number in the block; Ganache counts each receipt's anew.
        placed = enumerate(everyone_s)
        return tuple(
            replace(
                raw,
                block_number=block.ref.number,
                block_hash=bytes(block.ref.hash),
                transaction=bytes.fromhex(tx_hash.removeprefix("0x")),
                index=index,
            )
            for index, (tx_hash, raw) in placed
            if self._is_ours(raw)
        )


async def _receipts(block: BlockHeader, ask: Ask) -> list[TxReceipt]:
    """Those of all its transactions. Raises RpcUnavailable."""

    without = set[str]()  # a transaction of the chain itself may have no receipt

    async def one(tx_hash: str) -> TxReceipt | None:
        def read(value: Any) -> TxReceipt:
            without.update([tx_hash] if value is None else [])
            return mined_receipt(value)

        try:
            return await ask("eth_getTransactionReceipt", [tx_hash], read)
        except RpcUnavailable:
            if tx_hash not in without:
                raise
            return None

    def whole(value: Any) -> list[TxReceipt]:
        return _all_of(block, block_receipts(value))

    try:
        return await ask("eth_getBlockReceipts", [hex(block.ref.number)], whole)
    except RpcUnavailable:
        # Ganache, among others, gives them one by one.
        each = await _each(block.transactions, one)
        found = [item for item in each if item is not None]
        try:
            return await asyncio.to_thread(_all_of, block, found)
        except ValueError as error:
            raise RpcUnavailable(
                f"no RPC endpoint has the receipts of block {block.ref.number}: {error}",
                next_step="wait, or use another RPC endpoint",
            ) from error


def _all_of(block: BlockHeader, receipts: list[TxReceipt]) -> list[TxReceipt]:
    """The same receipts, if they leave nothing of the block out. Raises ValueError."""
    if any(item.block_hash != bytes(block.ref.hash) for item in receipts):
        raise ValueError("receipts of another block")
    is_whole = {item.tx_hash for item in receipts} >= set(block.transactions)
    if not is_whole and not block.bloom:
        raise ValueError(f"{len(receipts)} receipts of {len(block.transactions)} transactions")
    logs = [raw for item in receipts for raw in item.logs]
    made = bloom_of(item for raw in logs for item in (bytes.fromhex(raw.address[2:]), *raw.topics))
    if block.bloom & ~made:
        raise ValueError("receipts without some of the block's logs")
    return receipts


async def _each(
    items: Sequence[U], ask: Callable[[U], Awaitable[T]], at_once: int = PARALLEL
) -> list[T]:
    """Asks about every item, some at once; the answers in order. The first error ends the rest."""
    gate = asyncio.Semaphore(at_once)

    async def one(item: U) -> T:
        async with gate:
            return await ask(item)

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
