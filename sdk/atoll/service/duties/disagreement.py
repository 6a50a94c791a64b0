"""Whose own merge is another model than the certificate's stops, says so, and leaves.

Either this machine computes wrongly, or two thirds of a committee said what does not follow; in
both cases nothing that we train from that model is worth its bond. A provider says so on the chain
before it has committed, which costs no missed duty; a verifier leaves the pool, and does what it
still owes from the model that the chain names, which it signs nothing of that it did not compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

import structlog

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.protocol.types import Digest, Phase, Role, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.commands import ContractCall, Work
from atoll.service.duties.apply_merge import (
    MERGES_AT,
    NO_MODEL,
    applies,
    own_model,
    part_of_train,
    waits_for_merge,
)
from atoll.service.duties.merge import checked_of
from atoll.service.duties.round_start import decide_round_start
from atoll.service.entries import Done, Entry
from atoll.service.machine import AnyCommand, Decision, Setup, State, by_view_and_entries

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
B = TypeVar("B")
log = structlog.get_logger("atoll.disagreement")


@dataclass(frozen=True, slots=True)
class Disagreed(Entry):
    """Our merge of a round and its certificate name two models; both by digest."""

    kind: ClassVar[str] = "disagreed.v1"
    round: int
    own: Digest
    certified: Digest

    def __str__(self) -> str:
        ours, certified = self.own.hex()[:16], self.certified.hex()[:16]
        return f"our merge of round {self.round} is {ours}…, its certificate says {certified}…"


@dataclass(frozen=True, slots=True)
class NoteDisagreement(Work[Disagreed]):
    """Keep what stopped us, whatever becomes of the round's blocks."""

    kind: ClassVar[str] = "note-disagreement.v1"
    found: Disagreed

    @property
    def about(self) -> tuple[object, ...]:
        return ()  # one is enough to stop

    async def perform(self, effects: Effects, view: JobView) -> Done[Disagreed]:
        log.warning("disagrees", job=view.job_id, round=self.found.round, what=str(self.found))
        return Done(self.found)


@dataclass(frozen=True, slots=True)
class SendDisagree(ContractCall):
    """Say on the chain that our model is another, and leave the seat without a missed duty."""

    kind: ClassVar[str] = "disagree.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    data_seed: Digest
    root: Digest

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.disagree(view.job_id, self.data_seed, self.root)


# --- decisions ---


@by_view_and_entries
def disagreement(state: State[S]) -> Disagreed | None:
    """What stops us: a certificate that stands, and that our own merge does not give."""
    noted = state.entries.of(NoteDisagreement)
    if noted is not None:
        settled_round = state.view.settled_round(RoundIndex(noted.round))
        if settled_round is not None and settled_round.verdict.state == noted.certified:
            return noted
    merged = checked_of(state)
    if merged is None:
        return None
    settled_round = state.view.settled[-1]
    ours, certified = merged.verdict.state, settled_round.verdict.state
    return None if ours == certified else Disagreed(settled_round.round, ours, certified)


def decide_disagreement(state: State[Setup[B]]) -> Decision:
    """Notes it, and says it where that still saves the missed duty."""
    disagreed = disagreement(state) or _lacking(state)
    if disagreed is None:
        return Decision("agreement", "no certificate is another than our own merge")
    wanted: list[AnyCommand] = []
    if state.entries.of(NoteDisagreement) != disagreed:
        wanted.append(NoteDisagreement(disagreed))
    running = state.view.open
    if running is not None and may_disagree(state):
        wanted.append(SendDisagree(running.round, running.seed, disagreed.own))
    return Decision("agreement", f"stops: {disagreed}", tuple(wanted))


def _lacking(state: State[Setup[B]]) -> Disagreed | None:
    """What stops who could neither apply the last merge nor merge, with TRAIN about to end.

    Nobody is to train from a model by its name alone: two thirds could keep the rest to themselves.
    """
    is_last = part_of_train(state) == MERGES_AT - 1
    if not is_last or not applies(state) or not waits_for_merge(state):
        return None
    settled_round = state.view.settled[-1]
    return Disagreed(settled_round.round, NO_MODEL, settled_round.verdict.state)


def may_disagree(state: State[S]) -> bool:
    """Whether the running round still waits for our commitment."""
    running, held = state.view.open, state.view.standing(state.me)
    if running is None or held is None or held.role is not Role.PROVIDER:
        return False
    if state.now >= running.deadline:
        return False
    waits = running.counting & ~running.committed
    is_ours = running.seats.get(SeatIndex(held.index)) == held.id
    return running.phase is Phase.TRAIN and is_ours and bool(waits >> held.index & 1)


def decide_model(state: State[Setup[B]]) -> Decision:
    """Gets the model of the running round, from our own merge where that gave it; where a merge is
    applied, from nowhere else.
    """
    ours = own_model(state)
    if not ours and applies(state) and waits_for_merge(state):
        return Decision("round start", "waits for the merge that it follows from")
    return decide_round_start(state, ours)
