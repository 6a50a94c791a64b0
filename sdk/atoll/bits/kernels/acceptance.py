"""Whether two implementations of the kernels give the same bits, on inputs chosen to part them.

Run at start-up before compiled kernels are used, and by the tests with more seeds.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from atoll.bits.kernels.gemm import ROUTES
from atoll.bits.kernels.interface import AdamFactors, Engine, Grid, Kernels, Scores
from atoll.bits.kernels.muon import orthogonalise
from atoll.bits.kernels.philox import Mask

KINDS = ("normal", "huge", "tiny", "subnormal", "constant", "one hot", "mixed scales", "zero")
_POWERS = {"normal": 0, "huge": 60, "tiny": -90, "subnormal": -130}
_FACTORS = AdamFactors(0.7, 0.9, 0.99, 1.7, 2.3, 1e-8, 0.1, 3e-3)


def sample(kind: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """fp32 of one kind: the values that rounding, scaling and underflow treat differently."""
    x = torch.randint(-(2**23), 2**23, shape, generator=generator).float() * 2.0**-22
    if kind in _POWERS:
        return x * 2.0 ** _POWERS[kind]
    if kind == "constant":
        return torch.full(shape, 0.3)
    if kind == "one hot":
        return torch.where(torch.rand(shape, generator=generator) < 0.02, x, 0.0)
    if kind == "mixed scales":
        return torch.ldexp(x, torch.randint(-30, 30, shape, generator=generator))
    return torch.zeros(shape)


def differences(candidate: Kernels, reference: Kernels, seed: int = 0, rows: int = 37) -> list[str]:
    """The kernels, with the kind of input, whose results differ in any bit; [] if none."""
    found = []
    for kind in KINDS:
        ours = _results(candidate, kind, seed, rows)
        theirs = _results(reference, kind, seed, rows)
        for (name, a), (_, b) in zip(ours, theirs, strict=True):
            if not _same(a, b):
                found.append(f"{name} on {kind} input")
    return found


def _same(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))


def _equal(x: object, y: object) -> bool:
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return torch.equal(_bits(x), _bits(y))
    return x == y


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8) if x.dim() else x


def _flat(*grids: Grid) -> tuple[object, ...]:
    return tuple(t for grid in grids for t in (grid.high, grid.low, grid.step))


def _results(
    kernels: Kernels, kind: str, seed: int, rows: int
) -> Iterator[tuple[str, tuple[object, ...]]]:
    yield from _linear_results(kernels, kind, seed, rows)
    yield from _pointwise_results(kernels, kind, seed, rows)
    yield from _attention_results(kernels, kind, seed)


def _linear_results(
    k: Kernels, kind: str, seed: int, rows: int
) -> Iterator[tuple[str, tuple[object, ...]]]:
    generator = torch.Generator().manual_seed(seed)
    x = sample(kind, (rows, 83), generator)
    row, column = (sample("normal", shape, generator).abs() for shape in ((rows, 1), (1, 83)))
    sums = [torch.randint(-(2**29), 2**29, x.shape, generator=generator).int() for _ in range(3)]
    for split in (False, True):
        yield "quantise_rows", _flat(k.quantise_rows(x, split))
    parts = x[:, :50], x[:, 50:]
    yield "quantise_gradient", tuple(t for p in k.quantise_gradient(parts, row, column) for t in p)
    even = 2 * (rows // 2)
    yield "rescale_stacked", (k.rescale_stacked(sums[1][:even], row[: even // 2]),)
    step = sample(kind, (rows, 1), generator)
    yield "rescale", (k.rescale(sums[0].clone(), step, column),)
    yield "rescale_split", (k.rescale_split((sums[0], sums[1], sums[2]), step, column),)
    yield "square_sum", k.square_sum(x)
    # One product of the same sums with every implementation: the kernels around it are compared.
    engine = Engine(ROUTES["fp64"], k, torch.matmul)
    yield "gram, quintic or advance", (orthogonalise(engine, x),)


def _pointwise_results(
    k: Kernels, kind: str, seed: int, rows: int
) -> Iterator[tuple[str, tuple[object, ...]]]:
    generator = torch.Generator().manual_seed(seed + 1)
    x, y = sample(kind, (rows, 166), generator), sample("normal", (rows, 83), generator)
    left, right = x[:, :83], x[:, 83:]
    gain = sample("normal", (83,), generator)
    plain = left.contiguous()
    normed, inverse = k.rms_norm(plain, gain, 1e-5)
    yield "rms_norm", (normed, inverse)
    yield "rms_norm_gradient", k.rms_norm_gradient(y, plain, inverse, gain)
    yield "rms_norm_gradient", k.rms_norm_gradient(plain, y, inverse, gain)
    yield "swiglu", (k.swiglu(left, right),)
    yield "swiglu_gradient", k.swiglu_gradient(y, left, right)
    mask = Mask("0.3", (seed & 0xFFFFFFFF, 7), rows, 2, 5 + (1 << 34))
    yield "drop", (k.drop(plain, mask),)
    yield "squared_relu", (k.squared_relu(plain),)
    yield "squared_relu_gradient", (k.squared_relu_gradient(y, plain),)
    ids = torch.randint(0, 11, (rows,), generator=generator)
    yield "embedding_gradient", (k.embedding_gradient(plain, ids, 11),)
    yield "softmax_loss", k.softmax_loss(plain, ids)
    turned = sample(kind, (2, 5, 3, 8), generator).transpose(1, 2)
    angles = [sample("normal", (5, 4), generator) for _ in range(2)]
    yield "rotate", (k.rotate(turned, angles[0], angles[1], -1.0),)
    moments = sample("tiny", (rows, 83), generator), sample(kind, (rows, 83), generator).abs()
    yield "momentum", (k.momentum(moments[0], plain, 0.95, 0.05),)
    yield "adamw", k.adamw(y, *moments, plain, _FACTORS)


def _attention_results(
    k: Kernels, kind: str, seed: int
) -> Iterator[tuple[str, tuple[object, ...]]]:
    generator = torch.Generator().manual_seed(seed + 2)
    queries, keys = 19, 24
    x = sample(kind, (3, queries, keys), generator)
    other = sample("normal", (3, queries, keys), generator)
    yield "quantise_levels", k.quantise_levels(x, 362)
    delta = k.row_dot(x, other)
    yield "row_dot", (delta,)
    scores, shares = (
        torch.randint(-(2**20), 2**20, x.shape, generator=generator).float() for _ in range(2)
    )
    q_step, g_step = (
        sample(kind, (3, queries, 1), generator).abs().clamp_min(2.0**-90) for _ in range(2)
    )
    k_step, v_step = (sample("normal", (3, keys, 1), generator).abs() * 2.0**-16 for _ in range(2))
    weights, peak, inverse = k.attention_weights(scores.clone(), q_step, k_step, 5)
    yield "attention_weights", (weights, peak, inverse)
    yield "quantise_mixture", k.quantise_mixture(weights, v_step[:, :9].contiguous(), 7, 362)
    _, peak, inverse = k.attention_weights(scores.clone(), q_step, k_step, keys - 1)
    for first in (-11, 0, 5, keys):
        tile = Scores(
            scores, shares, q_step, k_step, g_step, v_step, peak, inverse, delta, first, 362
        )
        yield "attention_gradient", tuple(t for pair in k.attention_gradient(tile) for t in pair)
