"""Opens the commitment, and serves what it is about from then on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from atoll.chain.calls import Call, Calls
from atoll.law.views import JobView
from atoll.law.words import Phase, Reveal, SeatIndex, Slot
from atoll.service.commands import ContractCall
from atoll.service.machine import Decision
from atoll_node.behaviour import ProviderState
from atoll_node.duties.train import trained_by


@dataclass(frozen=True, slots=True)
class SendReveal(ContractCall):
    once: ClassVar[bool] = True
    slot: Slot
    reveal: Reveal

    @property
    def about(self) -> tuple[object, ...]:
        return (self.slot, self.reveal.trace_root)

    def call(self, calls: Calls, view: JobView) -> Call:
        slot = self.slot
        return calls.reveal(slot.job, slot.round, slot.attempt, self.reveal)


# --- decisions ---


def decide_reveal(state: ProviderState, seat: SeatIndex | None) -> Decision:
    """Opens the commitment."""
    view = state.view
    if seat is None or view.state.phase is not Phase.REVEAL:
        return Decision("reveal", "nothing to reveal now")
    if not (view.state.committed & ~view.state.revealed) >> seat & 1:
        return Decision("reveal", "did not commit in this round, or has revealed")
    trained = trained_by(state, seat)
    if trained is None:
        return Decision("reveal", "the journal has no training for this commitment")
    if state.now >= view.state.deadline:
        return Decision("reveal", "the window to reveal is over")
    if state.setup.behaviour.skips_reveal(view):
        return Decision("reveal", "the behaviour does not reveal")
    return Decision("reveal", "committed", (SendReveal(view.train_slot, trained.reveal),))
