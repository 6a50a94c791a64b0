"""What a seat's round and its segments open with: the same for who trains and for who replays."""

from __future__ import annotations

from collections.abc import Callable

from atoll.bits.errors import MalformedState
from atoll.bits.layout import seat_layout
from atoll.bits.state import GlobalState, SeatState, rng_digest
from atoll.bits.step import state_roots
from atoll.bits.tensors import Source
from atoll.errors import MalformedTrace
from atoll.law.manifest import Manifest
from atoll.law.trace import StateRoots, TraceDocument
from atoll.law.words import ZERO_DIGEST, Digest


def open_round(
    manifest: Manifest, round: int, model: GlobalState | None, optimiser: SeatState | None
) -> SeatState:
    """The state that a seat's round starts from.

    Args:
        round: the round that opens.
        model: what it starts from; None where it opens with nothing of it.
        optimiser: the seat's last accepted state; None for a new holder or a reset.

    Raises:
        ValueError: the round opens with parameters of the model, and it is not given.
    """
    return SeatState.opening(model, optimiser, seat_layout(manifest, round))


def opening_roots(
    manifest: Manifest, params_root: Digest, accepted: Digest, model: Callable[[], GlobalState]
) -> tuple[Digest, Digest]:
    """Params and optimiser root that a seat must open the model's round with.

    Args:
        params_root: over all parameters of the round's global model.
        accepted: the seat's last accepted optimiser root, zero for a new holder or after a reset.
        model: reads the global model; asked only where some parameters are the seats' own, since
            reading it takes long.
    """
    if not manifest.codec.carries_params:
        return params_root, accepted  # a fresh optimiser's root is zero too
    start = model()
    fresh = open_round(manifest, start.round, start, None)
    is_new = accepted == ZERO_DIGEST
    return fresh.params_root(), fresh.optimiser_root() if is_new else accepted


def opening_digest(
    document: TraceDocument, segment: int, params_root: Digest, optimiser_root: Digest
) -> Digest:
    """What a segment must open with: the leaf before it, or for the first the chain's word.

    Args:
        params_root, optimiser_root: what the seat must open with (see `opening_roots`).
    """
    if segment > 0:
        return document.leaves[segment - 1].state_digest
    return StateRoots(params_root, optimiser_root, ZERO_DIGEST, rng_digest(0)).digest()


def committed_state(
    manifest: Manifest, round: int, blob: bytes | Source, digest: Digest
) -> SeatState:
    """The state with these bytes.

    Raises:
        MalformedTrace: it is none of this job's, or not the one committed to: the provider's fault.
    """
    try:
        state = SeatState.from_bytes(blob, seat_layout(manifest, round))
    except MalformedState as error:
        raise MalformedTrace(f"the state served is not one: {error}") from error
    served = state_roots(state).digest()
    if served != digest:
        raise MalformedTrace(
            f"the state served has digest {served.hex()}, committed was {digest.hex()}"
        )
    return state
