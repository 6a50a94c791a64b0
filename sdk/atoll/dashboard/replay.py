"""How a job stood after each of its events: what a page's slider goes through.

Rule of this file: pure; sums of what the events themselves say, so that the last standing has the
books' own numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.protocol import events as ev

PHASES: dict[type, str] = {
    ev.RoundOpened: "train",
    ev.RevealOpened: "reveal",
    ev.MergeOpened: "merge",
}


@dataclass(slots=True)
class Standing:
    """A job at one moment.

    Attributes:
        round: the newest that has begun.
        phase: waiting, train, reveal or merge; settled between rounds; closed.
        taken: wei that misses and falls took from bonds; `games` open ones.
    """

    round: int | None = None
    phase: str = "waiting"
    settled: int = 0
    funded: int = 0
    paid: int = 0
    burnt: int = 0
    refunded: int = 0
    taken: int = 0
    games: int = 0

    def to_plain(self) -> dict[str, Any]:
        """For JSON: wei as text."""
        amounts = ("funded", "paid", "burnt", "refunded", "taken")
        return {
            "round": self.round,
            "phase": self.phase,
            "settled": self.settled,
            "games": self.games,
            **{f"{name}_wei": str(getattr(self, name)) for name in amounts},
        }

    def fold(self, event: ev.ContractEvent) -> None:
        """One event of the job, or of a game about it."""
        match event:
            case ev.RoundOpened() | ev.RevealOpened() | ev.MergeOpened():
                self.round, self.phase = event.round, PHASES[type(event)]
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
                    setattr(self, kind, getattr(self, kind) + wei)


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
            yield "taken", event.cut
        case ev.Fell():
            yield "taken", event.slashed
        case _:
            pass


def standings(events: Sequence[ev.ContractEvent]) -> list[dict[str, Any]]:
    """How the job stood after each of them, oldest first."""
    found, now = [], Standing()
    for event in events:
        now.fold(event)
        found.append(now.to_plain())
    return found
