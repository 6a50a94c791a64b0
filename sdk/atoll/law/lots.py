"""Who is drawn: seats to audit, their auditors, and the committee of a round.

Rule of this file: whoever has the smallest tickets under a seed is drawn, and a ticket is the hash
of the seed and of whom it is for. Nobody chooses a seed, and no draw depends on where in a table a
member stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

from atoll.law.hashing import hash_fields
from atoll.law.words import Address, Bitmap, Digest, SeatIndex, bits, to_bitmap

COMMITTEE: Final = 32
"""Members of a committee, where so many are ready."""
LAST_AUDITORS: Final = 2
"""Auditors of a seat in a job's last round."""


def seat_ticket(seed: Digest, seat: SeatIndex) -> Digest:
    """A seat's place in the draw of whom to audit."""
    return hash_fields(("bytes32", "uint256"), (seed, seat))


def auditor_ticket(seed: Digest, seat: SeatIndex, member: Address) -> Digest:
    """A member's place in the draw of who audits a seat."""
    return hash_fields(("bytes32", "uint256", "address"), (seed, seat, member))


def member_ticket(seed: Digest, member: Address) -> Digest:
    """A member's place in the draw of a committee."""
    return hash_fields(("bytes32", "address"), (seed, member))


def lot_seed(before: Digest, lot: int) -> Digest:
    """The seed of a round's next committee, when one did not settle: keccak(before ‖ lot)."""
    return hash_fields(("bytes32", "uint256"), (before, lot))


def draw_committee(seed: Digest, ready: Iterable[Address]) -> tuple[Address, ...]:
    """Members with the smallest tickets, ascending as integers: the order of their signatures."""
    drawn = sorted(ready, key=lambda member: member_ticket(seed, member))[:COMMITTEE]
    return tuple(sorted(drawn, key=lambda member: int(member, 16)))


def draw_seats(
    seed: Digest, revealed: Bitmap, left_out: Bitmap, *, share: Fraction, pool: int
) -> Bitmap:
    """Seats that are audited: a share of the revealed, and who was left out of the merge.

    Args:
        share: of the revealed seats, rounded up.
        pool: members; never are more seats drawn than half of them, those left out first.
    """
    tickets = sorted(map(SeatIndex, bits(revealed)), key=lambda seat: seat_ticket(seed, seat))
    count = -(-share.numerator * len(tickets) // share.denominator)
    order = dict.fromkeys((*bits(left_out & revealed), *tickets[:count]))
    return to_bitmap(list(order)[: pool // 2])


def auditors_of(
    seed: Digest, seat: SeatIndex, ready: Iterable[Address], holder: Address, count: int = 1
) -> tuple[Address, ...]:
    """Who audits a seat: the smallest tickets among the ready, its own holder excepted."""
    others = (member for member in ready if member != holder)
    return tuple(sorted(others, key=lambda m: auditor_ticket(seed, seat, m))[:count])


def most_duties(auditors: Iterable[Sequence[Address]]) -> int:
    """Of the busiest auditor: so many rounds long is the audit of a job's last round."""
    counts: dict[Address, int] = {}
    for seat in auditors:
        for member in seat:
            counts[member] = counts.get(member, 0) + 1
    return max(counts.values(), default=0)
