"""The logs of a range of blocks, and the words of state that they are held against.

`eth_getLogs` reads an index beside the chain, which lags behind blocks, is rebuilt, and answers
`[]` for what it does not have: an answer that nothing tells from "nothing happened". What cannot
lag is the state of a block, and there each of our contracts keeps a count and a hash of its logs
(`atoll.chain.log_heads`). So:

1. A range costs one question, to two endpoints where there are two, however much strangers write
   into its blocks. What one has and the other lacks is taken: the state decides.
2. One question at the hash of a block (EIP-1898) gives the words of all logs that are asked for.
   `atoll.chain.index` compares them with its fold.
3. Only where they differ a block's receipts are read, of the first block that differs.

Where an agreement of n is asked for, n endpoints have to give a block and its words alike; logs and
receipts are held against these, so that nobody has to agree on them. Fewer than n liars hide
nothing then, and make nothing up. Where one is asked, it is noticed what it hides or loses, and not
what it makes up in a state of its own. Who must not trust any asks a node of his own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from eth_abi.abi import decode as abi_decode
from eth_abi.abi import encode as abi_encode

from atoll.chain.abi import registry
from atoll.chain.decode import RawLog, event_topics
from atoll.chain.headers import HeaderReader
from atoll.chain.log_heads import (
    EMPTY,
    NO_JOB,
    HeadFold,
    Heads,
    LogKey,
    behind_of,
    emitters,
    key_of,
    topics_of,
)
from atoll.chain.response_checks import (
    BlockHeader,
    TxReceipt,
    block_receipts,
    data,
    mined_receipt,
    raw_logs,
)
from atoll.chain.rpc import FailoverProvider, TooMuchAsked
from atoll.chain.verdicts import RpcRefused
from atoll.errors import RpcUnavailable
from atoll.protocol.types import Address, BlockRef, Digest

log = structlog.get_logger("atoll.chain.logs")

T = TypeVar("T")
U = TypeVar("U")
PARALLEL: Final = 16
"""Questions about single blocks that are asked at once."""
WITNESSES: Final = 2
"""Endpoints that are asked for the same logs, where there are so many."""
FEW_BLOCKS: Final = 32
"""Of so few, a range that no endpoint gives the logs of goes to receipts; of more, the caller asks
for fewer first.
"""
JOBS_AT_ONCE: Final = 128
"""Whose words are asked for in one question."""


class ChainTurned(RpcUnavailable):
    """A block that was looked at is not the chain's any more."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """What a range of blocks has.

    Attributes:
        last: its last block.
        logs: of ours, in chain order, each with the time of its block.
    """

    last: BlockRef
    logs: tuple[RawLog, ...]


class LogReader(HeaderReader):
    """Reads the logs of some contracts, and their words.

    Args:
        contracts: of the deployment, by name.
        agreement: endpoints that have to give a block and its words alike.

    Attributes:
        contracts: those whose logs are read.
        behind: first topics of logs that take another contract's head in, each with that contract.
        excluded: logs that `eth_getLogs` did not have and the blocks' receipts did.
    """

    def __init__(
        self, provider: FailoverProvider, contracts: Mapping[str, Address], agreement: int = 1
    ) -> None:
        super().__init__(provider, agreement)
        self.contracts = emitters(contracts)
        self.behind = behind_of(contracts)
        self._config = contracts.get("Config")
        self._topics = frozenset(event_topics())
        self.excluded = 0
        self._blocks_at_once = 1 << 62  # as far as endpoints have said
        self._asks_by_hash = True

    async def read(self, first: int, last: int, parent: Digest | None) -> LogRange | None:
        """The blocks first…last; None where the chain turned in the meantime.

        Args:
            parent: hash of the block before `first`, where the caller knows it.

        Raises:
            RpcUnavailable: no endpoint answers.
        """
        end = await self.header(last)
        begin = end if first == last or parent is None else await self.header(first)
        if end is None or begin is None or (parent is not None and begin.parent != parent):
            return None
        logs_of_range = await self._logs(range(first, last + 1))
        times = {last: end.ref.timestamp, begin.ref.number: begin.ref.timestamp}
        logs = await self._timed(logs_of_range, times)
        if any(raw.block_number == last and raw.block_hash != end.ref.hash for raw in logs):
            again = await self._ask(last)
            if again is None or again.ref != end.ref:
                return None
        return None if logs is None else LogRange(end.ref, tuple(logs))

    async def proven(self, first: int, last: int, *, begins: int) -> LogRange | None:
        """As `read`, and held against the state before and behind these blocks.

        Args:
            begins: the block before which none of the contracts has logged anything; up to it some
                may not be there, and cannot be asked.
        Raises:
            RpcUnavailable: no endpoint has logs, or receipts, that are as the state says.
        """
        answered, before = await self.read(first, last, None), dict[LogKey, bytes]()
        if answered is None:
            return None
        jobs = sorted({NO_JOB, *(key_of(raw).job for raw in answered.logs)})
        if first > begins:
            below = await self.header(first - 1)
            if below is None:
                return None
            before = await self.heads(below.ref, jobs)
        behind = await self.heads(answered.last, jobs)
        if self._leads(before, answered.logs, behind):
            return answered
        each = await each_of(range(first, last + 1), self.in_receipts, WITNESSES)
        logs = tuple(raw for of_block in each for raw in of_block)
        self.note_missing(len(set(logs) - set(answered.logs)), range(first, last + 1))
        if not self._leads(before, logs, behind):
            raise RpcUnavailable(
                f"no RPC endpoint has all logs of the blocks {first} to {last}",
                next_step="use another RPC endpoint",
            )
        return replace(answered, logs=logs)

    def _leads(self, before: Heads, logs: Sequence[RawLog], behind: Heads) -> bool:
        """Whether these logs make of the former heads the latter."""
        fold = HeadFold(self.behind, before)
        fold.fold_all(logs)
        return all(fold.heads.get(key, EMPTY) == head for key, head in behind.items())

    async def _logs(self, blocks: range) -> list[RawLog]:
        """What endpoints have of ours in these blocks, in as few questions as they answer.

        How many blocks are too many is remembered. Raises RpcUnavailable.
        """

        def in_blocks(value: Any) -> list[RawLog]:
            answered = raw_logs(value)
            if any(raw.block_number not in asked or not self.is_ours(raw) for raw in answered):
                raise ValueError("logs that were not asked for")
            return answered

        logs: dict[tuple[int, int], RawLog] = {}
        while blocks:
            asked = blocks[: self._blocks_at_once]
            question = [self._query(asked[0], asked[-1])]
            try:
                answers = await self._provider.ask_several(
                    WITNESSES, "eth_getLogs", question, in_blocks
                )
            except TooMuchAsked as error:
                if len(asked) == 1:
                    return []
                self._blocks_at_once = len(asked) // 2
                log.info("fewer blocks at once", blocks=self._blocks_at_once, cause=str(error))
                continue
            except RpcUnavailable:
                if len(asked) > FEW_BLOCKS:
                    raise
                answers = []
            some: dict[tuple[int, int], RawLog] = {}
            for answer in reversed(answers):
                some |= {(raw.block_number, raw.index): raw for raw in answer}
            self.note_missing(len(some) - len(answers[0]) if answers else 0, asked)
            logs |= some
            blocks = blocks[len(asked) :]
        return [logs[place] for place in sorted(logs)]

    async def announcing(self, first: int, last: int) -> list[RawLog]:
        """Announcements of gateways in these blocks, as an endpoint tells them: hints, unchecked.

        Raises:
            RpcUnavailable: none answers, or not of so many blocks.
        """
        names = topics_of(frozenset({"GatewayAnnounced"}))
        topics = [f"0x{topic.hex()}" for topic in sorted(names)]
        question = [{**self._query(first, last), "topics": [topics]}]
        logs = await self._provider.ask("eth_getLogs", question, raw_logs)
        return [raw for raw in logs if self.is_ours(raw) and raw.topics[0] in names]

    def note_missing(self, count: int, blocks: range) -> None:
        """So many logs of these blocks were not in what the first endpoint gave."""
        if count > 0:
            self.excluded += count
            log.warning("eth_getLogs left logs out", first=blocks[0], last=blocks[-1], logs=count)

    async def _timed(self, logs: Sequence[RawLog], times: dict[int, int]) -> list[RawLog]:
        """The same, with their blocks' times: the node's, else those of the blocks themselves.

        A block that a turn took away meanwhile has none, nor its logs.
        """
        times |= {raw.block_number: raw.timestamp for raw in logs if raw.timestamp is not None}
        lacking = sorted({raw.block_number for raw in logs} - times.keys())
        for header in await each_of(lacking, self.header):
            times |= {} if header is None else {header.ref.number: header.ref.timestamp}
        known = (raw for raw in logs if raw.block_number in times)
        return [replace(raw, timestamp=times[raw.block_number]) for raw in known]

    async def heads(self, block: BlockRef, jobs: Sequence[int]) -> dict[LogKey, bytes]:
        """The words of these jobs' logs in every contract, as of the end of that block.

        Raises:
            ChainTurned: the chain has another block in its place.
            RpcUnavailable: no endpoint has its state.
        """
        heads: dict[LogKey, bytes] = {}
        for at in range(0, len(jobs), JOBS_AT_ONCE):
            some = list(jobs[at : at + JOBS_AT_ONCE])
            keys = [LogKey(job, contract) for job in some for contract in self.contracts]
            heads |= zip(keys, await self._heads(block, some), strict=True)
        return heads

    async def _heads(self, block: BlockRef, jobs: list[int]) -> tuple[bytes, ...]:
        if self._asks_by_hash:
            at = {"blockHash": f"0x{block.hash.hex()}", "requireCanonical": True}
            try:
                return await self._heads_at(at, jobs)
            except RpcUnavailable:
                # Ganache, among others, takes numbers alone.
                heads = await self._heads_by_number(block, jobs)
                self._asks_by_hash = False
                return heads
        return await self._heads_by_number(block, jobs)

    async def _heads_by_number(self, block: BlockRef, jobs: list[int]) -> tuple[bytes, ...]:
        heads = await self._heads_at(hex(block.number), jobs)
        standing = await self._ask(block.number)
        if standing is None or standing.ref != block:
            raise ChainTurned(f"the chain turned while block {block.number} was looked at")
        return heads

    async def _heads_at(self, at: Any, jobs: list[int]) -> tuple[bytes, ...]:
        function = registry().function("logHeads", "Config")
        values = abi_encode(function.inputs, [list(self.contracts), jobs])
        query = {"to": self._config, "data": f"0x{(function.selector + values).hex()}"}

        def read(value: Any) -> tuple[bytes, ...]:
            (words,) = abi_decode(function.outputs, data(value))
            if len(words) != len(jobs) * len(self.contracts):
                raise ValueError(f"{len(words)} heads of {len(jobs)} jobs")
            return tuple(words)

        async def of_one(url: str) -> tuple[bytes, ...]:
            return await self._judged(self._provider.ask_at(url, "eth_call", [query, at], read))

        if self._agreement is not None:
            return await self._agreement.alike(of_one, "heads of the logs")
        return await self._judged(self._provider.ask("eth_call", [query, at], read))

    async def _judged(self, answer: Awaitable[T]) -> T:
        """The answer. A view that every deployment has and that is refused was not answered."""
        try:
            return await answer
        except RpcRefused as refused:
            raise RpcUnavailable(
                f"no RPC endpoint gives the heads of our logs: {refused}",
                next_step="use an RPC endpoint that answers eth_call at recent blocks",
            ) from refused

    def _query(self, first: int, last: int) -> dict[str, Any]:
        """Without topics: these contracts have no other ones, and naming all takes 4 kB."""
        return {"fromBlock": hex(first), "toBlock": hex(last), "address": list(self.contracts)}

    def is_ours(self, raw: RawLog) -> bool:
        """Whether it is an event of one of these contracts."""
        return raw.address in self.contracts and self._topics.issuperset(raw.topics[:1])

    def endpoints(self) -> list[str]:
        """Those that can be asked, the preferred one first."""
        return self._provider.preferred()

    async def in_receipts(self, number: int, url: str | None = None) -> tuple[RawLog, ...]:
        """Our logs of one block, from its receipts.

        Args:
            url: of the one endpoint that is asked; None: whichever answers.

        Raises:
            ChainTurned: the chain does not reach it any more.
            RpcUnavailable: no endpoint has them.
        """
        block = await self.header(number)
        if block is None:
            raise ChainTurned(f"the chain does not reach block {number} any more")
        of_tx = {item.tx_hash: item.logs for item in await self._receipts(block, url)}
        sent = (tx_hash for tx_hash in block.transactions if tx_hash in of_tx)
        everyone_s = ((tx_hash, raw) for tx_hash in sent for raw in of_tx[tx_hash])
        # A log's place is its number in the block; Ganache counts each receipt's anew.
        return tuple(
            replace(
                raw,
                block_number=number,
                block_hash=bytes(block.ref.hash),
                transaction=bytes.fromhex(tx_hash.removeprefix("0x")),
                index=index,
                timestamp=block.ref.timestamp,
            )
            for index, (tx_hash, raw) in enumerate(everyone_s)
            if self.is_ours(raw)
        )

    async def _receipts(self, block: BlockHeader, url: str | None) -> list[TxReceipt]:
        """Those of its transactions; one of the chain itself may have none."""
        ask = self._provider.ask if url is None else partial(self._provider.ask_at, url)

        def of_block(value: Any) -> list[TxReceipt]:
            receipts = block_receipts(value)
            if any(item.block_hash != bytes(block.ref.hash) for item in receipts):
                raise ValueError("receipts of another block")
            if len(receipts) < len(block.transactions) - 1:
                raise ValueError(
                    f"{len(receipts)} receipts of {len(block.transactions)} transactions"
                )
            return receipts

        without = set[str]()

        async def receipt_of(tx_hash: str) -> TxReceipt | None:
            def read(value: Any) -> TxReceipt:
                without.update([tx_hash] if value is None else [])
                return mined_receipt(value)

            try:
                return await ask("eth_getTransactionReceipt", [tx_hash], read)
            except RpcUnavailable:
                if tx_hash not in without:
                    raise
                return None

        try:
            question = [hex(block.ref.number)]
            return await ask("eth_getBlockReceipts", question, of_block)
        except RpcUnavailable:
            # Ganache, among others, gives them one by one.
            each = await each_of(block.transactions, receipt_of)
            return [item for item in each if item is not None]


async def each_of(
    items: Sequence[U], ask: Callable[[U], Awaitable[T]], at_once: int = PARALLEL
) -> list[T]:
    """Asks about every item, some at once; the answers in order. The first error ends the rest."""
    gate = asyncio.Semaphore(at_once)

    async def answer_of(item: U) -> T:
        async with gate:
            return await ask(item)

    tasks = [asyncio.ensure_future(answer_of(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
