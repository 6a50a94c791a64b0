"""What a job's ledger consists of: amounts with their reasons, what bonds lost, how the job stood.

Rule of this file: pure; integers of wei, as the events name them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from atoll.chain.indexed import Indexed
from atoll.job.serialization import plain_of
from atoll.protocol import events as ev
from atoll.protocol.types import Address, MissedDuty, Role, RoundIndex

TRAINING, SIGNATURES, AUDITS, CREDITS = "training", "signatures", "audits", "credits"
REASONS: Final = (TRAINING, SIGNATURES, AUDITS, CREDITS)
"""What tokens are paid for; credits are won by contests and by keys that were shown too early."""
PENALTIES: Final = "penalties"
"""What missed duties and slashes took of a bond, which is no pay."""
PHASES: Final = ("train", "reveal", "merge")


class State(StrEnum):
    """What became of an amount."""

    PAID = "paid"
    DUE = "due"
    """FINAL, and not claimed yet."""
    PENDING = "pending"
    LOST = "lost"
    """Earned, and taken away again; or taken from a bond."""
    UNEARNED = "not earned"


@dataclass(frozen=True, slots=True)
class Line:
    """One amount of one round.

    Attributes:
        role: None of what anybody may earn.
        index: the seat or the slot.
        what: `training`, `signatures`, `audits`, `credits` or `penalties`.
        wei: how much it is, or would have been.
        text: why it is so.
        until: unix seconds from which on a pending amount is FINAL, unless a game is open.
    """

    round: RoundIndex
    role: Role | None
    index: int
    what: str
    state: State
    wei: int
    text: str
    until: int | None = None

    def to_json_value(self) -> dict[str, Any]:
        """For JSON."""
        return plain_of(self)


ABSENCES: Final = frozenset({MissedDuty.SEAT, MissedDuty.KEY, MissedDuty.SILENCE, MissedDuty.AUDIT})
"""Missed duties that whoever is too slow, or away, comes to without a lie."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What an account lost of its bond, and for what.

    Attributes:
        index: the seat or the slot.
        round: the one that it is about.
        missed_duty: what it left undone; None of a slash.
        winner: of a slash, who gets a share.
    """

    account: Address
    role: Role
    index: int
    round: RoundIndex
    wei: int
    why: str
    missed_duty: MissedDuty | None = None
    winner: Address | None = None

    @property
    def is_slash(self) -> bool:
        """Whether it lost a game, or never showed a key."""
        return self.missed_duty is None


@dataclass(slots=True)
class RoundTimes:
    """When a round, from its first opening to its settlement, was in which phase.

    Attributes:
        status: "running", "settled", or "void" where nobody committed or revealed.
        seconds: by phase, in the chain's time.
        voids: how often it was void, or waited for members, before it settled.
        committee_draws: committees that were drawn for it.
    """

    status: str = "running"
    seconds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))
    started: int = 0
    ended: int = 0
    voids: int = 0
    committee_draws: int = 1
    _phase: str = ""
    _since: int = 0

    def to_json_value(self) -> dict[str, Any]:
        """For JSON."""
        return {name: item for name, item in plain_of(self).items() if name[0] != "_"}

    def enter(self, phase: str, at: int) -> None:
        """The clock runs for another phase; an empty one stops it."""
        if self._phase:
            self.seconds[self._phase] += at - self._since
        self._phase, self._since = phase, at

    def stop(self, status: str, at: int) -> None:
        """It is over, or void for now."""
        self.enter("", at)
        self.status, self.ended = status, at


@dataclass(slots=True)
class Moment:
    """How a job stood; wei as the events say.

    Attributes:
        round: the newest that has begun.
        phase: waiting, train, reveal or merge; settled between rounds; closed.
        games: open ones.
        taken_wei: what missed duties and slashes took from bonds.
    """

    round: int | None = None
    phase: str = "waiting"
    settled: int = 0
    games: int = 0
    funded_wei: int = 0
    paid_wei: int = 0
    burnt_wei: int = 0
    refunded_wei: int = 0
    taken_wei: int = 0

    @property
    def balance(self) -> int:
        """What is still in escrow."""
        return self.funded_wei - self.paid_wei - self.burnt_wei - self.refunded_wei

    def fold(self, event: ev.ContractEvent) -> None:
        """One more event of the job, or of a game about it."""
        match event:
            case ev.RoundOpened() | ev.RevealOpened() | ev.MergeOpened():
                self.round, self.phase = event.round, PHASE_OF[type(event)]
            case ev.Settled():
                self.settled, self.phase = self.settled + 1, "settled"
            case ev.Waiting():
                self.phase = "waiting"
            case ev.Closed():
                self.phase = "closed"
            case ev.Challenged():
                self.games += 1
            case ev.Ended():
                self.games -= 1
            case _:
                for kind, wei in amounts_of(event):
                    name = f"{kind}_wei"
                    setattr(self, name, getattr(self, name) + wei)

    def to_json_value(self) -> dict[str, Any]:
        """For JSON."""
        return plain_of(self)


PHASE_OF: Final[dict[type, str]] = {
    ev.RoundOpened: "train",
    ev.RevealOpened: "reveal",
    ev.MergeOpened: "merge",
}


def amounts_of(event: ev.ContractEvent) -> Iterator[tuple[str, int]]:
    """Wei that an event moves: `funded`, `paid`, `burnt`, `refunded`, or `taken` from a bond."""
    match event:
        case ev.JobCreated():
            yield "funded", event.funded
        case ev.JobFunded():
            yield "funded", event.amount
        case ev.Claimed():
            yield "paid", event.amount
            yield "burnt", event.burnt
        case ev.CreditClaimed():
            yield "paid", event.amount
        case ev.Burnt():
            yield "burnt", event.amount
        case ev.Refunded():
            yield "refunded", event.amount
        case ev.Missed():
            yield "taken", event.penalty
        case ev.HolderSlashed():
            yield "taken", event.slashed
        case _:
            pass


def log_line(text: str, item: Indexed) -> dict[str, Any]:
    """Where an event is written: its block, its log's number in the block, its transaction."""
    tx = f"0x{item.transaction.hex()}" if item.transaction else None
    return {"text": text, "block": item.block.number, "log": item.log_index, "tx": tx}
