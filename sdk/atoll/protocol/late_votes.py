"""Votes after a settlement: how an update that a committee did not have is paid after all.

Rule of this file: pure functions of a job's view and the clock, as `LateVotes.sol` counts. Late
votes change the pay of one round, and never what was merged.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.protocol.holders import Holder
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    NO_BITS,
    Address,
    Bitmap,
    RoundIndex,
    SeatIndex,
    SlotIndex,
    bits,
    to_bitmap,
)
from atoll.protocol.views import JobView


def electors(view: JobView, settled_round: SettledRound) -> Bitmap:
    """Slots whose votes decide a seat's pay: the round's committee and the next round's."""
    following = view.settled_round(RoundIndex(settled_round.round + 1))
    if following is not None:
        return Bitmap(settled_round.record.committee | following.record.committee)
    running = view.open
    is_next = running is not None and running.round == settled_round.round + 1
    return Bitmap(
        settled_round.record.committee | (running.committee if running and is_next else NO_BITS)
    )


def elector_accounts(view: JobView, settled_round: SettledRound) -> list[Address]:
    """Whose slots these were in their round, by ascending slot."""
    running = view.open
    following = view.settled_round(RoundIndex(settled_round.round + 1)) or running
    slots = {} if following is None else following.slots
    holders = (
        (settled_round.slots if settled_round.record.committee >> slot & 1 else slots)[slot]
        for slot in map(SlotIndex, bits(electors(view, settled_round)))
    )
    return [view.verifiers[holder].account for holder in holders]


def having(view: JobView, settled_round: SettledRound, seat: SeatIndex) -> Bitmap:
    """Electors that said, in time or late, to have a seat's update."""
    in_time = to_bitmap(slot for slot, has in settled_round.votes.items() if has >> seat & 1)
    late = to_bitmap(
        view.verifiers[id].index
        for id, has in settled_round.late.items()
        if has >> seat & 1 and speaks(settled_round, view.verifiers[id])
    )
    return Bitmap((in_time | late) & electors(view, settled_round))


def speaks(settled_round: SettledRound, member: Holder) -> bool:
    """Whether a slot's late vote is this member's: of the round's committee who had it then."""
    is_own = settled_round.record.committee >> member.index & 1
    return member.counts_in(settled_round.round if is_own else settled_round.round + 1)


def is_available_late(view: JobView, settled_round: SettledRound, seat: SeatIndex) -> bool:
    """Whether more than half of the electors have it by now."""
    return (
        2 * having(view, settled_round, seat).bit_count()
        > electors(view, settled_round).bit_count()
    )


def without_pay(view: JobView, settled_round: SettledRound, now: int) -> Iterator[SeatIndex]:
    """Seats that were revealed and not available, and may still be paid: until AUDIT ends.

    What is leaked, lost by a slash, worth nothing or earns nothing is not among them.
    """
    if not settled_round.clock.is_auditing(now):
        return
    for seat in map(
        SeatIndex,
        bits(settled_round.record.revealed & ~settled_round.unearned & ~settled_round.pay),
    ):
        revealed = settled_round.reveals[seat]
        slashed = view.providers[revealed.holder].is_slashed
        if revealed.segments and seat not in settled_round.leaks and not slashed:
            yield seat


def lacks_vote(
    view: JobView, settled_round: SettledRound, member: Holder, now: int
) -> list[SeatIndex]:
    """Seats that a late vote of this member could help to their pay."""
    if not speaks(settled_round, member) or not electors(view, settled_round) >> member.index & 1:
        return []
    return [
        seat
        for seat in without_pay(view, settled_round, now)
        if not having(view, settled_round, seat) >> member.index & 1
        and not is_available_late(view, settled_round, seat)
    ]


def grantable(view: JobView, settled_round: SettledRound, now: int) -> list[SeatIndex]:
    """Seats whose pay `grant` would give them now."""
    return [
        seat
        for seat in without_pay(view, settled_round, now)
        if is_available_late(view, settled_round, seat)
    ]
