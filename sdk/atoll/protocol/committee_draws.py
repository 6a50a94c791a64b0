"""Who is drawn: a round's committee, the seats that are audited, and their auditors.

Rule of this file: of a committee whoever has the smallest tickets under a seed is drawn, of equal
ones the lower number, and a ticket is the hash of the seed and of the number that it is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from atoll.protocol.audit_rates import is_drawn, rate_of_seat
from atoll.protocol.hashing import hash_fields, tag
from atoll.protocol.types import (
    NO_BITS,
    Bitmap,
    Digest,
    RoundRecord,
    SeatIndex,
    SlotIndex,
    bits,
    to_bitmap,
)

COMMITTEE: Final = 32
"""Members of a committee, where so many are ready."""
NO_STEPS: Final[Mapping[SeatIndex, int]] = {}
"""Of a round of newcomers."""
_AUDITORS_TAG: Final = tag("atoll.auditors.v1")


def _ticket(seed: Digest, *numbers: int) -> Digest:
    return hash_fields(("bytes32", *("uint256",) * len(numbers)), (seed, *numbers))


def _smallest(numbers: Iterable[int], seed: Digest, *before: int) -> list[int]:
    return sorted(numbers, key=lambda number: (_ticket(seed, *before, number), number))


def following_committee(audit_seed: Digest) -> Digest:
    """What the committee of a round is drawn by that a settlement opens.

    Args:
        audit_seed: of the round that it settles.
    """
    return _ticket(audit_seed, 0)


def next_committee(seed: Digest, committee_draw: int) -> Digest:
    """The seed of committee draw number `committee_draw`, from that of the one before; of committee
    draw 1 from the audit seed.
    """
    return _ticket(seed, committee_draw)


def draw_committee(seed: Digest, pool: Bitmap) -> tuple[SlotIndex, ...]:
    """Slots of the pool with the smallest tickets, ascending: the order of their signatures."""
    return tuple(SlotIndex(p) for p in sorted(_smallest(bits(pool), seed)[:COMMITTEE]))


def draw_audits(
    seed: Digest,
    revealed: Bitmap,
    excluded: Bitmap,
    *,
    rate: int,
    left: int,
    steps: Mapping[SeatIndex, int] = NO_STEPS,
) -> Bitmap:
    """Seats that are audited: each is drawn by itself, and one of the excluded in any case.

    Args:
        seed: the audit seed.
        rate: of the table, of newcomers.
        left: duties that seeds may still draw. The first seats go where they are fewer.
        steps: that seats have come down, where they have.
    """
    sure = one_of(seed, excluded)
    seats = map(SeatIndex, bits(Bitmap(revealed & ~sure)))
    drawn = [s for s in seats if is_drawn(seed, s, rate_of_seat(rate, steps.get(s, 0)))]
    return Bitmap(to_bitmap(drawn[max(0, len(drawn) - left) :]) | sure)


def one_of(seed: Digest, excluded: Bitmap) -> Bitmap:
    """The excluded seat that is audited in any case, by the audit seed; none of none."""
    seats = bits(excluded)
    return Bitmap(1 << seats[int.from_bytes(seed, "big") % len(seats)]) if seats else NO_BITS


def seeded(record: RoundRecord) -> int:
    """Duties of a settled round that its seed drew, beside the one that was excluded."""
    return record.drawn.bit_count() - bool(record.excluded)


def auditors_of(seed: Digest, drawn: Bitmap, ready: Bitmap) -> dict[SeatIndex, SlotIndex]:
    """Who audits each drawn seat: they go round the pool from a slot on that the seed draws, so
    that nobody has two before everybody has one.
    """
    slots = bits(ready)
    ticket = hash_fields(("bytes32", "bytes32"), (_AUDITORS_TAG, seed))
    first = int.from_bytes(ticket, "big")
    return {
        SeatIndex(seat): SlotIndex(slots[(first + at) % len(slots)])
        for at, seat in enumerate(bits(drawn))
    }


def draw_duties(
    seed: Digest, drawn: Bitmap, ready: Bitmap
) -> dict[SlotIndex, tuple[SeatIndex, ...]]:
    """The seats that each slot audits, ascending; slots without any are left out."""
    duties: dict[SlotIndex, tuple[SeatIndex, ...]] = {}
    for seat, slot in auditors_of(seed, drawn, ready).items():
        duties[slot] = (*duties.get(slot, ()), seat)
    return duties
