"""A job's payments: every amount that an event names is computed a second time by the law of pay.

Rule of this file: pure; integers of wei. Where the two differ there is a fault; none of an honest
contract.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from atoll.job.ledger.entries import AUDITS, CREDITS, SIGNATURES, TRAINING, Line, State
from atoll.protocol import events as ev
from atoll.protocol.audit_rates import most_retained, retained_part
from atoll.protocol.holders import Holder
from atoll.protocol.pay import duties_paid, seat_pay, unpaid
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.types import Address, HolderId, Role, RoundIndex, SeatIndex
from atoll.protocol.views import JobView


@dataclass
class Payments:
    """What a job paid so far. Give every event to `enter`, then call `close`.

    Attributes:
        view: the job after all of the events.
        paid: wei by account and reason, as the law of pay computes it.
        credits: of each account, what it won or had back: DUE until it claims it.
        retained: of seats' pay, wei by account: of what was paid, it joined their bonds.
        faults: sentences about what does not add up.
    """

    view: JobView
    paid: dict[Address, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    credits: dict[Address, list[Line]] = field(default_factory=lambda: defaultdict(list))
    retained: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    faults: list[str] = field(default_factory=list)
    _burnt_to: int = 0
    _retained: dict[HolderId, int] = field(default_factory=lambda: defaultdict(int))
    _to_retain: dict[HolderId, int] = field(default_factory=dict)
    _ended: set[tuple[Role, HolderId]] = field(default_factory=set)
    _claimed_to: dict[tuple[Role, HolderId], RoundIndex] = field(default_factory=dict)
    _waiting: dict[Address, list[Line]] = field(default_factory=lambda: defaultdict(list))
    _credited: dict[Address, int] = field(default_factory=lambda: defaultdict(int))
    _claimed: dict[Address, int] = field(default_factory=lambda: defaultdict(int))

    def enter(self, event: ev.ContractEvent) -> None:
        """One event of the job."""
        match event:
            case ev.Claimed():
                self._claim(event)
            case ev.Retained():
                self._retain(event)
            case ev.HolderSlashed() | ev.Released():
                self._ended.add((event.role, event.id))
            case ev.Burnt():
                self._burn(event)
            case ev.ContestSettled():
                self._settle_contest(event)
            case ev.Proven():
                text = f"said that seat {event.seat} has a mismatch, and it was slashed"
                self._credit_fee(event, text)
            case ev.Credited():
                self._credited[event.account] += event.amount
            case ev.CreditClaimed():
                self._claim_credit(event)
            case _:
                pass

    def close(self) -> None:
        """What is seen only at the end: credits for which there is no reason."""
        for holder, wei in self._to_retain.items():
            self._compare(f"of the holder with id {holder} are retained", 0, wei)
        for account, lines in self._waiting.items():
            self.credits[account] += lines
        for account in sorted({*self.credits, *self._credited}):
            won = sum(line.wei for line in self.credits.get(account, ()))
            claimed = self._claimed[account]
            self._compare(
                f"{account} has credits of", self._credited[account] - claimed, won - claimed
            )

    # --- claims ---

    def _claim(self, event: ev.Claimed) -> None:
        view, key = self.view, (event.role, event.id)
        holder = view.holders(event.role)[event.id]
        start = self._claimed_to.get(key, holder.start)
        self._claimed_to[key] = event.to
        earned, lost = _earned(view, holder, view.settled[start : event.to])
        for reason, amount in earned.items():
            self._pay(event.account, reason, amount)
        who = f"{event.account}, rounds {start} to {event.to - 1},"
        self._compare(f"{who} is paid", event.amount, sum(earned.values()))
        self._compare(f"{who} has burnt", event.burnt, lost)
        if event.role is Role.PROVIDER and key not in self._ended:
            self._expect(event)

    def _expect(self, event: ev.Claimed) -> None:
        """What of a claim is retained: said next."""
        terms, params = self.view.require_terms(), self.view.params
        if params is None:
            return
        burnt = terms.provider_bond * (WHOLE_BPS - params.winner_share_bps) // WHOLE_BPS
        most = most_retained(burnt, terms.rate_steps)
        if part := retained_part(event.amount, self._retained[event.id], most):
            self._to_retain[event.id] = part

    def _retain(self, event: ev.Retained) -> None:
        expected = self._to_retain.pop(event.id, 0)
        self._compare(f"of {event.account} are retained", event.amount, expected)
        self._retained[event.id] += event.amount
        self.retained[event.account] += event.amount

    def _burn(self, event: ev.Burnt) -> None:
        rounds = self.view.settled[self._burnt_to : event.to]
        lost = sum(unpaid(self.view.require_terms(), settled) for settled in rounds)
        self._compare(f"before round {event.to} is burnt", event.amount, lost)
        self._burnt_to = event.to

    # --- credits ---

    def _settle_contest(self, event: ev.ContestSettled) -> None:
        if not event.wrong:
            text = "it was not shown to be wrong, so the fee that waited came back"
            self._credit_fee(event, f"audited seat {event.seat}: {text}")

    def _credit_fee(self, event: ev.Proven | ev.ContestSettled, text: str) -> None:
        fee = self.view.require_terms().duty_fee
        self._credit(self.view.verifiers[event.id].account, event, fee, text)

    def _credit(
        self, account: Address, event: ev.Proven | ev.ContestSettled, wei: int, text: str
    ) -> None:
        line = Line(event.round, None, event.seat, CREDITS, State.DUE, wei, text)
        self._waiting[account].append(line)

    def _claim_credit(self, event: ev.CreditClaimed) -> None:
        """What is claimed is all that was credited by then."""
        self._claimed[event.account] += event.amount
        lines = self._waiting.pop(event.account, [])
        self.credits[event.account] += (replace(line, state=State.PAID) for line in lines)
        self._pay(event.account, CREDITS, event.amount)

    def _pay(self, account: Address, reason: str, amount: int) -> None:
        if amount:
            amounts = self.paid[account]
            amounts[reason] = amounts.get(reason, 0) + amount

    def _compare(self, what: str, named: int, computed: int) -> None:
        if named != computed:
            self.faults.append(f"{what} {named} wei, and {computed} by the law of pay")


def _earned(
    view: JobView, holder: Holder, rounds: Iterable[SettledRound]
) -> tuple[dict[str, int], int]:
    """What a holder earned in settled rounds, by reason, and what it lost of it."""
    earned, lost, terms = {TRAINING: 0, SIGNATURES: 0, AUDITS: 0}, 0, view.require_terms()
    for settled in rounds:
        if holder.role is Role.VERIFIER:
            slot = settled.slot_of(holder.id)
            if slot is not None and settled.signers >> slot & 1:
                earned[SIGNATURES] += terms.sign_fee
            earned[AUDITS] += duties_paid(settled, holder) * terms.duty_fee
            continue
        seat = SeatIndex(holder.index)
        amount = seat_pay(terms, settled, seat) if settled.seats.get(seat) == holder.id else 0
        if settled.round >= holder.lost_from:
            lost += amount
        else:
            earned[TRAINING] += amount
    return earned, lost
