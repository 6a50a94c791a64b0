"""The update codecs that a manifest can name, behind one interface.

Rule of this file: whoever writes, reads, checks or merges an update goes through `codec_of`, so a
kind added here is there for provider and verifier alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from atoll.bits.codec.base import Exponents, Integers, UpdateCodec
from atoll.bits.codec.block_steps import SIGN, TWO_BIT
from atoll.bits.codec.dct import DCT_SPARSE, merged_coordinates
from atoll.bits.codec.dense import GRID4, GRID8
from atoll.bits.codec.fp32 import FP32
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.sparse import SPARSE
from atoll.law.manifest import CodecSpec

if TYPE_CHECKING:
    from torch import Tensor


def _as_they_are(numerators: Integers, _denominator: int, _length: int) -> Integers:
    return numerators


@dataclass(frozen=True, slots=True)
class Target:
    """Where a codec wants its values on the grid.

    Attributes:
        of_sent: shares are of the values that are not 0, instead of all.
    """

    fine_steps: int
    fine_share: Fraction
    coarse_steps: int
    coarse_share: Fraction
    of_sent: bool = False


@dataclass(frozen=True)
class Codec:
    """One codec; `Layout` and the round's exponents say everything that its bytes do not.

    Attributes:
        encoded_length: bytes of any update of a layout.
        encode: canonical bytes of fp32 tensors by name. Raises NonFiniteDeltaError.
        decode: what the bytes say, fp32 tensors by name. Raises MalformedUpdate.
        row: the integers that are merged, one flat vector. Raises MalformedUpdate.
        encode_stream, row_stream: the same bytes and integers in pieces, in the memory of a few.
        target: where its grid is kept; None where it never moves.
        coordinates: merged numerators over their denominator, of a layout's total length, as
            coordinates in grid steps over the same denominator.
    """

    encoded_length: Callable[[Layout], int]
    encode: Callable[[Mapping[str, Tensor], Exponents], bytes]
    encode_stream: Callable[[Mapping[str, Tensor], Exponents], Iterator[bytes]]
    decode: Callable[[bytes, Layout, Exponents], dict[str, Tensor]]
    row: Callable[[bytes, Layout, Exponents], Integers]
    row_stream: Callable[[Iterable[bytes], Layout, Exponents], Iterator[Integers]]
    target: Target | None
    coordinates: Callable[[Integers, int, int], Integers]


def _named(
    codec: UpdateCodec,
    target: Target | None = None,
    coordinates: Callable[[Integers, int, int], Integers] = _as_they_are,
) -> Codec:
    return Codec(
        codec.encoded_length,
        codec.encode,
        codec.encode_stream,
        codec.decode,
        codec.decode_flat,
        codec.decode_stream,
        target,
        coordinates,
    )


GRID8_TARGET = Target(64, Fraction(1, 256), 24, Fraction(1, 256))
GRID4_TARGET = Target(6, Fraction(1, 16), 2, Fraction(1, 16))
# Values of 24 and more are said often enough where steps are 10 to 20: room on both sides.
TWO_BIT_TARGET = Target(48, Fraction(1, 16), 12, Fraction(1, 16))
SIGN_TARGET = Target(16, Fraction(1, 16), 4, Fraction(1, 16))
SPARSE_TARGET = replace(TWO_BIT_TARGET, of_sent=True)

CODECS: dict[str, Codec] = {
    "grid8": _named(GRID8, GRID8_TARGET),
    "grid4": _named(GRID4, GRID4_TARGET),
    "two_bit": _named(TWO_BIT, TWO_BIT_TARGET),
    "sign": _named(SIGN, SIGN_TARGET),
    "sparse": _named(SPARSE, SPARSE_TARGET),
    "dct": _named(DCT_SPARSE, SPARSE_TARGET, merged_coordinates),
    "fp32": _named(FP32),
}


def codec_of(spec: CodecSpec) -> Codec:
    """The codec that a manifest names."""
    return CODECS[spec.kind]
