"""A job's money, from its events alone: what came in, who got what and why, what is still there.

Rule of this file: pure; integers of wei. Every amount that an event names is computed a second time
by the law of pay; where the two differ the books say so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from atoll.protocol import events as ev
from atoll.protocol.holders import Holder
from atoll.protocol.pay import contest_reward, duties_paid, seat_pay, unpaid
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.protocol.words import NO_HOLDER, SINK, Address, HolderId, Role, RoundIndex, SeatIndex

TRAINING, SIGNATURES, AUDITS, CREDITS = "training", "signatures", "audits", "credits"
REASONS: Final = (TRAINING, SIGNATURES, AUDITS, CREDITS)
"""What tokens are paid for; credits are won by contests and by keys that were shown too early."""


@dataclass(frozen=True, slots=True)
class Books:
    """What became of a job's escrow.

    Attributes:
        paid: wei by account and reason, as the law of pay computes it.
        claimed, burnt, refunded: as the events say.
        faults: sentences about what does not add up; none of an honest contract.
    """

    funded: int
    claimed: int
    burnt: int
    refunded: int
    paid: Mapping[Address, Mapping[str, int]]
    faults: tuple[str, ...]

    @property
    def balance(self) -> int:
        """What is still in escrow."""
        return self.funded - self.claimed - self.burnt - self.refunded

    def total(self, reason: str) -> int:
        """Wei that were paid for it, to everybody."""
        return sum(amounts.get(reason, 0) for amounts in self.paid.values())

    def to_plain(self) -> dict[str, object]:
        """As JSON has it, wei as text."""
        return {
            "funded_wei": str(self.funded),
            "claimed_wei": str(self.claimed),
            "burnt_wei": str(self.burnt),
            "refunded_wei": str(self.refunded),
            "balance_wei": str(self.balance),
            "paid": {
                account: {f"{reason}_wei": str(amount) for reason, amount in amounts.items()}
                for account, amounts in sorted(self.paid.items())
            },
            "faults": list(self.faults),
        }


def keep_books(view: JobView, events: Iterable[ev.ContractEvent]) -> Books:
    """The books of a job.

    Args:
        view: the job after all of them.
        events: the job's, oldest first; those of others are passed over.
    """
    ledger = _Ledger(view)
    for event in events:
        if getattr(event, "job_id", None) == view.job_id:
            ledger.enter(event)
    return ledger.close()


@dataclass
class _Ledger:
    """Books while they are kept.

    Attributes:
        claimed_to: of each holder, the first round that it has not claimed.
        lost_credits: of pay that leaks took, what is not yet counted as burnt or credited.
        credits: not yet claimed.
        scored: auditors' rounds for which a contest was rewarded.
    """

    view: JobView
    funded: int = 0
    claimed: int = 0
    burnt: int = 0
    burnt_to: int = 0
    refunded: int = 0
    lost_credits: int = 0
    paid: dict[Address, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    claimed_to: dict[tuple[Role, HolderId], RoundIndex] = field(default_factory=dict)
    credits: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    due: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    scored: set[tuple[HolderId, RoundIndex]] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def enter(self, event: ev.ContractEvent) -> None:
        """One event of the job."""
        match event:
            case ev.JobCreated():
                self.funded += event.funded
            case ev.JobFunded():
                self.funded += event.amount
            case ev.Claimed():
                self._claim(event)
            case ev.Burnt():
                self._burn(event)
            case ev.Refunded():
                self.refunded += event.amount
            case ev.Leaked():
                self._leak(event)
            case ev.ContestSettled():
                self._settle_contest(event)
            case ev.Proven():
                author = self.view.verifiers[event.id].account
                self.due[author] += self.view.require_terms().duty_fee
            case ev.Credited():
                self.credits[event.account] += event.amount
            case ev.CreditClaimed():
                self._claim_credit(event)
            case _:
                pass

    def close(self) -> Books:
        """The books, with what is found only at their end."""
        for account in sorted({*self.due, *self.credits}):
            left, due = self.credits[account], self.due[account]
            self._compare(f"{account} has credits of", left, due)
        books = Books(
            self.funded,
            self.claimed,
            self.burnt,
            self.refunded,
            {account: dict(amounts) for account, amounts in self.paid.items()},
            tuple(self.faults),
        )
        if books.balance < 0:
            return _with_fault(books, f"{-books.balance} wei left that never came in")
        return books

    # --- events ---

    def _claim(self, event: ev.Claimed) -> None:
        view, key = self.view, (event.role, event.id)
        holder = view.holders(event.role)[event.id]
        start = self.claimed_to.get(key, holder.start)
        rounds = view.settled[start : event.to]
        self.claimed_to[key] = event.to
        parts, lost = _earned(view, holder, rounds)
        for reason, amount in parts.items():
            self._pay(event.account, reason, amount)
        self.claimed += event.amount
        self.burnt += event.burnt
        who = f"{event.account}, rounds {start} to {event.to - 1},"
        self._compare(f"{who} is paid", event.amount, sum(parts.values()))
        self._compare(f"{who} has burnt", event.burnt, lost)

    def _burn(self, event: ev.Burnt) -> None:
        view = self.view
        rounds = view.settled[self.burnt_to : event.to]
        lost = sum(unpaid(view.require_terms(), past) for past in rounds)
        credited = min(self.lost_credits, lost)
        self.lost_credits -= credited
        self._compare(f"before round {event.to} is burnt", event.amount, lost - credited)
        self.burnt_to = event.to
        self.burnt += event.amount

    def _leak(self, event: ev.Leaked) -> None:
        """Half of the seat's pay is kept, and the rest is burnt with what nobody gets."""
        told = self.view.settled[event.round].reveals[event.seat]
        half = told.segments * self.view.require_terms().segment_pay // 2
        self.lost_credits += half

    def _settle_contest(self, event: ev.ContestSettled) -> None:
        view, terms = self.view, self.view.require_terms()
        if event.id == NO_HOLDER:
            told = view.settled[event.round]
            half = told.reveals[event.seat].segments * terms.segment_pay // 2
            self.due[told.leaks[event.seat] if event.wrong else SINK] += half
            return
        if not event.wrong:
            self.due[view.verifiers[event.id].account] += terms.duty_fee
            return
        if (event.id, event.round) in self.scored or view.params is None:
            return
        self.scored.add((event.id, event.round))
        by = view.settled[event.round].contests[event.id, event.seat].by
        self.due[by] += contest_reward(terms, view.params)

    def _claim_credit(self, event: ev.CreditClaimed) -> None:
        self.claimed += event.amount
        self.credits[event.account] -= event.amount
        self.due[event.account] -= event.amount
        self._pay(event.account, CREDITS, event.amount)

    def _pay(self, account: Address, reason: str, amount: int) -> None:
        if amount:
            amounts = self.paid[account]
            amounts[reason] = amounts.get(reason, 0) + amount

    def _compare(self, what: str, told: int, computed: int) -> None:
        if told != computed:
            self.faults.append(f"{what} {told} wei, and {computed} by the law of pay")


def _earned(
    view: JobView, holder: Holder, rounds: Iterable[SettledRound]
) -> tuple[dict[str, int], int]:
    """What a holder earned in settled rounds, by reason, and what it lost of it."""
    parts, lost, terms = dict.fromkeys(REASONS[:3], 0), 0, view.require_terms()
    for past in rounds:
        if holder.role is Role.VERIFIER:
            place = past.place_of(holder.id)
            if place is not None and past.signers >> place & 1:
                parts[SIGNATURES] += terms.sign_fee
            parts[AUDITS] += duties_paid(past, holder) * terms.duty_fee
            continue
        seat = SeatIndex(holder.index)
        amount = seat_pay(terms, past, seat) if past.seats.get(seat) == holder.id else 0
        if past.round >= holder.lost_from:
            lost += amount
        else:
            parts[TRAINING] += amount
    return parts, lost


def _with_fault(books: Books, fault: str) -> Books:
    kept = (books.funded, books.claimed, books.burnt, books.refunded, books.paid)
    return Books(*kept, (*books.faults, fault))
