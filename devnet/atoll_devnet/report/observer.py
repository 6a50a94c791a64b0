"""Follows one job from outside, as anyone could: by the chain's events and the job's gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from atoll.chain.follower import News
from atoll.chain.indexed import Indexed
from atoll.errors import NotFound, ProtocolError
from atoll.job.event_text import Names, describe
from atoll.job.figures import certified_loss, cid_of
from atoll.job.ledger.ledger import Ledger
from atoll.protocol.events import Refunded
from atoll.protocol.losses import loss_of
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import JobId
from atoll.protocol.views import JobView
from atoll.service.session import Session
from atoll.service.worker import Worker
from atoll.storage.cid import Cid
from atoll.storage.fetch import Fetcher
from atoll_devnet.handles import EVAL_LOSS
from atoll_devnet.report.live import Display

INITIAL = -1
"""The round under which the untrained model's loss is kept."""
MAX_STATE_BYTES = 1 << 32  # of the devnet's own small jobs; it keeps a wrong CID from filling disks
POLL_SECONDS = 0.5


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
    """Use `run` until it returns; everything seen is in `ledger` and `losses`.

    Attributes:
        losses: on the held-out text after each settled round; `INITIAL` before the first. A
            committee signs a model's with the next round; the last model's is computed here.
        now: the chain's clock, unix seconds.
        quiet_since: when something last happened, or a member was at work; of the loop's clock.
    """

    watched: Watched
    is_evaluated: bool = field(init=False)
    losses: dict[int, float] = field(default_factory=dict)
    now: int = 0
    quiet_since: float = 0.0
    _side_work: set[asyncio.Task[None]] = field(default_factory=set)
    _told: set[tuple[bytes, int]] = field(default_factory=set)
    _evaluating: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.is_evaluated = Manifest.from_bytes(self.watched.manifest).data.is_evaluated

    @property
    def view(self) -> JobView | None:
        """The job as its events tell it; None before its first."""
        return self.watched.session.follower.views.get(self.watched.job)

    @property
    def is_refunded(self) -> bool:
        """Whether a refund was seen, which may be of nothing."""
        return any(
            isinstance(item.event, Refunded) and item.event.job_id == self.watched.job
            for item in self.watched.session.follower.history()
        )

    def ledger(self) -> Ledger:
        """The job's, up to the last look. Raises ProtocolError before its first event."""
        if self.view is None:
            raise ProtocolError("the job was never seen")
        return Ledger.of(self.view, self.watched.session.follower.history(), self.now)

    async def run(self, until: Callable[[Observer], bool]) -> None:
        """Follows the job until `until` says so, and finishes what it is evaluating."""
        try:
            while not until(self):
                self._fold(await self.watched.session.follower.poll_patiently())
                if self.view is not None:
                    self._take_losses(self.view)
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
        earlier = self.watched.session.follower.history() if news.begins else ()
        for item in (*earlier, *(step.item for step in news.folded)):
            self._tell(item)
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

    # --- losses ---

    def _take_losses(self, view: JobView) -> None:
        """What committees signed since, and, once nothing is trained any more, the last model's."""
        if not self.is_evaluated:
            return
        for merged in range(len(view.settled)):
            certified = certified_loss(view, merged)
            if certified is not None:
                self._note(merged, loss_of(certified))
        last = len(view.settled)
        if view.status.is_closed and last and last - 1 not in {*self.losses, *self._evaluating}:
            self._evaluating.add(last - 1)
            task = asyncio.create_task(self._evaluate(last - 1, cid_of(view, last)))
            self._side_work.add(task)
            task.add_done_callback(self._side_work.discard)

    def _note(self, merged: int, loss: float) -> None:
        """Of the model after so many rounds, said once."""
        if merged - 1 in self.losses:
            return
        self.losses[merged - 1] = loss
        when = f"after round {merged - 1}" if merged else "before training"
        self.watched.display.line(f"loss on held-out text {when}: {loss:.4f}")

    async def _evaluate(self, round_: int, model: bytes) -> None:
        watched = self.watched
        try:
            if model:
                await self.fetch_state(model)
        except NotFound as error:
            watched.display.line(f"round {round_}: nobody serves the merged model: {error}")
            return
        call = EVAL_LOSS(watched.manifest, model or None, watched.store_dir)
        loss = await watched.worker.run(call)
        self._note(round_ + 1, loss)
