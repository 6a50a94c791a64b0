"""Follows one job from outside, as anyone could: by the chain's events and the job's gateways."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from atoll.chain.follower import News
from atoll.chain.index import Indexed
from atoll.content.cid import Cid
from atoll.content.fetch import Fetcher
from atoll.errors import MalformedTrace, NotFound, StorageError
from atoll.job.narrate import Names, describe
from atoll.law.events import Revealed, RoundSettled
from atoll.law.trace import DIVERGED_LOSS_BITS, MAX_TRACE_BYTES, TraceDocument
from atoll.law.views import JobView
from atoll.law.words import JobId
from atoll.service.session import Session
from atoll.service.worker import Worker
from atoll_devnet.report.history import History
from atoll_devnet.report.live import Display

INITIAL = -1
"""The round under which the untrained model's loss is kept."""
MAX_STATE_BYTES = 1 << 32  # of the devnet's own small jobs; it keeps a wrong CID from filling disks
POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Watched:
    """What the observer looks at and with.

    Attributes:
        session: follows the job, and has its data in the store.
        manifest: the job's, in bytes.
        names: accounts as the network calls them.
    """

    session: Session
    job: JobId
    manifest: bytes
    worker: Worker
    names: Names
    display: Display

    @property
    def fetcher(self) -> Fetcher:
        return self.session.fetcher_of(self.job)

    @property
    def store_dir(self) -> str:
        return str(self.session.store.root)


@dataclass
class Observer:
    """Use `run` until it returns; everything seen is in `history` and `losses`.

    Attributes:
        losses: on the held-out text after each settled round; `INITIAL` before the first.
        now: the chain's clock, unix seconds.
    """

    watched: Watched
    history: History = field(init=False)
    losses: dict[int, float] = field(default_factory=dict)
    now: int = 0
    quiet_since: float = 0.0
    _side_work: set[asyncio.Task[None]] = field(default_factory=set)
    _told: set[tuple[bytes, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.history = History(self.watched.job)

    @property
    def view(self) -> JobView | None:
        """The job as its events tell it; None before its first."""
        return self.watched.session.follower.views.get(self.watched.job)

    async def run(self, until: Callable[[Observer], bool]) -> None:
        """Follows the job until `until` says so, and finishes what it is evaluating."""
        if INITIAL not in self.losses:
            self._start(self._evaluate(INITIAL, None))
        try:
            while not until(self):
                self._fold(await self.watched.session.follower.poll_patiently())
                if self.view is not None:
                    self.watched.display.show(self.view, self.now, self.losses)
                await asyncio.sleep(POLL_SECONDS)
            await asyncio.gather(*self._side_work)
        finally:
            for task in self._side_work:
                task.cancel()

    async def fetch_state(self, cid: bytes) -> None:
        """Brings a global state into the store. Raises NotFound where nobody serves it."""
        await self.watched.fetcher.fetch(Cid.from_bytes(cid), MAX_STATE_BYTES)

    def _fold(self, news: News) -> None:
        if news.turned is not None:
            self.history = History(self.watched.job)
            for item in news.turned.kept:
                self.history.fold(item.event, item.block)
        for step in news.folded:
            self.history.fold(step.item.event, step.item.block)
            self._tell(step.item)
        if news.head is not None:
            self.now = news.head.timestamp

    def _tell(self, item: Indexed) -> None:
        key = (item.block.hash, item.log_index)
        if key in self._told:
            return
        self._told.add(key)
        self.quiet_since = asyncio.get_running_loop().time()
        event = item.event
        line = describe(event, self.watched.names)
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
        what = f"round {event.round}: seat {event.seat}"
        try:
            data = await self.watched.fetcher.get(
                Cid.from_bytes(event.reveal.trace_cid), MAX_TRACE_BYTES
            )
            last = TraceDocument.from_bytes(data).leaves[-1]
        except StorageError:
            self.watched.display.line(f"{what}: nobody serves its trace")
            return
        except MalformedTrace as error:
            self.watched.display.line(f"{what}: {error}")
            return
        diverged = last.loss_bits == DIVERGED_LOSS_BITS
        loss = "it diverged" if diverged else f"its loss {_float(last.loss_bits):.3f}"
        self.watched.display.line(f"{what}: {loss}")

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


def _float(bits: int) -> float:
    value: float = struct.unpack(">f", bits.to_bytes(4, "big"))[0]
    return value
