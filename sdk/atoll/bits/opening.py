"""What a seat's round and its segments open with: the same for who trains and for who replays."""

from __future__ import annotations

from atoll.bits.layout import seat_layout
from atoll.bits.state import GlobalState, SeatState
from atoll.law.manifest import Manifest


def open_round(
    manifest: Manifest, round: int, model: GlobalState | None, optimiser: SeatState | None
) -> SeatState:
    """The state that a seat's round starts from.

    Args:
        round: the round that opens.
        model: what it starts from; None where it opens with nothing of it.
        optimiser: what the seat carries into a round with private state; None opens publicly.

    Raises:
        ValueError: the round opens with parameters of the model, and it is not given.
    """
    return SeatState.opening(model, optimiser, seat_layout(manifest, round))
