"""What an account earned in a job, round by round, and why it got nothing where it got nothing.

Rule of this file: pure; integers of wei. What was paid is what the ledger counts of the same
events: the lines here add up to it, or the statement says that they do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from atoll.job.ledger.entries import (
    AUDITS,
    PENALTIES,
    REASONS,
    SIGNATURES,
    TRAINING,
    Line,
    Loss,
    State,
)
from atoll.job.ledger.ledger import Ledger
from atoll.job.serialization import plain_of
from atoll.job.stake import home_of
from atoll.protocol import events as ev
from atoll.protocol.audit_reports import AuditEntry
from atoll.protocol.holders import Holder
from atoll.protocol.late_votes import electors, having, is_available_late, without_pay
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Address, JobId, Phase, Role, SeatIndex, SlotIndex, Terms, bits
from atoll.protocol.views import JobView


@dataclass(frozen=True, slots=True)
class Retained:
    """Pay that a seat's bond holds.

    Attributes:
        free_at: unix seconds from which on it can be released with the bond; None where nobody
            knows yet. `text` says why.
    """

    wei: int
    free_at: int | None
    text: str

    def to_json_value(self) -> dict[str, Any]:
        """For JSON."""
        return plain_of(self)


@dataclass(frozen=True, slots=True)
class Statement:
    """Everything that an account got, will get, or did not get in a job.

    Attributes:
        paid: wei by reason, as the ledger counts it.
        faults: where the lines and the ledger differ; none of an honest contract.
        retained: what of it the account's bonds still hold.
    """

    job: JobId
    lines: tuple[Line, ...]
    paid: dict[str, int]
    faults: tuple[str, ...]
    retained: tuple[Retained, ...] = ()

    def total(self, state: State) -> int:
        """Wei of all lines in a state, without what was taken."""
        return sum(x.wei for x in self.lines if x.state is state and x.what != PENALTIES)

    @property
    def penalty(self) -> int:
        """Wei that missed duties and slashes took of bonds."""
        return sum(line.wei for line in self.lines if line.what == PENALTIES)

    def to_json_value(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "job": self.job,
            **{f"{s.name.lower()}_wei": str(self.total(s)) for s in State},
            "penalty_wei": str(self.penalty),
            "retained_wei": str(sum(each.wei for each in self.retained)),
            "retained": [each.to_json_value() for each in self.retained],
            "paid_for_wei": {name: str(self.paid.get(name, 0)) for name in REASONS},
            "lines": [line.to_json_value() for line in self.lines],
            "faults": list(self.faults),
        }


def statement(ledger: Ledger, account: Address) -> Statement:
    """What the account has of a job."""
    view, now = ledger.view, ledger.now
    if view.terms is None:
        return Statement(view.job_id, (), {}, ())
    lines = [line for holder in _holders(view, account) for line in _Lines(view, now, holder).all()]
    lines += ledger.payments.credits.get(account, ())
    lines += (_cut(loss) for loss in ledger.losses if loss.account == account)
    lines.sort(key=lambda line: (line.round, -1 if line.role is None else line.role, line.index))
    paid = dict(ledger.paid(account))
    held = tuple(_retained(view, account, now))
    faults = (*ledger.faults, *_differences(lines, paid))
    return Statement(view.job_id, tuple(lines), paid, faults, held)


def _retained(view: JobView, account: Address, now: int) -> Iterator[Retained]:
    for holder in _holders(view, account):
        if holder.retained and not (holder.is_released or holder.is_slashed):
            free_at, text = home_of(view, holder, now)
            yield Retained(int(holder.retained), free_at, text)


def _holders(view: JobView, account: Address) -> Iterator[Holder]:
    for role in Role:
        holders = view.holders(role)
        yield from (holders[id] for id in sorted(view.ids_of(account, role)))


def _cut(loss: Loss) -> Line:
    text = (
        f"penalised for {loss.why}"
        if loss.missed_duty is not None
        else f"slashed for {loss.winner}: {loss.why}"
    )
    return Line(loss.round, loss.role, loss.index, PENALTIES, State.LOST, loss.wei, text)


def _differences(lines: Sequence[Line], paid: dict[str, int]) -> Iterator[str]:
    for what in REASONS:
        listed = sum(line.wei for line in lines if line.what == what and line.state is State.PAID)
        if listed != paid.get(what, 0):
            yield f"{listed} wei of {what} are listed, and {paid.get(what, 0)} were paid"


def jobs_of(events: Iterable[ev.ContractEvent], account: Address) -> list[JobId]:
    """Jobs in which the account had a part, or won something."""
    has_part = (ev.Seated, ev.Enrolled, ev.Credited)
    parts = (e for e in events if isinstance(e, has_part) and e.account == account)
    return sorted({event.job_id for event in parts})


@dataclass(frozen=True)
class _Lines:
    """The lines of one holder of a seat or a slot."""

    view: JobView
    now: int
    holder: Holder

    @property
    def terms(self) -> Terms:
        return self.view.require_terms()

    def all(self) -> Iterator[Line]:
        """Of every round that the holder counted in, the open one last."""
        holder, seat, running = self.holder, SeatIndex(self.holder.index), self.view.open
        for settled in self.view.settled:
            if holder.role is Role.VERIFIER:
                yield from self._signature(settled)
                yield from self._duties(settled)
            elif settled.seats.get(seat) == holder.id:
                yield from self._training(settled, seat)
        if running is None:
            return
        if holder.role is Role.VERIFIER:
            yield from self._on_committee(running)
        elif running.seats.get(seat) == holder.id:
            yield self._running(running, seat)

    def _line(
        self, settled: SettledRound | OpenRound, what: str, state: State, wei: int, text: str
    ) -> Line:
        """Where no more is known, what is pending is FINAL with the round's window."""
        holder, until = self.holder, None
        if state is State.PENDING and isinstance(settled, SettledRound):
            until = settled.clock.window_end
        return Line(settled.round, holder.role, holder.index, what, state, wei, text, until)

    def _earned(self, settled: SettledRound, what: str, wei: int, text: str) -> Line:
        """An amount that stands as things are: paid, due, pending, or lost with a slash."""
        holder = self.holder
        if holder.role is Role.PROVIDER and settled.round >= holder.lost_from:
            state, text = State.LOST, f"{text}; slashed: all that was not FINAL is burnt"
        elif settled.round < holder.claimed_to:
            state = State.PAID
        elif self.view.is_final(holder.role, holder.id, settled.round, self.now):
            state = State.DUE
        else:
            games = [g.id for g in self.view.games_about(holder.role, holder.id)]
            played = f"game {games[0]} is open" if games else "its window is open"
            state, text = State.PENDING, f"{text}; {played}"
        return self._line(settled, what, state, wei, text)

    # --- providers ---

    def _training(self, settled: SettledRound, seat: SeatIndex) -> Iterator[Line]:
        price, reveal = self.terms.segment_pay, settled.reveals.get(seat)
        whole = self.terms.segments
        if reveal is None:
            text = "no commitment, or not revealed: of a late round nothing is paid"
            yield self._line(settled, TRAINING, State.UNEARNED, whole * price, text)
            return
        segments = reveal.segments
        if segments < whole:
            wei, text = (
                (whole - segments) * price,
                f"partial: {segments} of {whole} segments in time",
            )
            yield self._line(settled, TRAINING, State.UNEARNED, wei, text)
        if not segments:
            return
        text = f"{segments} of {whole} segments"
        if settled.pay >> seat & 1:
            yield self._earned(settled, TRAINING, segments * price, text)
            return
        state, why = self._unpaid(settled, seat)
        yield self._line(settled, TRAINING, state, segments * price, f"{text}; {why}")

    def _unpaid(self, settled: SettledRound, seat: SeatIndex) -> tuple[State, str]:
        if settled.unearned >> seat & 1:
            return State.UNEARNED, "too short to be merged, in a round that merged nothing"
        if seat in settled.leaks:
            return State.LOST, "its key was told before AUDIT ended: half went to who showed it"
        if settled.struck >> seat & 1:
            shown = "a key that it had not committed to" if seat in settled.keys else "no key"
            return State.LOST, f"struck: it was drawn, and showed {shown}"
        if settled.record.available >> seat & 1:
            return State.LOST, "its pay was taken"
        return self._unavailable(settled, seat)

    def _unavailable(self, settled: SettledRound, seat: SeatIndex) -> tuple[State, str]:
        """Who said to have its update, in time or late: late votes may pay it until AUDIT ends."""
        votes_for = sum(bool(has >> seat & 1) for has in settled.votes.values())
        members = settled.record.committee.bit_count()
        text = f"not available: {votes_for} of {members} said to have its update"
        asked, have = electors(self.view, settled), having(self.view, settled, seat)
        if any(has >> seat & 1 for has in settled.late.values()):
            text += f", with late votes {have.bit_count()} of {asked.bit_count()}"
        is_enough = is_available_late(self.view, settled, seat)
        if seat not in without_pay(self.view, settled, self.now):
            late = ", enough, and nobody sent the grant before AUDIT ended" * is_enough
            return State.UNEARNED, text + late
        left = settled.clock.audit_end - self.now
        if is_enough:
            return State.PENDING, f"{text}, enough: paid if the grant is sent within {left} s"
        return State.PENDING, f"{text}; late votes may still grant it in {left} s"

    def _running(self, running: OpenRound, seat: SeatIndex) -> Line:
        wei, state = self.terms.segments * self.terms.segment_pay, State.PENDING
        if running.stopped >> seat & 1:
            state, text = State.UNEARNED, "left the round before its commitment"
        elif seat in running.reveals:
            wei = running.reveals[seat].segments * self.terms.segment_pay
            text = "revealed; the round is not settled"
        elif running.standing >> seat & 1:
            text = f"at most: the round runs ({running.phase.name})"
        else:
            state, text = State.UNEARNED, f"missed: it owed the phase before {running.phase.name}"
        return self._line(running, TRAINING, state, wei, text)

    # --- verifiers ---

    def _signature(self, settled: SettledRound) -> Iterator[Line]:
        fee, slot = self.terms.sign_fee, settled.slot_of(self.holder.id)
        if slot is None or not settled.record.committee >> slot & 1:
            return
        if settled.signers >> slot & 1:
            yield self._earned(settled, SIGNATURES, fee, "signed the merge")
            return
        state, why = State.UNEARNED, "no signature"
        is_last, is_over = settled is self.view.settled[-1], self.view.phase is Phase.CLOSED
        if not any(settled.digest):
            why = "settled without a certificate: nobody signed"
        elif not settled.unsigned >> slot & 1:
            why = "no signature: its vote lacked an update that most had"
        elif is_last and (not is_over or self.now < settled.clock.audit_end):
            end = "AUDIT ends" if is_over else "the next settlement"
            state, why = State.PENDING, f"no signature yet: taken until {end}"
        yield replace(self._line(settled, SIGNATURES, state, fee, why), until=None)

    def _on_committee(self, running: OpenRound) -> Iterator[Line]:
        if running.phase is not Phase.MERGE:
            return
        for slot in map(SlotIndex, bits(running.committee)):
            if running.slots[slot] == self.holder.id:
                text = "of the committee; the round is not settled"
                fee = self.terms.sign_fee
                yield self._line(running, SIGNATURES, State.PENDING, fee, text)

    def _duties(self, settled: SettledRound) -> Iterator[Line]:
        fee, body = self.terms.duty_fee, settled.opened_reports.get(self.holder.id)
        for seat in settled.duties_of(self.holder.id):
            entry = None if body is None else body.of(seat)
            if entry is None:
                state, why = self._missing_report(settled)
                yield self._line(settled, AUDITS, state, fee, f"audit of seat {seat}: {why}")
            elif (self.holder.id, seat) in settled.contests:
                yield self._contested(settled, seat)
            elif not entry.is_valid:
                yield self._accusation(settled, entry)
            else:
                yield self._earned(settled, AUDITS, fee, f"audited seat {seat}: fine")

    def _missing_report(self, settled: SettledRound) -> tuple[State, str]:
        clock, id = settled.clock, self.holder.id
        if self.now < clock.audit_end:
            left = clock.audit_end - self.now
            return State.PENDING, f"an audit report is taken for {left} s more"
        if id not in settled.audit_reports:
            return State.UNEARNED, "missed, no audit report"
        if id in settled.opened_reports:
            return State.UNEARNED, "left out of what was opened"
        if self.now < clock.open_end:
            left = clock.open_end - self.now
            return State.PENDING, f"the audit report can be opened for {left} s more"
        return State.UNEARNED, "missed, the audit report was not opened"

    def _accusation(self, settled: SettledRound, entry: AuditEntry) -> Line:
        """What a *mismatch* earns, which is credited once its seat has been slashed."""
        fee, seat = self.terms.duty_fee, entry.seat
        text = f"audited seat {seat}: has a mismatch at segment {entry.at}"
        if (self.holder.id, seat) in settled.proven:
            text += "; it was slashed, and the fee came as credit"
            return self._line(settled, AUDITS, State.UNEARNED, 0, text)
        if self.view.providers[settled.seats[seat]].is_slashed:
            text += "; it was slashed: not yet credited"
            return replace(self._line(settled, AUDITS, State.PENDING, fee, text), until=None)
        if self.now < settled.clock.window_end:
            text += "; it earns once the seat has been slashed"
            return self._line(settled, AUDITS, State.PENDING, fee, text)
        return self._line(
            settled, AUDITS, State.UNEARNED, fee, f"{text}; the seat has not been slashed"
        )

    def _contested(self, settled: SettledRound, seat: SeatIndex) -> Line:
        contest, fee = settled.contests[self.holder.id, seat], self.terms.duty_fee
        text = f"audited seat {seat}"
        about = f"game {contest.game}" if contest.by is None else f"what {contest.by} has shown"
        if contest.is_wrong is None:
            text += f": waits for {about}, until the seat's round is FINAL"
            return self._line(settled, AUDITS, State.PENDING, fee, text)
        if contest.is_wrong:
            text += f": a wrong digest, or wrong about the seat, by {about}"
            return self._line(settled, AUDITS, State.LOST, fee, text)
        text += ": it waited, and the fee came back as credit"
        return self._line(settled, AUDITS, State.UNEARNED, 0, text)
