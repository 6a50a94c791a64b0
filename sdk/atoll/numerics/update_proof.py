"""The update proof: what a seat sends at the end of a round follows from its last state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

from torch import Tensor

from atoll.numerics.codec.dither import MOMENT_SECTION, DitherKey
from atoll.numerics.codec.factored import encode_factored
from atoll.numerics.codec.feedback import encode_with_feedback
from atoll.numerics.codec.registry import seat_codec
from atoll.numerics.sections import joined
from atoll.numerics.shards import Shards, copied
from atoll.numerics.state import GlobalState, SeatState, Tensors
from atoll.numerics.state_layout import MomentLayout, moment_layout
from atoll.protocol.manifest import Manifest
from atoll.protocol.method_spec import CodecSpec


def close_round(
    manifest: Manifest,
    model: GlobalState,
    last: SeatState,
    dither: DitherKey,
    *,
    sampled: bytes = b"",
) -> tuple[bytes, SeatState]:
    """The update proof: the update's canonical bytes, and the state that the seat carries on.

    The update is the codec's of global − last, plus the decayed feedback where the codec has it;
    what the bytes lack of that sum is `left` in the carried state. Where seats carry nothing
    of their own, the first moment in the same codec and the factored second moments come behind it.
    `dither` is the seat's in the round. Where a job samples, `sampled` is what the seat did: the
    last section, zero behind the last step.

    Global − last and not last − global: it is a pseudo-gradient, which the outer optimiser descends
    by (Reddi et al. 2021, arXiv:2003.00295).

    Raises:
        NonFiniteDeltaError: what would be sent has a value that is not finite.
    """
    spec = manifest.codec
    first, residual = _change(model, last, spec, dither)
    carried_state = replace(last, residual=residual)
    shared, exponents = moment_layout(manifest, model.shapes), model.moment_exponents
    del model  # which takes more than what follows
    moments = _moments(last, shared, exponents, manifest.codec, dither)
    ids = [sampled.ljust(manifest.sampled_bytes, b"\0")] if manifest.sampled_bytes else []
    return joined(chain([first], moments, ids)), carried_state


def with_residual(
    manifest: Manifest, model: GlobalState, state: SeatState, dither: DitherKey
) -> SeatState:
    """The state with what an update from here would leave out, where that is fed back.

    Every state that is hashed has it: so the state that the next round opens with is one that the
    seat has said, and no claim is about more than steps, or an update.
    """
    if not manifest.codec.carries_feedback:
        return state
    _, excluded = _change(model, state, manifest.codec, dither)
    if not isinstance(state.params, Shards):
        return replace(state, residual=excluded)
    residual = copied(state.residual)
    while excluded:
        name, tensor = excluded.popitem()
        residual[name] = tensor
    return replace(state, residual=residual)


def _change(
    model: GlobalState, last: SeatState, spec: CodecSpec, dither: DitherKey
) -> tuple[bytes, Tensors]:
    """The first section, and what it leaves out where that is fed back."""
    codec, part = seat_codec(spec, dither), model.sent_part(spec)
    delta = _Difference(part.params, last.params)
    if not spec.carries_feedback:
        return codec.encode(delta, part.exponents), {}
    residual = {name: last.feedback[name] for name in delta}
    return encode_with_feedback(codec, delta, residual, part.exponents, float(spec.feedback))


class _Difference(Mapping[str, Tensor]):
    """Tensors less others, each when it is asked for: all of them are as much as the model."""

    def __init__(self, tensors: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> None:
        self._tensors, self._others = tensors, others

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name] - self._others[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _moments(
    last: SeatState,
    shared: MomentLayout,
    exponents: Mapping[str, int],
    spec: CodecSpec,
    dither: DitherKey,
) -> Iterator[bytes]:
    """The other sections: the moments as they are, whose count of steps goes on with them."""
    if shared.m:
        yield seat_codec(spec, replace(dither, section=MOMENT_SECTION)).encode(last.m, exponents)
    if shared.v:
        yield encode_factored(last.v)
