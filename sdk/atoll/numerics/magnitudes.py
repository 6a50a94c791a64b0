"""Whether a model's forward values stay within fp32, whatever it reads.

Rule of this file: an answer of no costs time, an answer of yes must be right. Bounds are twice what
the arithmetic gives, for its roundings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from torch import Tensor

from atoll.numerics.frozen_base import HEAD, Base
from atoll.numerics.kernels.grid import INT8_LEVELS, SPLIT_LEVELS
from atoll.numerics.state_layout import DOWN
from atoll.protocol.model_spec import ModelSpec

LARGEST_PARAMETER: Final = 2.0**8
LARGEST_VALUE: Final = 2.0**120
"""fp32 ends at 2^128; roundings of a few hundred layers' sum do not come near the rest."""


def is_cache_safe(params: Mapping[str, Tensor], spec: ModelSpec, base: Base | None) -> bool:
    """Whether no token can make a value that is not finite, in the trained model or on a base."""
    largest = max(_largest_of(params.values()), 0.0 if base is None else _largest_of_base(base))
    if largest >= LARGEST_PARAMETER:
        return False
    rank = next((len(p) for name, p in params.items() if name.endswith(DOWN)), 0)
    raised = 2.0 * base.scale * rank * largest if base is not None else 0.0
    return _largest_value(spec, largest, 1.0 + raised) < LARGEST_VALUE


def _largest_of(tensors: Iterable[Tensor]) -> float:
    """The largest magnitude of some tensors; infinite where one has a NaN."""
    magnitudes = [float(tensor.abs().max()) for tensor in tensors]
    return max((math.inf if math.isnan(each) else each for each in magnitudes), default=0.0)


def _largest_of_base(base: Base) -> float:
    linears = (frozen for name, frozen in base.products.items() if name != HEAD)
    steps = _largest_of(frozen.parts[-1] for frozen in linears)
    of_head = _largest_of([base.head.parts[-1]]) * SPLIT_LEVELS
    return max(_largest_of(base.others.values()), steps * INT8_LEVELS, of_head)


def _largest_value(spec: ModelSpec, largest: float, raised: float) -> float:
    """Of the residual stream, and of all that is made on the way to it.

    Args:
        raised: what adapters multiply a linear's bound by, 1 without any.
    """

    def linear(value: float, width: int) -> float:
        return 2.0 * width * value * largest * raised + largest

    def norm(width: int) -> float:
        return 2.0 * math.sqrt(width) * largest

    heads, normed = spec.heads * spec.head_dim, norm(spec.width)
    stream = top = max(largest, normed)
    for _ in range(spec.layers):
        # Where norms come last, what is read is the sum, which grows by a norm at a time.
        read = normed if spec.layer_kind.norms_inputs else stream
        projected = max(linear(read, spec.width), norm(heads))
        attended = linear(2.0 * projected, heads)
        gated = linear(read if spec.layer_kind.norms_inputs else stream + normed, spec.width) ** 2
        made = linear(gated, spec.ffn)
        stream += attended + made if spec.layer_kind.norms_inputs else 2.0 * normed
        top = max(top, stream, projected**2 * spec.head_dim, attended, gated, made)
        if top >= LARGEST_VALUE:  # before it leaves binary64
            return math.inf
    return max(top, linear(normed, spec.width))
