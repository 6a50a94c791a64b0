"""Follows one job from outside, as anyone could: by the chain's events and the job's gateways."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from atoll.chain.contracts import AtollChain
from atoll.chain.index import EventIndex, Head, Indexed, Rewound
from atoll.chain.mirror import Mirror
from atoll.content.cid import Cid
from atoll.content.fetch import Fetcher
from atoll.content.local import LocalStore
from atoll.errors import MalformedTrace, NotFound, RpcUnavailable, StorageError
from atoll.law.events import ContractEvent, Revealed, RoundSettled
from atoll.law.trace import DIVERGED_LOSS_BITS, MAX_TRACE_BYTES, TraceDocument
from atoll.law.views import JobView
from atoll.law.words import BlockRef, JobId
from atoll.service.worker import Worker
from atoll_devnet.report.history import History
from atoll_devnet.report.live import Display
from atoll_devnet.report.story import Names, tell

INITIAL = -1
"""The round under which the untrained model's loss is kept."""
MAX_STATE_BYTES = 1 << 32


@dataclass(frozen=True)
class Watched:
    """What the observer looks at and with.

    Attributes:
        manifest: the job's, in bytes.
        names: accounts as the network calls them.
    """

    chain: AtollChain
    job: JobId
    manifest: bytes
    store: LocalStore
    store_dir: str
    worker: Worker
    names: Names
    display: Display


@dataclass
class Observer:
    """Use `run` until it returns; everything seen is in `history` and `losses`.

    Attributes:
        losses: on the held-out text after each settled round; `INITIAL` before the first.
    """

    watched: Watched
    index_file: Path
    history: History = field(init=False)
    losses: dict[int, float] = field(default_factory=dict)
    now: int = 0
    quiet_since: float = 0.0
    _mirror: Mirror = field(init=False)
    _index: EventIndex = field(init=False)
    _fetcher: Fetcher = field(init=False)
    _side_work: set[asyncio.Task[None]] = field(default_factory=set)
    _told: set[tuple[bytes, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        deployment = self.watched.chain.deployment
        self.history = History(self.watched.job)
        self._mirror = Mirror(deployment.domain, deployment.addresses["Jobs"], (self.watched.job,))
        self._index = EventIndex(self.watched.chain, confirmations=0, path=self.index_file)
        self._fetcher = Fetcher(self.watched.store, self._gateways)

    @property
    def view(self) -> JobView | None:
        """The job as its events tell it; None before its first."""
        return self._mirror.views.get(self.watched.job)

    async def run(self, until: Callable[[Observer], bool]) -> None:
        """Follows the job until `until` says so, and finishes what it is evaluating."""
        if INITIAL not in self.losses:
            self._start(self._evaluate(INITIAL, None))
        try:
            while not until(self):
                self._take(await _poll(self._index))
                if self.view is not None:
                    self.watched.display.show(self.view, self.now, self.losses)
                await asyncio.sleep(0.25)
            await asyncio.gather(*self._side_work)
        finally:
            for task in self._side_work:
                task.cancel()

    async def close(self) -> None:
        """Lets go of the index's file and the connections."""
        self._index.close()
        await self._fetcher.close()

    async def fetch_state(self, cid: bytes) -> None:
        """Brings a global state into the store. Raises NotFound where nobody serves it."""
        await self._fetcher.fetch(Cid.from_bytes(cid), MAX_STATE_BYTES)

    def _take(self, updates: list[Indexed | Rewound | Head]) -> None:
        for update in updates:
            if isinstance(update, Rewound):
                self._mirror.clear()
                self.history = History(self.watched.job)
                for past in self._index.history():
                    self._see(past.event, past.block)
                return
            if isinstance(update, Head):
                self.now = update.block.timestamp
            else:
                self._see(update.event, update.block)
                self._tell(update)

    def _see(self, event: ContractEvent, block: BlockRef) -> None:
        self._mirror.fold([(event, block)])
        self.history.fold(event, block)

    def _tell(self, item: Indexed) -> None:
        key = (item.block.hash, item.log_index)
        if key in self._told:
            return
        self._told.add(key)
        self.quiet_since = asyncio.get_running_loop().time()
        event = item.event
        line = tell(event, self.watched.names)
        if line is not None and getattr(event, "job_id", self.watched.job) == self.watched.job:
            self.watched.display.line(line)
        if isinstance(event, Revealed) and event.job_id == self.watched.job:
            self._start(self._read_trace(event))
        if isinstance(event, RoundSettled) and event.job_id == self.watched.job:
            self._start(self._evaluate(event.round, event.verdict.merged_cid))

    def _start(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._side_work.add(task)
        task.add_done_callback(self._side_work.discard)

    async def _read_trace(self, event: Revealed) -> None:
        what = f"round {event.round}: seat {event.seat} revealed"
        try:
            data = await self._fetcher.get(Cid.from_bytes(event.reveal.trace_cid), MAX_TRACE_BYTES)
            last = TraceDocument.from_bytes(data).leaves[-1]
        except StorageError:
            self.watched.display.line(f"{what}; nobody serves its trace")
            return
        except MalformedTrace as error:
            self.watched.display.line(f"{what}; {error}")
            return
        diverged = last.loss_bits == DIVERGED_LOSS_BITS
        loss = "it diverged" if diverged else f"its loss {_float(last.loss_bits):.3f}"
        self.watched.display.line(f"{what}; {loss}")

    async def _evaluate(self, round_: int, merged: bytes | None) -> None:
        watched = self.watched
        if merged is not None:
            try:
                await self.fetch_state(merged)
            except NotFound as error:
                watched.display.line(f"round {round_}: nobody serves the merged model: {error}")
                return
        loss: float = await watched.worker.run(
            "atoll_devnet.run.evaluation:eval_loss", watched.manifest, merged, watched.store_dir
        )
        self.losses[round_] = loss
        when = "before training" if merged is None else f"after round {round_}"
        watched.display.line(f"loss on held-out text {when}: {loss:.4f}")

    def _gateways(self) -> list[str]:
        return [] if self.view is None else list(self.view.gateway_urls())


async def _poll(index: EventIndex) -> list[Indexed | Rewound | Head]:
    try:
        return await index.poll()
    except RpcUnavailable:
        return []


def _float(bits: int) -> float:
    value: float = struct.unpack(">f", bits.to_bytes(4, "big"))[0]
    return value
