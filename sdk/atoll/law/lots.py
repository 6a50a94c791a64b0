"""Who is drawn: a round's committee, the seats that are audited, and their auditors.

Rule of this file: whoever has the smallest tickets under a seed is drawn, of equal ones the lower
number, and a ticket is the hash of the seed and of the number that it is for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from atoll.law.hashing import hash_fields
from atoll.law.terms import WHOLE_BPS
from atoll.law.words import Bitmap, Digest, PlaceIndex, SeatIndex, bits, to_bitmap

COMMITTEE: Final = 32
"""Members of a committee, where so many are ready."""
LAST_AUDITORS: Final = 2
"""Auditors of a seat in a job's last round."""


def _ticket(seed: Digest, *numbers: int) -> Digest:
    return hash_fields(("bytes32", *("uint256",) * len(numbers)), (seed, *numbers))


def _smallest(numbers: Iterable[int], seed: Digest, *before: int) -> list[int]:
    return sorted(numbers, key=lambda number: (_ticket(seed, *before, number), number))


def next_lot(seed: Digest, lot: int) -> Digest:
    """The seed of lot number `lot`, from that of the one before."""
    return _ticket(seed, lot)


def draw_committee(seed: Digest, pool: Bitmap) -> tuple[PlaceIndex, ...]:
    """Places of the pool with the smallest tickets, ascending: the order of their signatures."""
    return tuple(PlaceIndex(p) for p in sorted(_smallest(bits(pool), seed)[:COMMITTEE]))


def audited_share(count: int, share_bps: int, ready: int) -> int:
    """How many of so many revealed seats are drawn, beside those that were left out."""
    share = -(-share_bps * count // WHOLE_BPS)
    return max(1, min(share, -(-ready // 2)))


def draw_seats(
    seed: Digest, revealed: Bitmap, left_out: Bitmap, *, share_bps: int, ready: Bitmap
) -> Bitmap:
    """Seats that are audited: a share of the revealed, and who was left out of the merge.

    A job's last round, and one whose rule bears nobody, is audited whole; this is of others.
    """
    count = audited_share(revealed.bit_count(), share_bps, ready.bit_count())
    return Bitmap(to_bitmap(_smallest(bits(revealed), seed)[:count]) | left_out)


def auditors_of(
    seed: Digest, seat: SeatIndex, ready: Bitmap, *, is_last: bool = False
) -> tuple[PlaceIndex, ...]:
    """Places that audit a drawn seat, smallest ticket first."""
    count = LAST_AUDITORS if is_last else 1
    return tuple(PlaceIndex(p) for p in _smallest(bits(ready), seed, seat)[:count])


def draw_duties(
    seed: Digest, drawn: Bitmap, ready: Bitmap, *, is_last: bool
) -> dict[PlaceIndex, tuple[SeatIndex, ...]]:
    """The seats that each place audits, ascending; places without any are left out."""
    duties: dict[PlaceIndex, tuple[SeatIndex, ...]] = {}
    for seat in map(SeatIndex, bits(drawn)):
        for place in auditors_of(seed, seat, ready, is_last=is_last):
            duties[place] = (*duties.get(place, ()), seat)
    return duties
