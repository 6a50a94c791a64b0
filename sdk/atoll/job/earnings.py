"""What an account earned in a job, round by round, and why it got nothing where it got nothing.

Rule of this file: pure; integers of wei. What was paid is what `atoll.job.books` counts of the same
events: the lines here add up to it, or the statement says that they do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from atoll.job.books import AUDITS, CREDITS, REASONS, SIGNATURES, TRAINING, keep_books
from atoll.job.event_text import MISSES, words
from atoll.protocol import events as ev
from atoll.protocol.audit_reports import Duty
from atoll.protocol.holders import Holder
from atoll.protocol.late_votes import electors, having, is_had_late, without_pay
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.pay import contest_reward
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.protocol.words import (
    NO_HOLDER,
    NO_ROUND,
    Address,
    HolderId,
    JobId,
    Phase,
    PlaceIndex,
    Role,
    RoundIndex,
    SeatIndex,
    bits,
)

CUTS: Final = "cuts"
"""What misses and falls took of a bond; the other reasons are those of the books."""


class State(StrEnum):
    """What became of an amount."""

    PAID = "paid"
    DUE = "due"
    """FINAL, and not claimed yet."""
    PENDING = "pending"
    LOST = "lost"
    """Earned, and taken away again; or cut from a bond."""
    UNEARNED = "not earned"


@dataclass(frozen=True, slots=True)
class Line:
    """One amount of one round.

    Attributes:
        role: None of what anybody may earn.
        index: the seat or the place.
        what: `training`, `signatures`, `audits`, `credits` or `cuts`.
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

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "round": self.round,
            "role": None if self.role is None else words(self.role),
            "index": self.index,
            "what": self.what,
            "state": str(self.state),
            "wei": str(self.wei),
            "text": self.text,
            "until": self.until,
        }


@dataclass(frozen=True, slots=True)
class Statement:
    """Everything that an account got, will get, or did not get in a job.

    Attributes:
        paid: wei by reason, as the books have it.
        faults: where the lines and the books differ; none of an honest contract.
    """

    job: JobId
    lines: tuple[Line, ...]
    paid: dict[str, int]
    faults: tuple[str, ...]

    def total(self, state: State) -> int:
        """Wei of all lines in a state, without what was cut."""
        return sum(x.wei for x in self.lines if x.state is state and x.what != CUTS)

    @property
    def cut(self) -> int:
        """Wei that misses and falls took of bonds."""
        return sum(line.wei for line in self.lines if line.what == CUTS)

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "job": self.job,
            **{f"{s.name.lower()}_wei": str(self.total(s)) for s in State},
            "cut_wei": str(self.cut),
            "paid_for_wei": {name: str(self.paid.get(name, 0)) for name in REASONS},
            "lines": [line.to_plain() for line in self.lines],
            "faults": list(self.faults),
        }


def statement(
    view: JobView, events: Sequence[ev.ContractEvent], account: Address, now: int
) -> Statement:
    """What the account has of a job.

    Args:
        view: the job after all of `events`, which are its, oldest first.
        now: the chain's clock, unix seconds.
    """
    if view.terms is None:
        return Statement(view.job_id, (), {}, ())
    lines = [*_Lines(view, account, now).all(), *_credits(view, events, account)]
    lines += _cuts(view, events, account)
    lines.sort(key=lambda line: (line.round, -1 if line.role is None else line.role, line.index))
    books = keep_books(view, events)
    paid = dict(books.paid.get(account, {}))
    return Statement(view.job_id, tuple(lines), paid, (*books.faults, *_differences(lines, paid)))


def _differences(lines: Sequence[Line], paid: dict[str, int]) -> Iterator[str]:
    for what in REASONS:
        own = sum(line.wei for line in lines if line.what == what and line.state is State.PAID)
        if own != paid.get(what, 0):
            yield f"{own} wei of {what} are told, and {paid.get(what, 0)} are in the books"


def jobs_of(events: Iterable[ev.ContractEvent], account: Address) -> list[JobId]:
    """Jobs in which the account had a part, or won something."""
    has_part = (ev.Seated, ev.Enrolled, ev.Credited)
    own = (e for e in events if isinstance(e, has_part) and e.account == account)
    return sorted({event.job_id for event in own})


@dataclass(frozen=True)
class _Lines:
    view: JobView
    account: Address
    now: int

    def all(self) -> Iterator[Line]:
        """Of every round that a holder of the account counted in."""
        for role in Role:
            for id in sorted(self.view.ids_of(self.account, role)):
                holder = self.view.holders(role)[id]
                for past in self.view.settled:
                    yield from self._of(holder, past)
                if self.view.open is not None:
                    yield from self._running(holder, self.view.open)

    def _of(self, holder: Holder, past: SettledRound) -> Iterator[Line]:
        if holder.role is Role.VERIFIER:
            yield from self._signature(holder, past)
            yield from self._duties(holder, past)
        elif past.seats.get(SeatIndex(holder.index)) == holder.id:
            yield from self._training(holder, past)

    def _earned(self, holder: Holder, past: SettledRound, what: str, wei: int, text: str) -> Line:
        """An amount that stands as things are: paid, due, pending, or lost with a fall."""
        until = None
        if holder.role is Role.PROVIDER and past.round >= holder.lost_from:
            state, text = State.LOST, f"{text}; fell: all that was not FINAL is burnt"
        elif past.round < holder.claimed_to:
            state = State.PAID
        elif self.view.is_final(holder.role, holder.id, past.round, self.now):
            state = State.DUE
        else:
            state, until = State.PENDING, past.clock.window_end
            games = [g.id for g in self.view.games_about(holder.role, holder.id)]
            played = f"game {games[0]} is open" if games else "its window is open"
            text = f"{text}; {played}"
        return Line(past.round, holder.role, holder.index, what, state, wei, text, until)

    def _none(self, holder: Holder, past: SettledRound, what: str, wei: int, text: str) -> Line:
        where = (past.round, holder.role, holder.index)
        return Line(*where, what, State.UNEARNED, wei, text)

    # --- providers ---

    def _training(self, holder: Holder, past: SettledRound) -> Iterator[Line]:
        terms, seat = self.view.require_terms(), SeatIndex(holder.index)
        told = past.reveals.get(seat)
        done, whole = 0 if told is None else told.segments, terms.segments
        if told is None:
            text = "no commitment, or not revealed: of a late round nothing is paid"
            yield self._none(holder, past, TRAINING, whole * terms.segment_pay, text)
            return
        if done < whole:
            wei = (whole - done) * terms.segment_pay
            text = f"partial: {done} of {whole} segments in time"
            yield self._none(holder, past, TRAINING, wei, text)
        if not done:
            return
        wei, text = done * terms.segment_pay, f"{done} of {whole} segments"
        if past.pay >> seat & 1:
            yield self._earned(holder, past, TRAINING, wei, text)
            return
        state, why = self._unpaid(past, seat)
        until = past.clock.window_end if state is State.PENDING else None
        yield Line(past.round, holder.role, seat, TRAINING, state, wei, f"{text}; {why}", until)

    def _unpaid(self, past: SettledRound, seat: SeatIndex) -> tuple[State, str]:
        if past.unearned >> seat & 1:
            return State.UNEARNED, "too short to be merged, in a round that merged nothing"
        if seat in past.leaks:
            return State.LOST, "its key was told before AUDIT ended: half went to who showed it"
        if past.struck >> seat & 1:
            shown = "a key that it had not committed to" if seat in past.keys else "no key"
            return State.LOST, f"struck: it was drawn, and showed {shown}"
        if past.facts.available >> seat & 1:
            return State.LOST, "its pay was taken"
        return self._not_had(past, seat)

    def _not_had(self, past: SettledRound, seat: SeatIndex) -> tuple[State, str]:
        """Who said to have its update, in time or late: late votes may pay it until AUDIT ends."""
        had = sum(bool(said >> seat & 1) for said in past.words.values())
        text = f"not had: {had} of {past.facts.committee.bit_count()} said to have its update"
        asked, have = electors(self.view, past), having(self.view, past, seat)
        if any(said >> seat & 1 for said in past.late.values()):
            text += f", with late votes {have.bit_count()} of {asked.bit_count()}"
        is_enough = is_had_late(self.view, past, seat)
        if seat not in without_pay(self.view, past, self.now):
            late = ", enough, and nobody sent the grant before AUDIT ended" * is_enough
            return State.UNEARNED, text + late
        left = past.clock.audit_end - self.now
        if is_enough:
            return State.PENDING, f"{text}, enough: paid if the grant is sent within {left} s"
        return State.PENDING, f"{text}; late votes may still grant it in {left} s"

    # --- verifiers ---

    def _signature(self, holder: Holder, past: SettledRound) -> Iterator[Line]:
        fee, place = self.view.require_terms().sign_fee, past.place_of(holder.id)
        if place is None or not past.facts.committee >> place & 1:
            return
        if past.signers >> place & 1:
            yield self._earned(holder, past, SIGNATURES, fee, "signed the merge")
            return
        state, why = self._unsigned(past, place)
        yield Line(past.round, holder.role, place, SIGNATURES, state, fee, why)

    def _unsigned(self, past: SettledRound, place: PlaceIndex) -> tuple[State, str]:
        if not any(past.digest):
            return State.UNEARNED, "settled without a certificate: nobody signed"
        if not past.unsigned >> place & 1:
            return State.UNEARNED, "no signature: its word lacked an update that most had"
        is_last, is_over = past is self.view.settled[-1], self.view.phase is Phase.CLOSED
        if is_last and (not is_over or self.now < past.clock.audit_end):
            end = "AUDIT ends" if is_over else "the next settlement"
            return State.PENDING, f"no signature yet: taken until {end}"
        return State.UNEARNED, "no signature"

    def _duties(self, holder: Holder, past: SettledRound) -> Iterator[Line]:
        fee, body = self.view.require_terms().duty_fee, past.bodies.get(holder.id)
        for seat in past.duties_of(holder.id):
            duty = None if body is None else body.of(seat)
            if duty is None:
                yield self._unsaid(holder, past, seat, fee)
            elif (holder.id, seat) in past.contests:
                yield self._contested(holder, past, seat, fee)
            elif not duty.is_fine:
                yield self._accusation(holder, past, duty, fee)
            else:
                text = f"audited seat {seat}: {_said(duty)}"
                yield self._earned(holder, past, AUDITS, fee, text)

    def _accusation(self, holder: Holder, past: SettledRound, duty: Duty, fee: int) -> Line:
        """What a *differs* earns, which is credited once its seat has fallen."""
        where, text = (past.round, holder.role, holder.index, AUDITS), f"audited seat {duty.seat}"
        text += f": {_said(duty)}"
        if (holder.id, duty.seat) in past.proven:
            return Line(*where, State.UNEARNED, 0, f"{text}; it fell, and the fee came as credit")
        if self.view.providers[past.seats[duty.seat]].has_fallen:
            return Line(*where, State.PENDING, fee, f"{text}; it fell: not yet credited")
        if self.now < past.clock.window_end:
            text += "; it earns once the seat has fallen"
            return Line(*where, State.PENDING, fee, text, past.clock.window_end)
        return Line(*where, State.UNEARNED, fee, f"{text}; the seat has not fallen")

    def _unsaid(self, holder: Holder, past: SettledRound, seat: SeatIndex, fee: int) -> Line:
        where, clock = (past.round, holder.role, holder.index, AUDITS), past.clock
        about = f"audit of seat {seat}"
        if self.now < clock.audit_end:
            text = f"{about}: an audit report is taken for {clock.audit_end - self.now} s more"
            return Line(*where, State.PENDING, fee, text, clock.window_end)
        if holder.id not in past.audit_reports:
            return self._none(holder, past, AUDITS, fee, f"{about}: missed, no audit report")
        if holder.id in past.bodies:
            return self._none(holder, past, AUDITS, fee, f"{about}: left out of what was opened")
        if self.now < clock.open_end:
            text = f"{about}: the audit report can be opened for {clock.open_end - self.now} s more"
            return Line(*where, State.PENDING, fee, text, clock.window_end)
        return self._none(
            holder, past, AUDITS, fee, f"{about}: missed, the audit report was not opened"
        )

    def _contested(self, holder: Holder, past: SettledRound, seat: SeatIndex, fee: int) -> Line:
        contest = past.contests[holder.id, seat]
        where, text = (past.round, holder.role, holder.index, AUDITS), f"audited seat {seat}"
        if contest.is_wrong is None:
            text += f": contested by {contest.by}, not decided before the seat's round is FINAL"
            return Line(*where, State.PENDING, fee, text, past.clock.window_end)
        if contest.is_wrong:
            return Line(*where, State.LOST, fee, f"{text}: wrong words, shown by {contest.by}")
        return Line(
            *where, State.UNEARNED, 0, f"{text}: contested, and the fee came back as credit"
        )

    # --- the round that runs ---

    def _running(self, holder: Holder, running: OpenRound) -> Iterator[Line]:
        terms, index = self.view.require_terms(), holder.index
        where, wei = (running.round, holder.role, index), terms.segments * terms.segment_pay
        seat, pending = SeatIndex(index), State.PENDING
        if holder.role is Role.PROVIDER and running.seats.get(seat) == holder.id:
            if running.stopped >> seat & 1:
                text = "left the round before its commitment"
                yield Line(*where, TRAINING, State.UNEARNED, wei, text)
            elif seat in running.reveals:
                wei = running.reveals[seat].segments * terms.segment_pay
                yield Line(*where, TRAINING, pending, wei, "revealed; the round is not settled")
            elif running.standing >> seat & 1:
                text = f"at most: the round runs ({running.phase.name})"
                yield Line(*where, TRAINING, pending, wei, text)
            else:
                text = f"missed: it owed the phase before {running.phase.name}"
                yield Line(*where, TRAINING, State.UNEARNED, wei, text)
        for place in bits(running.committee) if running.phase is Phase.MERGE else ():
            if holder.role is Role.VERIFIER and running.places[PlaceIndex(place)] == holder.id:
                text = "of the committee; the round is not settled"
                yield Line(*where, SIGNATURES, pending, terms.sign_fee, text)


def _said(duty: Duty) -> str:
    return "fine" if duty.is_fine else f"differs at segment {duty.at}"


def _credits(view: JobView, events: Sequence[ev.ContractEvent], account: Address) -> Iterator[Line]:
    """What it won by contests and by keys that were told too early; and fees that came back.

    What is claimed is all that was credited by then.
    """
    waiting: list[Line] = []
    scored: set[tuple[HolderId, RoundIndex]] = set()
    for event in events:
        if isinstance(event, ev.ContestSettled):
            waiting += _contest(view, event, account, scored)
        elif isinstance(event, ev.Proven) and view.verifiers[event.id].account == account:
            text = f"said that seat {event.seat} differs, and it fell"
            where = (event.round, None, event.seat, CREDITS, State.DUE)
            waiting.append(Line(*where, view.require_terms().duty_fee, text))
        elif isinstance(event, ev.CreditClaimed) and event.account == account:
            yield from (replace(line, state=State.PAID) for line in waiting)
            waiting = []
    yield from waiting


def _leak(view: JobView, event: ev.ContestSettled) -> Line:
    told = view.settled[event.round].reveals[event.seat]
    wei = told.segments * view.require_terms().segment_pay // 2
    text = f"showed the key of seat {event.seat} before AUDIT ended: half of its pay"
    return Line(event.round, None, event.seat, CREDITS, State.DUE, wei, text)


def _contest(
    view: JobView,
    event: ev.ContestSettled,
    account: Address,
    scored: set[tuple[HolderId, RoundIndex]],
) -> Iterator[Line]:
    """An auditor's fee that came back, or what its first wrong word of a round is worth."""
    if event.id == NO_HOLDER:
        if event.wrong and view.settled[event.round].leaks[event.seat] == account:
            yield _leak(view, event)
        return
    author, at = view.verifiers[event.id], (event.id, event.round)
    where = (event.round, None, event.seat, CREDITS, State.DUE)
    if not event.wrong:
        if author.account == account:
            text = f"audited seat {event.seat}: its holder fell, so the contested fee came back"
            yield Line(*where, view.require_terms().duty_fee, text)
        return
    contest = view.settled[event.round].contests[event.id, event.seat]
    if at in scored or view.params is None:
        return
    scored.add(at)
    if contest.by == account:
        text = f"showed wrong words of {author.account} about seat {event.seat}"
        yield Line(*where, contest_reward(view.require_terms(), view.params), text)


def _cuts(view: JobView, events: Sequence[ev.ContractEvent], account: Address) -> Iterator[Line]:
    """What misses and falls took of its bonds."""
    for event in events:
        if not isinstance(event, ev.Missed | ev.Fell) or event.account != account:
            continue
        index = view.holders(event.role)[event.id].index
        if isinstance(event, ev.Missed):
            text, round, wei = f"cut for {MISSES[event.kind]}", event.round, event.cut
        else:
            text, round, wei = f"fell to {event.winner}", event.lost_from, event.slashed
            if round == NO_ROUND:
                round = view.round
        yield Line(round, event.role, index, CUTS, State.LOST, wei, text)
