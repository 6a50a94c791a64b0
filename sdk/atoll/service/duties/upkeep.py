"""Steps that keep a job moving; anyone may take them, members take turns.

Nothing here changes what a round decides, only how soon. A step that anyone may take is taken by
the first in line; the others wait a little longer each, so that it happens once while everyone is
there and happens at all while anyone is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from atoll.chain.calls import Call, Calls
from atoll.law.views import JobView
from atoll.law.words import Offence, Phase, Role, RoundIndex, SeatIndex, bits
from atoll.service.commands import ContractCall
from atoll.service.config import KeeperConfig
from atoll.service.machine import Decision, State

S = TypeVar("S")

BEACON_PHASES = frozenset({Phase.SEEDING, Phase.DRAW})
PUNISHMENTS_AT_ONCE = 4
"""So that a long list of faults does not fill the queue in front of a commit."""


@dataclass(frozen=True, slots=True)
class SendPoke(ContractCall):
    """Move the job on. `place` names the phase and its deadline or beacon."""

    place: str

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.poke(view.job_id)


@dataclass(frozen=True, slots=True)
class SendFinalise(ContractCall):
    round: int

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.finalise(view.job_id)


@dataclass(frozen=True, slots=True)
class SendPunish(ContractCall):
    round: int
    offence: Offence
    index: int

    def call(self, calls: Calls, view: JobView) -> Call:
        round_ = RoundIndex(self.round)
        return calls.punish(view.job_id, round_, self.offence, self.index)


@dataclass(frozen=True, slots=True)
class SendCredit(ContractCall):
    round: int
    role: Role
    index: int

    def call(self, calls: Calls, view: JobView) -> Call:
        index = SeatIndex(self.index)  # a verifier's index for Role.VERIFIER: a plain number
        return calls.credit(view.job_id, RoundIndex(self.round), self.role, index)


# --- decisions ---


def place_in_line(view: JobView, role: Role, index: int | None) -> int:
    """How many members act before this one; turns rotate with the round.

    Providers are first where training is waited for, verifiers elsewhere; who has no place in the
    round comes last.
    """
    state = view.state
    seats = bits(state.seated) or sorted(view.seats)
    verifiers = bits(state.verifiers) or sorted(view.verifiers)
    mine, others = (seats, verifiers) if role is Role.PROVIDER else (verifiers, seats)
    if index not in mine:
        return len(seats) + len(verifiers)
    turn = (mine.index(index) - state.round - state.attempt) % len(mine)
    providers_first = state.phase in {Phase.SEEDING, Phase.TRAIN, Phase.REVEAL}
    return turn if (role is Role.PROVIDER) == providers_first else len(others) + turn


def decide_poke(state: State[S], line: int, config: KeeperConfig) -> Decision:
    """Moves the job on once its deadline or its beacon block has passed."""
    view, phase = state.view, state.view.state.phase
    late_s, late_blocks = line * config.stagger_s, line * config.stagger_blocks
    now = state.now - late_s
    block = state.head.number - (late_blocks if phase in BEACON_PHASES else 0)
    if not view.is_poke_due(now, block):
        waits_for = f"block {view.state.beacon_block}" if phase in BEACON_PHASES else "its deadline"
        return Decision("poke", f"{phase.name} waits for {waits_for}, {line} are before us")
    place = f"{view.state.round}:{view.state.attempt}:{phase.name.lower()}"
    place += f":{view.state.deadline or view.state.beacon_block}"
    if phase is Phase.WAITING:
        place += f":{len(view.seats)}:{len(view.verifiers)}:{view.state.status.name.lower()}"
    return Decision("poke", f"{phase.name} is over", (SendPoke(place),))


def decide_finalise(state: State[S], line: int, config: KeeperConfig) -> Decision:
    """Makes the oldest settled round final once its dispute window has ended."""
    view = state.view
    if not view.finalisable(state.now - line * config.stagger_s):
        return Decision("finalise", "no dispute window has ended")
    return Decision("finalise", "a dispute window has ended", (SendFinalise(view.final_rounds),))


def decide_punish(state: State[S], line: int, config: KeeperConfig) -> Decision:
    """Executes the punishments and credits that the evidence already decided."""
    view = state.view
    due = view.punishable(state.now - line * config.stagger_s)[:PUNISHMENTS_AT_ONCE]
    punish = tuple(SendPunish(fault.round, fault.offence, fault.index) for fault in due)
    may_credit = state.now >= view.closed_at + line * config.stagger_s
    credits = view.due_credits[:PUNISHMENTS_AT_ONCE] if may_credit else ()
    credit = tuple(SendCredit(c.round, c.role, c.index) for c in credits)
    return Decision("punish", f"{len(punish)} faults, {len(credit)} credits due", punish + credit)


def is_over(view: JobView) -> bool:
    """Whether no further round will run and every settled one is final."""
    closed = view.state.phase is Phase.CLOSED or view.state.status.is_closed
    return closed and view.final_rounds == len(view.settled)
