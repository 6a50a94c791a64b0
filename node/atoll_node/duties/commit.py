"""Commits to what was trained, before the window ends; to one thing only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Never

from atoll.chain.calls import Call, Calls
from atoll.law.hashing import commitment
from atoll.law.views import JobView
from atoll.law.words import Digest, Phase, SeatIndex, Slot
from atoll.service.commands import ContractCall, Done, key_of
from atoll.service.machine import Decision
from atoll_node.behaviour import ProviderState
from atoll_node.duties.train import trained_by

if TYPE_CHECKING:
    from atoll.service.effects import Effects


@dataclass(frozen=True, slots=True)
class SendCommit(ContractCall):
    once: ClassVar[bool] = True
    slot: Slot
    seat: SeatIndex
    data_seed: Digest
    commitment: Digest

    @property
    def about(self) -> tuple[object, ...]:
        return (self.slot, self.commitment)

    @property
    def guard(self) -> str:
        """What the journal lets us commit to once: a seat's attempt with its data seed.

        The data seed is part of it because a reorg that changes the seed makes another round of it.
        """
        return key_of(SendCommit, self.slot.job, self.slot, self.seat, self.data_seed)

    def call(self, calls: Calls, view: JobView) -> Call:
        slot = self.slot
        return calls.commit(slot.job, slot.round, slot.attempt, self.commitment)

    async def perform(self, effects: Effects, view: JobView) -> Done[Never]:
        effects.context.journal.sign_once(self.guard, self.commitment)
        return await ContractCall.perform(self, effects, view)


# --- decisions ---


def decide_commit(state: ProviderState, seat: SeatIndex | None) -> Decision:
    """Commits to what was trained, before the window ends."""
    view, behaviour = state.view, state.setup.behaviour
    if seat is None or view.state.phase is not Phase.TRAIN:
        return Decision("commit", "nothing to commit to now")
    if view.state.committed >> seat & 1:
        return Decision("commit", f"committed in round {view.state.round}")
    trained = trained_by(state, seat)
    if trained is None:
        return Decision("commit", "waits for training")
    if state.now >= view.state.deadline:
        return Decision("commit", "the window to commit is over")
    if behaviour.skips_commit(view):
        return Decision("commit", "the behaviour does not commit")
    slot = view.train_slot
    value = behaviour.commit_override(view, commitment(slot, seat, state.me, trained.reveal))
    return Decision("commit", "trained", (SendCommit(slot, seat, view.state.data_seed, value),))
