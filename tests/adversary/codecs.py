"""How seats of a small run write their updates, whichever codec it has.

Grids start where runs of `run.MODEL` have them anyway, so that ten rounds are not spent on finding
them. A row is what updates are merged as, in grid steps: coordinates, or coefficients of `dct`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from tests.adversary.updates import Rows
from torch import Tensor

from atoll.bits.codec.base import Exponents, Integers
from atoll.bits.codec.dither import DitherKey
from atoll.bits.codec.feedback import encode_with_feedback
from atoll.bits.codec.grid import as_tensors
from atoll.bits.codec.header import CodecId, header
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import seat_codec
from atoll.bits.codec.sparse import encode_body
from atoll.law.manifest import CodecSpec, TensorExponents

DEFAULT = "grid8"
_START_AND_FEEDBACK = {
    "grid8": (-11, "0"),
    "grid4": (-8, "0"),
    "two_bit": (-10, "0.9"),
    "sign": (-10, "0.9"),
    "sparse": (-10, "0.95"),
    "dct": (-10, "0.95"),
}
CODECS = tuple(_START_AND_FEEDBACK)


@dataclass(frozen=True)
class Written:
    """One seat's update.

    Attributes:
        data: its bytes.
        row: what they are merged as.
        residual: what they leave out, for the next round; None where the codec drops it.
    """

    data: bytes
    row: Integers
    residual: Mapping[str, Tensor] | None


def spec_of(kind: str) -> CodecSpec:
    """The codec with the feedback that it is used with."""
    start, feedback = _START_AND_FEEDBACK[kind]
    return CodecSpec(
        kind=kind,
        exponents=TensorExponents(embedding=start, matrix=start, vector=start),
        moment_exponents=TensorExponents(embedding=start, matrix=start, vector=start),
        min_exponent=-30,
        max_exponent=-4,
        feedback=feedback,
        fragments=1,
        overlap=0,
        mixing="0",
    )


def write(
    delta: Mapping[str, Tensor],
    before: Written | None,
    spec: CodecSpec,
    dither: DitherKey,
    exponents: Exponents,
) -> Written:
    """The update of a seat that wrote `before` the round before."""
    codec, layout, residual = seat_codec(spec, dither), Layout.of_tensors(delta), None
    if spec.carries_feedback:
        kept = before.residual if before else None
        kept = kept or {name: torch.zeros_like(value) for name, value in delta.items()}
        data, residual = encode_with_feedback(codec, delta, kept, exponents, float(spec.feedback))
    else:
        data = codec.encode(delta, exponents)
    return Written(data, codec.decode_flat(data, layout, exponents), residual)


def write_row(
    row: Rows, spec: CodecSpec, dither: DitherKey, layout: Layout, exponents: Exponents
) -> bytes:
    """The bytes of any row, as near to it as the codec can say."""
    if spec.kind == "dct":
        return header(CodecId.DCT_SPARSE, layout, exponents) + encode_body(row.astype(np.float32))
    return seat_codec(spec, dither).encode(as_tensors(row, layout, exponents), exponents)
