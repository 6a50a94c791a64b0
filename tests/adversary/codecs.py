"""How seats of a small run write their updates, whichever codec it has: all sections as numbers.

Grids start where runs of `run.MODEL` have them anyway, so that a few rounds are not spent on
finding them. A row of a grid is what is merged of it, in grid steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from tests.adversary.updates import Rows

from atoll.job.methods import moment_exponents
from atoll.numerics.codec.dither import MOMENT_SECTION, DitherKey
from atoll.numerics.codec.factored import FactoredLayout
from atoll.numerics.codec.grid_rounding import as_tensors
from atoll.numerics.codec.registry import seat_codec
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.sections import UpdateLayout, joined
from atoll.numerics.state import GlobalState
from atoll.protocol.manifest import Manifest
from atoll.protocol.method_spec import CodecSpec, TensorExponents

DEFAULT = "grid8"
_STARTS = {"grid8": -11, "grid4": -8, "two_bit": -10}
CODECS = tuple(_STARTS)
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Parts:
    """Updates of some seats, a row each.

    Attributes:
        delta: what moves the model, in grid steps.
        first: first moments, in grid steps.
        factored: of the second moments.
    """

    delta: Rows
    first: Rows
    factored: Rows

    def __len__(self) -> int:
        return len(self.delta)

    def but(self, **changes: Rows) -> Self:
        """With other rows of some section."""
        return replace(self, **changes)

    def mean(self, count: int) -> Self:
        """So many seats that all send the mean."""
        rows = (np.tile(part.mean(axis=0), (count, 1)) for part in self._parts())
        return type(self)(*rows)

    @classmethod
    def stacked(cls, parts: Sequence[Parts]) -> Parts:
        """All of them, in order."""
        return cls(*map(np.concatenate, zip(*(one._parts() for one in parts), strict=True)))

    def _parts(self) -> tuple[Rows, Rows, Rows]:
        return self.delta, self.first, self.factored


def spec_of(kind: str, trained: int) -> CodecSpec:
    """The codec, without feedback, for so many parameters."""
    start = _STARTS[kind]
    spec = CodecSpec(
        kind=kind,
        exponents=TensorExponents(embedding=start, matrix=start, vector=start),
        moment_exponents=TensorExponents(embedding=start, matrix=start, vector=start),
        min_exponent=-30,
        max_exponent=-4,
        feedback="0",
        fragments=1,
        overlap=0,
        mixing="0",
    )
    return spec.model_copy(update={"moment_exponents": moment_exponents(spec, trained)})


def read(data: bytes, manifest: Manifest, state: GlobalState, dither: DitherKey) -> Parts:
    """What a seat's bytes say. Raises MalformedUpdate."""
    opened = UpdateLayout.of(manifest, state.shapes, state.round).open(data, state, dither)
    assert opened.first is not None and opened.factored is not None
    sums = opened.factored[0 : len(opened.factored)].view("<f4")
    rows = (opened.delta[0 : len(opened.delta)], opened.first[0 : len(opened.first)], sums)
    return Parts(*(row.astype(np.float64)[None] for row in rows))


def write(parts: Parts, seat: int, manifest: Manifest, state: GlobalState, key: DitherKey) -> bytes:
    """The bytes of any rows, as near to those of `seat` as the codec can say."""
    layout = Layout.of(state.shapes)
    places = FactoredLayout(layout)
    first = replace(key, section=MOMENT_SECTION)
    sums = np.clip(parts.factored[seat], 0, _LARGEST).astype("<f4")
    return joined(
        [
            _written(parts.delta[seat], manifest.codec, key, layout, state.exponents),
            _written(parts.first[seat], manifest.codec, first, layout, state.moment_exponents),
            places.header + sums.tobytes(),
        ]
    )


def _written(
    row: Rows, spec: CodecSpec, dither: DitherKey, layout: Layout, exponents: Mapping[str, int]
) -> bytes:
    return seat_codec(spec, dither).encode(as_tensors(row, layout, exponents), exponents)
