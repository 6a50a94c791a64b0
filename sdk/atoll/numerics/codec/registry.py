"""The update codecs that a manifest can name, behind one interface.

Rule of this file: whoever writes, reads, checks or merges an update goes through `seat_codec`,
so a kind added here is there for provider and verifier alike. Its properties for everybody else
are in `atoll.protocol.codecs`, under the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from atoll.numerics.codec.block_steps import (
    BLOCK,
    SIGN,
    SIGN_LEVELS,
    TWO_BIT_LEVELS,
    Levels,
    two_bit,
)
from atoll.numerics.codec.dct import DCT_SPARSE, merged_coordinates
from atoll.numerics.codec.dense import GRID4, GRID8
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.fp32 import FP32
from atoll.numerics.codec.sparse import KEPT, KEPT_LEVELS, SPARSE
from atoll.numerics.codec.update_codec import Integers, UpdateCodec
from atoll.numerics.codec.vector_layout import Layout
from atoll.protocol.method_spec import CodecSpec
from atoll.protocol.types import ZERO_DIGEST


def _as_they_are(numerators: Integers, _denominator: int, _length: int) -> Integers:
    return numerators


@dataclass(frozen=True, slots=True)
class Target:
    """Where a codec wants those of its values that are not 0 on the grid; magnitudes in steps.

    Attributes:
        share: one value in so many.
        fine: above it is at most that share of them.
        coarse: above it is more than that share, ...
        low: ... and above this more than a quarter. Few values may have most of the squared length
            of what was not rounded to 0, and what is near it is noise: 0 of codecs whose blocks
            choose their own step.
        clipped: what is above it may have been larger.
    """

    share: int
    fine: int
    coarse: int
    low: int
    clipped: int


@dataclass(frozen=True, slots=True)
class Form:
    """How a section's values become codes, in the terms of a trace (`trace.build.coding`).

    Attributes:
        bits: of a code; of codes with levels these say it.
        levels: of codes whose blocks have a step each; None where a code is in grid steps, or the
            value itself.
        block: values that share such a step.
        keeps_largest: whether the largest of each chunk are sent, and where they are.
        is_transformed: whether what is put in codes are a transform's coefficients.
        is_dithered: whether values are dithered before they are rounded.
    """

    bits: int = 0
    levels: Levels | None = None
    block: int = BLOCK
    keeps_largest: bool = False
    is_transformed: bool = False
    is_dithered: bool = False


@dataclass(frozen=True)
class Codec:
    """One codec; `Layout` and the round's exponents say everything that its bytes do not.

    Attributes:
        form: of its codes.
        under: the codec as a seat uses it in a round; the key is that of its dither.
        target: where its grid is kept; None where it never moves.
        coordinates: merged rows over their denominator, of a layout's total length, as coordinates
            in grid steps over the same.
    """

    under: Callable[[DitherKey], UpdateCodec]
    form: Form
    target: Target | None = None
    coordinates: Callable[[Integers, int, int], Integers] = _as_they_are

    def encoded_length(self, layout: Layout) -> int:
        """Bytes of any update of a layout, whoever wrote it."""
        return self.under(_ANYBODY).encoded_length(layout)


_ANYBODY = DitherKey(ZERO_DIGEST, 0)


def _always(codec: UpdateCodec) -> Callable[[DitherKey], UpdateCodec]:
    """A codec without dither is everybody's."""
    return lambda _: codec


GRID8_TARGET = Target(share=256, fine=64, coarse=24, low=2, clipped=126)
GRID4_TARGET = Target(share=16, fine=6, coarse=2, low=1, clipped=6)
# Values of 24 and more are said often enough where steps are 10 to 20: room on both sides.
TWO_BIT_TARGET = Target(share=16, fine=48, coarse=12, low=0, clipped=55)
SIGN_TARGET = Target(share=16, fine=16, coarse=4, low=0, clipped=27)

_LARGEST = Form(levels=KEPT_LEVELS, block=KEPT, keeps_largest=True)
_TRANSFORMED = replace(_LARGEST, is_transformed=True)

CODECS: dict[str, Codec] = {
    "grid8": Codec(_always(GRID8), Form(8), GRID8_TARGET),
    "grid4": Codec(_always(GRID4), Form(4), GRID4_TARGET),
    "two_bit": Codec(two_bit, Form(levels=TWO_BIT_LEVELS, is_dithered=True), TWO_BIT_TARGET),
    "sign": Codec(_always(SIGN), Form(levels=SIGN_LEVELS), SIGN_TARGET),
    "sparse": Codec(_always(SPARSE), _LARGEST, TWO_BIT_TARGET),
    "dct": Codec(_always(DCT_SPARSE), _TRANSFORMED, TWO_BIT_TARGET, merged_coordinates),
    "fp32": Codec(_always(FP32), Form(32)),
}


def codec_of(spec: CodecSpec) -> Codec:
    """The codec that a manifest names."""
    return CODECS[spec.kind]


def seat_codec(spec: CodecSpec, dither: DitherKey) -> UpdateCodec:
    """What a seat's update of a round is written and read with."""
    return codec_of(spec).under(dither)
