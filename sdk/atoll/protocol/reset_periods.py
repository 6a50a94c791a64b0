"""Which rounds a seat's state comes from: those since its holder last opened from public data.

Rule of this file: it says of a seat what `Claims.sol` says, from the chain alone. SPEC-ROUNDS.md,
chapter 8.
"""

from __future__ import annotations

from atoll.protocol.manifest import Manifest
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import HolderId, RoundIndex, SeatIndex
from atoll.protocol.views import JobView


def carries_state(
    before: OpenRound | SettledRound, seat: SeatIndex, holder: HolderId, segments: int
) -> bool:
    """Whether that holder opens the round behind `before` with its own state, inside a reset
    period.

    It does where it revealed the whole of the round before, and an update.

    Args:
        segments: of a round.
    """
    revealed = before.reveals.get(seat)
    if revealed is None or revealed.holder != holder:
        return False
    return revealed.segments == segments and any(revealed.reveal.update_root)


def earlier_rounds(
    view: JobView, manifest: Manifest, round: RoundIndex, seat: SeatIndex, holder: HolderId
) -> tuple[RoundIndex, ...]:
    """The rounds before this one that the holder's state comes from, the oldest first.

    None where it opens from public data. The round may be one that has not opened yet, if the
    running one has been revealed.
    """
    first = round
    while not manifest.opens_publicly(first):
        before = round_of(view, RoundIndex(first - 1))
        if before is None or not carries_state(before, seat, holder, manifest.segments):
            break
        first = RoundIndex(first - 1)
    return tuple(RoundIndex(earlier) for earlier in range(first, round))


def round_of(view: JobView, round: RoundIndex) -> OpenRound | SettledRound | None:
    """A settled round, or the one that runs."""
    running = view.open
    if running is not None and running.round == round:
        return running
    return view.settled_round(round)
