"""The link: what a seat sends at the end of a round follows from its last state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from atoll.bits.codec.dither import DitherKey
from atoll.bits.codec.feedback import encode_with_feedback
from atoll.bits.codec.grid import NonFiniteDeltaError
from atoll.bits.codec.registry import seat_codec
from atoll.bits.opening import committed_state
from atoll.bits.state import GlobalState, SeatState
from atoll.bits.tensors import Source
from atoll.law.manifest import CodecSpec, Manifest
from atoll.law.trace import TraceLeaf
from atoll.law.words import Digest


def close_round(
    model: GlobalState, last: SeatState, spec: CodecSpec, dither: DitherKey
) -> tuple[bytes, SeatState]:
    """The link: the update's canonical bytes, and the state that the seat carries on.

    The update is the codec's of global − last, plus the decayed feedback where the codec has it;
    then the carried state's feedback is what the bytes lack of that sum. `dither` is the seat's in
    the round.

    Raises:
        NonFiniteDeltaError: what would be sent has a value that is not finite.
    """
    codec, part = seat_codec(spec, dither), model.sent_part(spec)
    delta = {name: p - last.params[name] for name, p in part.params.items()}
    local = frozenset(name for name in model.params if spec.is_local(name, model.round + 1))
    carried = replace(last, local=local)
    if not spec.carries_feedback:
        return codec.encode(delta, part.exponents), carried
    residual = {name: last.feedback[name] for name in delta}
    update, left = encode_with_feedback(
        codec, delta, residual, part.exponents, float(spec.feedback)
    )
    return update, replace(carried, feedback=last.feedback | left)


@dataclass(frozen=True, slots=True)
class Sent:
    """What a seat sent at the end of a round.

    Attributes:
        optimiser_root: the revealed one.
        dither: the seat's in the round.
    """

    update: bytes
    optimiser_root: Digest
    dither: DitherKey


def check_link(
    manifest: Manifest,
    model: GlobalState,
    last_leaf: TraceLeaf,
    last_blob: bytes | Source,
    sent: Sent,
) -> bool:
    """Whether update and carried optimiser follow from the global model and the last state.

    Raises:
        MalformedTrace: the blob is not the last leaf's state: the provider's fault.
    """
    last = committed_state(manifest, model.round, last_blob, last_leaf.state_digest)
    try:
        expected, carried = close_round(model, last, manifest.codec, sent.dither)
    except NonFiniteDeltaError:  # a forged residual: nothing follows from it
        return False
    return expected == sent.update and carried.optimiser_root() == sent.optimiser_root
