"""Lets go of blocks that nobody can ask for any more.

Of a round that is when it is FINAL and nothing starts from it; of a job, its data and its last
model, the claim deadline: until then its submitter may fetch the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from atoll.errors import StorageError
from atoll.protocol.clocks import absolute_end
from atoll.protocol.safety import result_round
from atoll.protocol.views import JobView
from atoll.service.commands import Work
from atoll.service.duties.material import manifest_of
from atoll.service.duties.send_keeper_calls import is_over
from atoll.service.entries import Done, Entry, NotYet
from atoll.service.machine import Decision, State

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class RoundsUnpinned(Entry):
    """The blocks of rounds below this one are not kept any more."""

    kind: ClassVar[str] = "rounds-unpinned.v1"
    below: int


@dataclass(frozen=True, slots=True)
class JobUnpinned(Entry):
    """No block of the job is kept any more."""

    kind: ClassVar[str] = "job-unpinned.v1"


@dataclass(frozen=True, slots=True)
class DoUnpin(Work[RoundsUnpinned]):
    """Let go of the blocks of rounds from `first` up to, not including, `below`."""

    kind: ClassVar[str] = "unpin-rounds.v1"
    first: int
    below: int

    @property
    def about(self) -> tuple[object, ...]:
        return ()  # one at a time, each from where the last one ended

    async def perform(self, effects: Effects, view: JobView) -> Done[RoundsUnpinned]:
        async with _collected(effects):
            for round_ in range(self.first, self.below):
                await effects.unpin(view, round_)
        return Done(RoundsUnpinned(self.below))


@dataclass(frozen=True, slots=True)
class DoUnpinJob(Work[JobUnpinned]):
    """Let go of all that is kept of a job, once its claim deadline is over."""

    kind: ClassVar[str] = "unpin-job.v1"

    async def perform(self, effects: Effects, view: JobView) -> Done[JobUnpinned]:
        reasons = {pin.reason for pin in await effects.kept_for(view)}
        if not reasons:  # as of a job that was not ours
            return Done(JobUnpinned())
        chain = effects.context.chain
        due = await chain.absolute_end(view.job_id) + view.require_terms().claim_seconds
        if (await chain.head()).timestamp < due:
            raise NotYet("the job's submitter may still fetch the result", due)
        async with _collected(effects):
            for reason in reasons:
                await effects.end(reason)
        return Done(JobUnpinned())


@asynccontextmanager
async def _collected(effects: Effects) -> AsyncIterator[None]:
    """Collects once the pins are gone; and where the disk is too full to let go of one, too, as
    what nobody keeps makes room for that.
    """
    collect = effects.context.store.collect
    try:
        yield
    except StorageError:
        await asyncio.to_thread(collect)
        raise
    await asyncio.to_thread(collect)


# --- decisions ---


def decide_unpin(state: State[S], *, looks: bool = True) -> Decision:
    """Lets go of the blocks of rounds that are FINAL and that nothing starts from any more; behind
    the claim deadline, of all.

    Args:
        looks: whether the manifest of a job that is not over is fetched. Where it is not, no bond
            of ours is in it, and we play no game about a reset period.
    """
    view = state.view
    if state.entries.of(DoUnpinJob) is not None:
        return Decision("unpin", "keeps nothing of the job")
    if is_over(view, state.now) and state.now >= _claimed_at_least_until(view):
        return Decision("unpin", "the claim deadline is over", (DoUnpinJob(),))
    manifest = manifest_of(state.entries)
    if manifest is None and looks and not is_over(view, state.block_time):
        return Decision("unpin", "waits for the manifest, which says how long a reset period is")
    unpinned = state.entries.of(DoUnpin)
    first = 0 if unpinned is None else unpinned.below
    # Whoever audits a round, or plays a game about it, runs it again from what it began with. A
    # challenge of its window's last block is in the view once that is confirmed.
    audited = [settled_round.round for settled_round in view.auditing(state.block_time)]
    played = [game.claim.round for game in view.games.values() if game.is_open]
    # The result of a job is made from its merge's updates, should somebody be slashed for that, or
    # should it be struck.
    merged = result_round(view)
    kept = [] if merged is None else [merged.round]
    below = min([view.round - 1, *audited, *played, *kept])
    if manifest is not None:
        below -= below % manifest.reset_period  # a seat's state comes from all of it
    if below <= first:
        return Decision("unpin", f"keeps the rounds from {first} on")
    return Decision("unpin", f"rounds below {below} are final", (DoUnpin(first, below),))


def _claimed_at_least_until(view: JobView) -> int:
    """The claim deadline, unix seconds, if no game could take any time: only contracts know the
    deployment's longest one.
    """
    terms = view.require_terms()
    return absolute_end(terms, 0) + terms.claim_seconds
