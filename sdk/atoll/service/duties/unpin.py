"""Lets go of blocks that nobody can ask for any more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from atoll.errors import StorageError
from atoll.law.views import JobView
from atoll.service.commands import Done, Fact, Work
from atoll.service.duties.material import manifest_of
from atoll.service.machine import Decision, State

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class RoundsUnpinned(Fact):
    """The blocks of rounds below this one are not kept any more."""

    below: int


@dataclass(frozen=True, slots=True)
class DoUnpin(Work[RoundsUnpinned]):
    """Let go of the blocks of rounds from `first` up to, not including, `below`."""

    first: int
    below: int

    @property
    def about(self) -> tuple[object, ...]:
        return ()  # one at a time, each from where the last one ended

    async def perform(self, effects: Effects, view: JobView) -> Done[RoundsUnpinned]:
        collect = effects.context.store.collect
        try:
            for round_ in range(self.first, self.below):
                await effects.unpin(view, round_)
        except StorageError:
            # A disk may be too full to let go of anything: what nobody keeps makes room for that.
            await asyncio.to_thread(collect)
            raise
        await asyncio.to_thread(collect)
        return Done(RoundsUnpinned(self.below))


# --- decisions ---


def decide_unpin(state: State[S]) -> Decision:
    """Lets go of the blocks of rounds that are FINAL and that nothing starts from any more."""
    view = state.view
    done = state.facts.of(DoUnpin)
    first = 0 if done is None else done.below
    # Whoever audits a round, or plays a game about it, runs it again from what it began with.
    audited = [past.round for past in view.auditing(state.now)]
    played = [game.claim.round for game in view.games.values() if game.is_open]
    # The result of a job is made from the last merge's updates, should somebody fall in it.
    merged = [past.round for past in view.settled if past.verdict.merged]
    below = min([view.round - 1, *audited, *played, *merged[-1:]])
    manifest = manifest_of(state.facts)
    if manifest is not None:
        below -= below % manifest.epoch  # a seat's state comes from all of it
    if below <= first:
        return Decision("unpin", f"keeps the rounds from {first} on")
    return Decision("unpin", f"rounds below {below} are final", (DoUnpin(first, below),))
