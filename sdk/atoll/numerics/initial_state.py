"""What a seat's round and its segments open with: the same for who trains and for who replays."""

from __future__ import annotations

from dataclasses import replace

from atoll.numerics.state import GlobalState, Holds, SeatState, in_this_process
from atoll.numerics.state_layout import seat_layout
from atoll.numerics.tensors import Allocate, in_memory
from atoll.protocol.manifest import Manifest


def open_round(
    manifest: Manifest,
    model: GlobalState,
    carried_state: SeatState | None,
    *,
    allocate: Allocate = in_memory,
    holds: Holds = in_this_process,
) -> SeatState:
    """The state that a seat's round starts from.

    Args:
        model: what the round starts from.
        carried_state: the seat's of the round before, where it goes on with that; None opens
            publicly.
        allocate, holds: of `SeatState.initial`, which makes the moments.
    """
    if carried_state is None:
        return SeatState.initial(model, seat_layout(manifest), allocate=allocate, holds=holds)
    if manifest.codec.carries_params:
        return carried_state  # and mixes the model in during the round
    return replace(carried_state, params=model.params)
