"""The update proof: what a seat sends at the end of a round follows from its last state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from atoll.numerics.codec.dither import MOMENT_SECTION, DitherKey
from atoll.numerics.codec.factored import encode_factored
from atoll.numerics.codec.feedback import encode_with_feedback
from atoll.numerics.codec.registry import seat_codec
from atoll.numerics.sections import joined
from atoll.numerics.state import GlobalState, SeatState, Tensors
from atoll.numerics.state_layout import moment_layout
from atoll.protocol.manifest import Manifest
from atoll.protocol.method_spec import CodecSpec


def close_round(
    manifest: Manifest, model: GlobalState, last: SeatState, dither: DitherKey
) -> tuple[bytes, SeatState]:
    """The update proof: the update's canonical bytes, and the state that the seat carries on.

    The update is the codec's of global − last, plus the decayed feedback where the codec has it;
    what the bytes lack of that sum is `left` in the carried state. Where seats carry nothing
    of their own, the first moment in the same codec and the factored second moments come behind it.
    `dither` is the seat's in the round.

    Global − last and not last − global: it is a pseudo-gradient, which the outer optimiser descends
    by (Reddi et al. 2021, arXiv:2003.00295).

    Raises:
        NonFiniteDeltaError: what would be sent has a value that is not finite.
    """
    spec = manifest.codec
    change, residual = _change(model, last, spec, dither)
    carried_state = replace(last, residual=residual)
    return joined([change, *_moments(manifest, model, last, dither)]), carried_state


def with_residual(
    manifest: Manifest, model: GlobalState, state: SeatState, dither: DitherKey
) -> SeatState:
    """The state with what an update from here would leave out, where that is fed back.

    Every state that is hashed has it: so the state that the next round opens with is one that the
    seat has said, and no claim is about more than steps, or an update.
    """
    if not manifest.codec.carries_feedback:
        return state
    return replace(state, residual=_change(model, state, manifest.codec, dither)[1])


def _change(
    model: GlobalState, last: SeatState, spec: CodecSpec, dither: DitherKey
) -> tuple[bytes, Tensors]:
    """The first section, and what it leaves out where that is fed back."""
    codec, part = seat_codec(spec, dither), model.sent_part(spec)
    delta = {name: p - last.params[name] for name, p in part.params.items()}
    if not spec.carries_feedback:
        return codec.encode(delta, part.exponents), {}
    residual = {name: last.feedback[name] for name in delta}
    return encode_with_feedback(codec, delta, residual, part.exponents, float(spec.feedback))


def _moments(
    manifest: Manifest, model: GlobalState, last: SeatState, dither: DitherKey
) -> Iterator[bytes]:
    """The other sections: the moments as they are, whose count of steps goes on with them."""
    shared = moment_layout(manifest, model.shapes)
    if shared.m:
        codec = seat_codec(manifest.codec, replace(dither, section=MOMENT_SECTION))
        yield codec.encode(last.m, model.moment_exponents)
    if shared.v:
        yield encode_factored(last.v)
