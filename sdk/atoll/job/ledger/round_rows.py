"""What became of each round of a job: who was there, what was merged, who was audited, and what it
costs.

Rule of this file: pure; everything follows from the job's ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from atoll.errors import ConfigError
from atoll.job.event_text import Names
from atoll.job.job_snapshot import final_rounds
from atoll.job.ledger.entries import PHASES, RoundTimes
from atoll.job.ledger.ledger import Ledger, paid_seats
from atoll.job.serialization import plain_of
from atoll.job.signs import merged_seats
from atoll.protocol.pay import round_pay
from atoll.protocol.safety import last_safe, unsafe_rounds
from atoll.protocol.views import JobView, OpenRound, SettledRound
from atoll.protocol.words import NO_BITS, Address, Bitmap, SeatIndex, bits, to_bitmap
from atoll.storage.cid import cid_text


@dataclass(frozen=True, slots=True)
class Accusation:
    """An opened report's *differs*, by `account`; of the update itself where it is a link."""

    seat: SeatIndex
    segment: int
    is_link: bool
    account: Address

    def to_plain(self, name: Names) -> dict[str, Any]:
        """For JSON."""
        return plain_of(self) | {"auditor": name(self.account)}


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round; seats as bitmaps, but for `committee` and `signed`, which are places.

    Attributes:
        phase: train, reveal or merge; of a settled one what its audit waits for: audit (audit
            reports), open, keys, window, game; final, where nothing changes any more; void, where
            nobody took part and it has not opened again.
        until: unix seconds at which that is over at the latest; 0 where it is, or a game decides.
        available: whose updates more than half of the committee had; `excluded` of the merge of
            these, `named` by the checks alone; `merged_seats` those that the rule merged.
        merged: how many these are, as certified.
        drawn: to be audited; `valid` what was opened about them, `accusations` the others.
        paid: as things stand; `slashed` those whose holders lost the round.
        is_unsafe: more fell than the merge bears.
        is_consistent: the certificate's facts are those that the events give.
        cost_wei: pay and fees, as things stand.
    """

    round: int
    phase: str
    until: int
    times: RoundTimes
    seated: Bitmap = NO_BITS
    committed: Bitmap = NO_BITS
    revealed: Bitmap = NO_BITS
    committee: Bitmap = NO_BITS
    available: Bitmap = NO_BITS
    excluded: Bitmap = NO_BITS
    named: Bitmap = NO_BITS
    merged: int = 0
    merged_seats: Bitmap = NO_BITS
    signed: Bitmap = NO_BITS
    drawn: Bitmap = NO_BITS
    valid: Bitmap = NO_BITS
    accusations: tuple[Accusation, ...] = ()
    paid: Bitmap = NO_BITS
    slashed: Bitmap = NO_BITS
    is_unsafe: bool = False
    is_consistent: bool | None = None
    cost_wei: int = 0
    model_digest: str | None = None
    model_cid: str | None = None
    certificate: str | None = None

    @property
    def mismatch(self) -> Bitmap:
        """Seats that are accused."""
        return to_bitmap(item.seat for item in self.accusations)

    def to_plain(self, name: Names = str) -> dict[str, Any]:
        """As JSON has it: lists of seats and places, wei as text."""
        plain = {item.name: getattr(self, item.name) for item in fields(self)}
        times = plain.pop("times")
        return (
            plain
            | {key: bits(plain[key]) for key in _BITMAPS}
            | {
                "mismatch": bits(self.mismatch),
                "accusations": [item.to_plain(name) for item in self.accusations],
                "cost_wei": str(self.cost_wei),
                "status": times.status,
                "started": times.started,
                "ended": times.ended,
                "seconds": {phase: times.seconds[phase] for phase in PHASES},
                "voids": times.voids,
                "committee_draws": times.committee_draws,
            }
        )


_BITMAPS: Final = (
    "seated", "committed", "revealed", "committee", "available", "excluded", "named",
    "merged_seats", "signed", "drawn", "valid", "paid", "slashed",
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


def round_rows(ledger: Ledger) -> list[RoundRow]:
    """Every round that was opened, oldest first; the open one last."""
    view, now = ledger.view, ledger.now
    unsafe, final = set(unsafe_rounds(view)), final_rounds(view, now)
    rows = [
        _settled(
            ledger,
            settled,
            _phase(settled, now, is_final=settled.round < final),
            is_unsafe=settled.round in unsafe,
        )
        for settled in view.settled
    ]
    if view.open is not None:
        rows.append(_running(view.open, ledger.times[view.open.round]))
    shown = len(rows)
    void = (index for index in sorted(ledger.times) if index >= shown)
    return [*rows, *(RoundRow(index, "void", 0, ledger.times[index]) for index in void)]


def _phase(settled: SettledRound, now: int, *, is_final: bool) -> tuple[str, int]:
    clock = settled.clock
    ends = (clock.audit_end, clock.open_end, clock.keys_end, clock.window_end)
    for name, end in zip(("audit", "open", "keys", "window"), ends, strict=True):
        if now < end:
            return name, end
    return ("final" if is_final else "game"), 0


def _running(running: OpenRound, times: RoundTimes) -> RoundRow:
    return RoundRow(
        round=running.round,
        phase=running.phase.name.lower(),
        until=running.deadline,
        times=times,
        seated=running.seated,
        committed=running.committed,
        revealed=running.revealed,
        committee=running.committee,
        available=running.available,
    )


def _settled(
    ledger: Ledger, settled: SettledRound, phase: tuple[str, int], *, is_unsafe: bool
) -> RoundRow:
    view, verdict, facts = ledger.view, settled.verdict, settled.facts
    accusations = tuple(_accusations(view, settled))
    logs = ledger.seat_logs.get(settled.round, {})
    return RoundRow(
        round=settled.round,
        phase=phase[0],
        until=phase[1],
        times=ledger.times[settled.round],
        seated=to_bitmap(settled.seats),
        committed=to_bitmap(SeatIndex(seat) for seat, said in logs.items() if "commit" in said),
        revealed=facts.revealed,
        committee=facts.committee,
        available=facts.available,
        excluded=verdict.excluded,
        named=Bitmap(verdict.excluded & ~settled.accused),
        merged=verdict.merged,
        merged_seats=to_bitmap(merged_seats(view, settled)),
        signed=settled.signers,
        drawn=settled.drawn,
        valid=Bitmap(_called_valid(settled) & ~to_bitmap(item.seat for item in accusations)),
        accusations=accusations,
        paid=to_bitmap(paid_seats(view, settled)),
        slashed=to_bitmap(seat for seat in settled.reveals if _has_lost(view, settled, seat)),
        is_unsafe=is_unsafe,
        is_consistent=settled.is_consistent,
        cost_wei=_cost(view, settled),
        model_digest=verdict.state.hex(),
        model_cid=cid_text(verdict.cid) if verdict.cid else None,
        certificate=settled.digest.hex() if any(settled.digest) else None,
    )


def _accusations(view: JobView, settled: SettledRound) -> list[Accusation]:
    return [
        Accusation(
            duty.seat,
            duty.at,
            duty.at == settled.reveals[duty.seat].segments,
            view.verifiers[auditor].account,
        )
        for auditor, body in settled.bodies.items()
        for duty in body.duties
        if not duty.is_fine
    ]


def _called_valid(settled: SettledRound) -> Bitmap:
    """Seats that an opened report calls fine, in words that nobody has contested."""
    return to_bitmap(
        duty.seat
        for auditor, body in settled.bodies.items()
        for duty in body.duties
        if duty.is_fine and (auditor, duty.seat) not in settled.contests
    )


def _has_lost(view: JobView, settled: SettledRound, seat: SeatIndex) -> bool:
    return view.providers[settled.reveals[seat].holder].lost_from <= settled.round


def _cost(view: JobView, settled: SettledRound) -> int:
    """Pay that stands, and fees; what falls took is burnt and costs as much."""
    terms = view.require_terms()
    holders = [view.providers[reveal.holder] for reveal in settled.reveals.values()]
    holders += [view.verifiers[id] for id in dict.fromkeys(settled.places.values())]
    return sum(round_pay(terms, settled, holder) for holder in holders)
