"""The link: what a seat sends at the end of a round follows from its last state."""

from __future__ import annotations

from dataclasses import replace

from atoll.bits.codec.dither import DitherKey
from atoll.bits.codec.feedback import encode_with_feedback
from atoll.bits.codec.registry import seat_codec
from atoll.bits.state import GlobalState, SeatState
from atoll.law.manifest import CodecSpec


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
