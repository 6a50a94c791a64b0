"""Initial weights as a pure function of the manifest: Philox integers, two IEEE roundings.

Rule of this file: no library random generator and no transcendental function, so the first model
has the same bits on every machine.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from atoll.bits.fixed import fixed
from atoll.bits.kernels.philox import LOW32, philox4x32
from atoll.bits.layout import OUTER_SLOTS, Shapes, param_shapes
from atoll.bits.state import GlobalState, Tensors
from atoll.law.manifest import Manifest, OuterSpec

_WORD_BITS = 21  # so that the sum of four, below 2^23, is exact in every float
_AT_A_TIME = 1 << 16
"""Elements drawn together: their words stay in a core's cache."""
# Four uniform integers of 21 bits have variance 4·2^42/12; this is 0.02 / sqrt(2^42/3) in binary64.
_SCALE = 0.02 * 1.7320508075688772 / 2.0**_WORD_BITS


def bell_integers(seed: int, tensor_index: int, count: int) -> Tensor:
    """`count` integers [count], each the sum of four signed uniform 21-bit ones: nearly normal.

    Element i is the sum over block (i in two words, low first; tensor_index; 0) of the stream keyed
    by the 64-bit seed, low word first, of the words' upper 21 bits, less 2^20 each.
    """
    total = torch.empty(count, dtype=torch.int64)
    for start in range(0, count, _AT_A_TIME):
        blocks = torch.arange(start, min(start + _AT_A_TIME, count), dtype=torch.int64)
        index, zero = torch.full_like(blocks, tensor_index), torch.zeros_like(blocks)
        counter = (blocks & LOW32, blocks >> 32, index, zero)
        words = philox4x32(counter, (seed & LOW32, seed >> 32))
        total[start : start + len(blocks)] = sum(word >> (32 - _WORD_BITS) for word in words)
    return total - (4 << (_WORD_BITS - 1))


def initial_params(shapes: Shapes, seed: int) -> dict[str, Tensor]:
    """Ones for the norms' gains, deviation 0.02 for matrices; tensors count by sorted name."""
    params: dict[str, Tensor] = {}
    for index, name in enumerate(sorted(shapes)):
        shape = shapes[name]
        if len(shape) == 1:
            params[name] = torch.ones(shape, dtype=torch.float32)
            continue
        integers = bell_integers(seed, index, math.prod(shape))
        params[name] = (integers.double() * _SCALE).float().view(shape)
    return params


def initial_global_state(manifest: Manifest) -> GlobalState:
    """Round 0's global model. Its digest is a function of the manifest alone."""
    params = initial_params(param_shapes(manifest.model), manifest.init.seed)
    exponents = {name: manifest.codec.exponent_of(name) for name in params}
    return GlobalState(0, params, opening_slots(manifest.outer, params), exponents)


def opening_slots(outer: OuterSpec, params: Tensors) -> dict[str, Tensors]:
    """The slots of round 0: zero, and eps² for second moments, as FedAdam starts them."""
    start = {"second": fixed(outer.eps) ** 2}
    return {
        slot: {
            name: torch.full(p.shape, start.get(slot, 0), dtype=torch.int64)
            for name, p in params.items()
        }
        for slot in OUTER_SLOTS[outer.kind]
    }
