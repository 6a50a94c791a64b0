"""What became of each round of a job, as its submitter asks for it: who was there, what was merged,
who was audited, and what it costs.

Rule of this file: pure; everything follows from the job's view and the chain's clock.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from atoll.errors import ConfigError
from atoll.job.event_text import final_rounds, numbers, tokens
from atoll.job.figures import paid_seats
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.pay import round_pay
from atoll.protocol.safety import last_safe, unsafe_rounds
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.protocol.words import NO_BITS, Bitmap, SeatIndex, bits, to_bitmap


@dataclass(frozen=True, slots=True)
class RoundStory:
    """One round; seats as bitmaps, but for `committee` and `signed`, which are places.

    Attributes:
        phase: train, reveal or merge; of a settled one what its audit waits for: audit (audit
        reports),
            open, keys, window, game; final, where nothing changes any more.
        until: unix seconds at which that is over at the latest; 0 where it is, or a game decides.
        done: seats that have done by now what the phase asks for; revealed ones of a settled round.
        had: whose updates more than half of the committee had; `excluded` of the merge of these.
        drawn: to be audited; `fine` and `differs` what was opened about them.
        paid: as things stand; `fell` those whose holders lost the round.
        is_unsafe: more fell than the merge bears.
        cost_wei: pay and fees, as things stand.
    """

    round: int
    phase: str
    until: int
    seated: Bitmap
    done: Bitmap
    committee: Bitmap
    committee_draw: int = 0
    had: Bitmap = NO_BITS
    excluded: Bitmap = NO_BITS
    merged: int = 0
    model: str = ""
    signed: Bitmap = NO_BITS
    drawn: Bitmap = NO_BITS
    fine: Bitmap = NO_BITS
    differs: Bitmap = NO_BITS
    paid: Bitmap = NO_BITS
    fell: Bitmap = NO_BITS
    is_unsafe: bool = False
    cost_wei: int = 0

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it: lists of seats and places, wei as text."""
        plain = asdict(self)
        return (
            plain
            | {name: bits(plain[name]) for name in _BITMAPS}
            | {"cost_wei": str(self.cost_wei)}
        )

    def row(self, now: int) -> dict[str, object]:
        """A line of a table."""
        left = f" {self.until - now} s" if self.until > now else ""
        audits = f"{numbers(self.drawn)}: {numbers(self.fine)} fine"
        audits += f", {numbers(self.differs)} differ" if self.differs else ""
        return {
            "round": self.round,
            "phase": self.phase + left + (", unsafe" if self.is_unsafe else ""),
            "there": f"{numbers(self.done)} of {numbers(self.seated)}",
            "had": numbers(self.had),
            "excluded": numbers(self.excluded),
            "audited": audits if self.drawn else "",
            "paid": numbers(self.paid),
            "fell": numbers(self.fell),
            "cost": tokens(self.cost_wei),
        }


_BITMAPS = (
    "seated", "done", "committee", "had", "excluded", "signed", "drawn", "fine", "differs", "paid",
    "fell",
)  # fmt: skip


def safe_round(view: JobView) -> int | None:
    """The last round after which the model is safe; None where that is the newest there is.

    Raises:
        ConfigError: more fell in the first round than its merge bears.
    """
    before = last_safe(view).before
    if before == len(view.settled):
        return None
    if before == 0:
        raise ConfigError(
            f"job {view.job_id} has no safe model: more fell in its first round than that bears",
            next_step="submit the job's file anew, with --again",
        )
    return before - 1


def tell_rounds(view: JobView, now: int) -> list[RoundStory]:
    """Every round that was opened, oldest first; the open one last."""
    unsafe, final = set(unsafe_rounds(view)), final_rounds(view, now)
    found = [
        _settled(view, past, _phase(past, now, is_final=past.round < final), past.round in unsafe)
        for past in view.settled
    ]
    return found if view.open is None else [*found, _running(view.open)]


def _phase(past: SettledRound, now: int, *, is_final: bool) -> tuple[str, int]:
    clock = past.clock
    ends = (clock.audit_end, clock.open_end, clock.keys_end, clock.window_end)
    for name, end in zip(("audit", "open", "keys", "window"), ends, strict=True):
        if now < end:
            return name, end
    return ("final" if is_final else "game"), 0


def _running(running: OpenRound) -> RoundStory:
    done = {"TRAIN": running.committed, "REVEAL": running.revealed}
    return RoundStory(
        round=running.round,
        phase=running.phase.name.lower(),
        until=running.deadline,
        seated=running.seated,
        done=done.get(running.phase.name, running.revealed),
        committee=running.committee,
        committee_draw=running.committee_draw,
        had=running.available,
    )


def _settled(
    view: JobView, past: SettledRound, phase: tuple[str, int], is_unsafe: bool
) -> RoundStory:
    duties = [duty for body in past.bodies.values() for duty in body.duties]
    differs = to_bitmap(duty.seat for duty in duties if not duty.is_fine)
    fell = (s for s, told in past.reveals.items() if _has_lost(view, past, s))
    return RoundStory(
        round=past.round,
        phase=phase[0],
        until=phase[1],
        seated=to_bitmap(past.seats),
        done=past.facts.revealed,
        committee=past.facts.committee,
        had=past.facts.available,
        excluded=past.verdict.excluded,
        merged=past.verdict.merged,
        model=past.verdict.state.hex(),
        signed=past.signers,
        drawn=past.drawn,
        fine=Bitmap(to_bitmap(duty.seat for duty in duties if duty.is_fine) & ~differs),
        differs=differs,
        paid=to_bitmap(paid_seats(view, past)),
        fell=to_bitmap(fell),
        is_unsafe=is_unsafe,
        cost_wei=_cost(view, past),
    )


def _has_lost(view: JobView, past: SettledRound, seat: SeatIndex) -> bool:
    return view.providers[past.reveals[seat].holder].lost_from <= past.round


def _cost(view: JobView, past: SettledRound) -> int:
    """Pay that stands, and fees; what falls took is burnt and costs as much."""
    terms = view.require_terms()
    holders = [view.providers[told.holder] for told in past.reveals.values()]
    holders += [view.verifiers[id] for id in dict.fromkeys(past.places.values())]
    return sum(round_pay(terms, past, holder) for holder in holders)
