"""On which grid a job's updates begin: how far a round moves its tensors.

Rule of this file: a function of what is chosen (rates, optimiser, codec, shapes), not of data. It
was measured on drawn and trained models of 2^17 parameters, and adapters of these, at rates from
1e-6 to 1e-2 and 1 to 500 steps. A codec's grid bears a factor of two or three either way
(tests/property/job/test_first_updates.py); what is further off is voted on (SPEC-MERGE.md, 5).

A round's sum of rates is what AdamW moves a weight by where its gradients agree. They agree the
less the further it has moved, but no less than in a random walk, whose distance is the sum over the
root of the steps. Lion moves every weight by the whole rate in each step, and the signs of its
mixtures agree for far longer. Muon's steps are of few directions. Those of SGD are as long as the
gradients, which are clipped, and adapters' gradients are smaller than the model's by what A is
drawn with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, log1p, log2, sqrt
from typing import Final

from atoll.protocol.codecs import FP32_EXPONENT, Spread
from atoll.protocol.method_spec import CodecSpec, InnerSpec, TensorExponents
from atoll.protocol.model_spec import LoraSpec

_ADAPTER_GRADIENT: Final = 0.01
"""Of an adapter's gradient, over the model's, alpha and one over the root of the rank: half of the
deviation that A is drawn with."""
_SIGNS: Final = 0.9
"""Part of the sum of rates by which a weight moves that follows signs, at first."""
_SIGNS_LAST: Final = 0.35
"""And in the end."""
_ROOM: Final = 12
"""Exponents that a grid may leave its start by, either way: a schedule's end has a thousandth of
its first rates. A tensor that does not move at all comes back from there in three rounds."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """How tensors of a kind move.

    Attributes:
        agreeing: part of the sum of rates by which AdamW moves them while gradients agree.
        far: sum of rates at which these agree half as often.
        signs_far: the same of signs that steps follow whole.
        gradient: deviation of their gradients, over that of all.
        tiring: power by which SGD's gradients fall with what they have pushed.
    """

    agreeing: float
    far: float
    signs_far: float
    gradient: float
    tiring: float


_EMBEDDING: Final = _Kind(0.7, 0.05, 20.0, 1.4, 0.4)
_MATRIX: Final = _Kind(0.6, 0.003, 0.1, 0.5, 0.4)
_VECTOR: Final = _Kind(0.7, 0.02, 0.2, 0.6, 0.0)
_ADAPTER: Final = _Kind(0.6, 0.02, 2.0, 0.55, 0.1)


@dataclass(frozen=True, slots=True)
class Training:
    """What a job's first updates follow from.

    Attributes:
        inner: the optimiser.
        rates: of the steps of the first rounds, as many rounds as there are fragments.
        lora: what is trained in place of the model.
        trained: how many numbers.
    """

    inner: InnerSpec
    rates: Sequence[float]
    lora: LoraSpec | None
    trained: int

    def exponents(self, codec: CodecSpec) -> TensorExponents:
        """Those of round 0."""
        spread = codec.properties.spread
        if spread is None:
            return codec.exponents
        return TensorExponents(
            embedding=self._start(spread, _EMBEDDING),
            matrix=self._start(spread, _MATRIX if self.lora is None else _ADAPTER),
            vector=self._start(spread, _VECTOR),
        )

    def _start(self, steps: Spread, kind: _Kind) -> int:
        centre = steps.uneven if self.inner.properties.moves_by_gradient else steps.even
        if self._is_orthogonal(kind):
            centre = (steps.even + steps.uneven) / 2
        # The last fragment is sent after as many rounds as there are; the grid is one.
        rounds = (self.rates[: self.inner.steps], self.rates)
        mean = fsum(log2(self.deviation(rates, kind)) for rates in rounds) / 2
        return min(max(round(mean - centre), FP32_EXPONENT), 0)

    def deviation(self, rates: Sequence[float], kind: _Kind) -> float:
        """Of a tensor's values, after steps at these rates."""
        total = fsum(rates)
        if self.inner.properties.moves_by_gradient:
            pushed = self._pushed(rates)
            tired = exp(-kind.tiring * log1p(3 * pushed))
            return self._gradient * kind.gradient * pushed * tired
        wandering = exp(-0.3 * log1p(total))
        if self._is_orthogonal(kind):
            return 0.14 * total * wandering / sqrt(1 + 2 * total)
        if self.inner.properties.steps_whole:
            return total * max(_SIGNS / sqrt(1 + total / kind.signs_far), _SIGNS_LAST) * wandering
        agreeing = kind.agreeing / sqrt(1 + total / kind.far)
        return total * max(agreeing, 1 / sqrt(len(rates))) * wandering

    def _is_orthogonal(self, kind: _Kind) -> bool:
        return self.inner.properties.is_orthogonal and kind in (_MATRIX, _ADAPTER)

    @property
    def _gradient(self) -> float:
        """Deviation of what is trained's gradients."""
        norm = float(self.inner.clip)
        if self.lora is not None:
            smaller = _ADAPTER_GRADIENT * float(self.lora.alpha) / sqrt(self.lora.rank)
            norm = min(norm, smaller)
        return min(norm, 1.0) / sqrt(self.trained)

    def _pushed(self, rates: Sequence[float]) -> float:
        """The sum of rates, each times the gradients that momentum has in that step."""
        momentum, pushes, has = float(self.inner.momentum), [], 0.0
        for rate in rates:
            has = momentum * has + 1
            pushes.append(rate * has)
        return fsum(pushes)


def with_bounds(codec: CodecSpec) -> CodecSpec:
    """The codec with bounds that leave room around its starts."""
    if codec.properties.spread is None:
        return codec
    starts = [
        exponent
        for group in (codec.exponents, codec.moment_exponents)
        for exponent in group.model_dump().values()
    ]
    low, high = max(min(starts) - _ROOM, FP32_EXPONENT), min(max(starts) + _ROOM, 0)
    return codec.model_copy(update={"min_exponent": low, "max_exponent": high})
