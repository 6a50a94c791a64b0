"""Initial weights as a pure function of the manifest: Philox integers, two IEEE roundings.

Rule of this file: no library random generator and no transcendental function, so the first model
has the same bits on every machine. Source: Salmon et al., "Parallel random numbers: as easy as
1, 2, 3" (SC 2011), Philox4x32-10; test vectors from Random123's kat_vectors.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atoll.bits.fixed import fixed
from atoll.bits.layout import OUTER_SLOTS, Shapes, param_shapes
from atoll.bits.state import GlobalState, Tensors
from atoll.law.manifest import Manifest, OuterSpec

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW32 = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)
_WORD_BITS = 21
# Four uniform integers of 21 bits have variance 4·2^42/12; this is 0.02 / sqrt(2^42/3) in binary64.
_SCALE = 0.02 * 1.7320508075688772 / 2.0**_WORD_BITS


def philox4x32(counter: NDArray[np.uint64], key: tuple[int, int]) -> NDArray[np.uint64]:
    """Philox4x32-10: counter words [4, n] and a key of two words, each below 2**32, to [4, n]."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        left, right = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (right >> _HIGH) ^ c1 ^ np.uint64(k0),
            right & _LOW32,
            (left >> _HIGH) ^ c3 ^ np.uint64(k1),
            left & _LOW32,
        )
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3])


def bell_integers(seed: int, tensor_index: int, count: int) -> NDArray[np.int64]:
    """`count` integers, each the sum of four signed uniform 21-bit ones: nearly normal.

    Element i is block (i, tensor_index) of the stream keyed by the 64-bit seed.
    """
    blocks = np.arange(count, dtype=np.uint64)
    zeros = np.zeros_like(blocks)
    counter = np.stack([blocks & _LOW32, blocks >> _HIGH, zeros + np.uint64(tensor_index), zeros])
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    signed = (words >> np.uint64(32 - _WORD_BITS)).astype(np.int64) - (1 << (_WORD_BITS - 1))
    total: NDArray[np.int64] = signed.sum(axis=0, dtype=np.int64)
    return total


def initial_params(shapes: Shapes, seed: int) -> dict[str, Tensor]:
    """Ones for the norms' gains, deviation 0.02 for matrices; tensors count by sorted name."""
    params: dict[str, Tensor] = {}
    for index, name in enumerate(sorted(shapes)):
        shape = shapes[name]
        if len(shape) == 1:
            params[name] = torch.ones(shape, dtype=torch.float32)
            continue
        integers = bell_integers(seed, index, int(np.prod(shape)))
        weights = (integers.astype(np.float64) * _SCALE).astype(np.float32)
        params[name] = torch.from_numpy(weights).view(shape)
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
