"""Who did how much of a job: rounds, tokens, audits, of each account in each role.

Rule of this file: pure; what settled rounds say, as things stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from atoll.job.event_text import words
from atoll.job.ledger.ledger import paid_seats
from atoll.job.serialization import plain_of
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Address, Role, SeatIndex, SlotIndex, bits
from atoll.protocol.views import JobView


@dataclass(slots=True)
class Work:
    """What an account did.

    Attributes:
        rounds: that a provider revealed in, or whose merge a verifier signed.
        paid_rounds, tokens: of a provider, as far as it is paid for them.
        audits: of a verifier, entries of opened reports; `mismatches` those that accuse.
    """

    rounds: int = 0
    paid_rounds: int = 0
    tokens: int = 0
    audits: int = 0
    mismatches: int = 0

    def to_json_value(self) -> dict[str, Any]:
        """For JSON."""
        return plain_of(self)


def work_done(view: JobView, rounds: Sequence[SettledRound]) -> dict[tuple[Role, Address], Work]:
    """Everyone who had a part in one of these rounds, providers first."""
    by_member: dict[tuple[Role, Address], Work] = {}
    for settled in rounds:
        paid = tokens_paid(view, settled)
        for seat, reveal in sorted(settled.reveals.items()):
            work = by_member.setdefault((Role.PROVIDER, reveal.account), Work())
            work.rounds += 1
            work.paid_rounds += seat in paid
            work.tokens += paid.get(seat, 0)
    for settled in rounds:
        for account in signers(view, settled):
            by_member.setdefault((Role.VERIFIER, account), Work()).rounds += 1
        for auditor, body in settled.opened_reports.items():
            work = by_member.setdefault((Role.VERIFIER, view.verifiers[auditor].account), Work())
            work.audits += len(body.entries)
            work.mismatches += sum(not entry.is_valid for entry in body.entries)
    return by_member


def tokens_paid(view: JobView, settled: SettledRound) -> dict[SeatIndex, int]:
    """Tokens that each paid seat trained on."""
    terms = view.require_terms()
    segment = terms.segment_steps * terms.tokens_per_step
    return {s: settled.reveals[s].segments * segment for s in paid_seats(view, settled)}


def signers(view: JobView, settled: SettledRound) -> list[Address]:
    """Accounts of the slots that signed a round's merge."""
    slots = map(SlotIndex, bits(settled.signers))
    return [view.verifiers[settled.slots[slot]].account for slot in slots]


def member_work(by_member: dict[tuple[Role, Address], Work]) -> list[dict[str, Any]]:
    """The same for JSON."""
    return [
        {"role": words(role), "account": account} | work.to_json_value()
        for (role, account), work in by_member.items()
    ]
