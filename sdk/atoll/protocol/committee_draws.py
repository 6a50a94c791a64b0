"""Who is drawn: a round's committee, the seats that are audited, and their auditors.

Rule of this file: whoever has the smallest tickets under a seed is drawn, of equal ones the lower
number, and a ticket is the hash of the seed and of the number that it is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from atoll.protocol.hashing import hash_fields
from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.types import Bitmap, Digest, SeatIndex, SlotIndex, bits

COMMITTEE: Final = 32
"""Members of a committee, where so many are ready."""
LAST_AUDITORS: Final = 2
"""Auditors of a seat in a job's last round."""
_NO_SEAT: Final = 256
"""In tickets of slots that audit, so that they are not those of seats."""


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


def audited_share(count: int, share_bps: int, ready: int) -> int:
    """How many of so many revealed seats are drawn, beside those that were excluded."""
    share = -(-share_bps * count // WHOLE_BPS)
    return max(1, min(share, -(-ready // 2)))


def draw_seats(
    seed: Digest, revealed: Bitmap, excluded: Bitmap, count: int
) -> dict[SeatIndex, int]:
    """Seats that are audited, each with its ordinal; no two have the same.

    The first `count` of the revealed by ticket, and behind them who was excluded from the merge,
    each by its rank among those. Where all are drawn, by number.
    """
    seats = list(bits(revealed))
    if count == len(seats):
        return {SeatIndex(seat): at for at, seat in enumerate(seats)}
    behind = {SeatIndex(s): count + at for at, s in enumerate(_smallest(bits(excluded), seed))}
    shared = _smallest(seats, seed)[:count]
    return behind | {SeatIndex(seat): at for at, seat in enumerate(shared)}


def auditors_of(
    seed: Digest, ordinal: int, ready: Bitmap, *, is_last: bool = False
) -> tuple[SlotIndex, ...]:
    """Slots that audit a drawn seat: drawn seats go round the pool in the order of its tickets."""
    order = _smallest(bits(ready), seed, _NO_SEAT)
    count = min(LAST_AUDITORS if is_last else 1, len(order))
    return tuple(SlotIndex(order[(ordinal + k) % len(order)]) for k in range(count))


def draw_duties(
    seed: Digest, drawn: Mapping[SeatIndex, int], ready: Bitmap, *, is_last: bool
) -> dict[SlotIndex, tuple[SeatIndex, ...]]:
    """The seats that each slot audits, ascending; slots without any are left out.

    Args:
        drawn: seats that are audited, with their ordinals.
    """
    duties: dict[SlotIndex, tuple[SeatIndex, ...]] = {}
    for seat, ordinal in sorted(drawn.items()):
        for slot in auditors_of(seed, ordinal, ready, is_last=is_last):
            duties[slot] = (*duties.get(slot, ()), seat)
    return duties
