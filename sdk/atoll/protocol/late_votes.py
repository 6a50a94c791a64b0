"""Words after a settlement: how an update that a committee did not have is paid after all.

Rule of this file: pure functions of a job's view and the clock, as `Words.sol` counts. Late votes
change the pay of one round, and never what was merged.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.protocol.holders import Holder
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.protocol.words import NO_BITS, Bitmap, RoundIndex, SeatIndex, bits, to_bitmap


def electors(view: JobView, past: SettledRound) -> Bitmap:
    """Places whose words decide a seat's pay: the round's committee and the next round's."""
    following = view.settled_round(RoundIndex(past.round + 1))
    if following is not None:
        return Bitmap(past.facts.committee | following.facts.committee)
    running = view.open
    is_next = running is not None and running.round == past.round + 1
    return Bitmap(past.facts.committee | (running.committee if running and is_next else NO_BITS))


def having(view: JobView, past: SettledRound, seat: SeatIndex) -> Bitmap:
    """Electors that said, in time or late, to have a seat's update."""
    said = to_bitmap(place for place, has in past.words.items() if has >> seat & 1)
    late = to_bitmap(
        view.verifiers[id].index
        for id, has in past.late.items()
        if has >> seat & 1 and speaks(past, view.verifiers[id])
    )
    return Bitmap((said | late) & electors(view, past))


def speaks(past: SettledRound, member: Holder) -> bool:
    """Whether a place's late vote is this member's: of the round's committee who had it then."""
    is_own = past.facts.committee >> member.index & 1
    return member.counts_in(past.round if is_own else past.round + 1)


def is_had_late(view: JobView, past: SettledRound, seat: SeatIndex) -> bool:
    """Whether more than half of the electors have it by now."""
    return 2 * having(view, past, seat).bit_count() > electors(view, past).bit_count()


def without_pay(view: JobView, past: SettledRound, now: int) -> Iterator[SeatIndex]:
    """Seats that were revealed and not had, and may still be paid: until AUDIT ends.

    What is leaked, lost by a fall, worth nothing or earns nothing is not among them.
    """
    if not past.clock.is_auditing(now):
        return
    for seat in map(SeatIndex, bits(past.facts.revealed & ~past.unearned & ~past.pay)):
        told = past.reveals[seat]
        fell = view.providers[told.holder].has_fallen
        if told.segments and seat not in past.leaks and not fell:
            yield seat


def lacks_word(view: JobView, past: SettledRound, member: Holder, now: int) -> list[SeatIndex]:
    """Seats that a late vote of this member could help to their pay."""
    if not speaks(past, member) or not electors(view, past) >> member.index & 1:
        return []
    return [
        seat
        for seat in without_pay(view, past, now)
        if not having(view, past, seat) >> member.index & 1 and not is_had_late(view, past, seat)
    ]


def grantable(view: JobView, past: SettledRound, now: int) -> list[SeatIndex]:
    """Seats whose pay `grant` would give them now."""
    return [seat for seat in without_pay(view, past, now) if is_had_late(view, past, seat)]
