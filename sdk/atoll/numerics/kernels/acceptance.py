"""Whether two implementations of the kernels give the same bits, on inputs chosen to part them.

Run at start-up before compiled or fused kernels are used, and by the tests with more seeds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import torch
from torch import Tensor

from atoll.numerics.kernels.attention import Attention
from atoll.numerics.kernels.gemm import ROUTES, batched_product
from atoll.numerics.kernels.grid import INT8_LEVELS, SPLIT_LEVELS, SUM_LEVELS, one_nan, steps
from atoll.numerics.kernels.interface import (
    CPU,
    TILE,
    AdamFactors,
    Engine,
    Grid,
    Kernels,
    Scores,
    WholeAttention,
)
from atoll.numerics.kernels.muon import orthogonalise
from atoll.numerics.kernels.philox import Mask
from atoll.numerics.kernels.reference import TorchKernels

KINDS = (
    "normal", "huge", "tiny", "subnormal", "constant", "one hot", "mixed scales",
    "zeros of both signs", "overflowing", "infinite", "not a number",
)  # fmt: skip
_CROSSED = "below 1", "above 1", "below 1", "far below 1"
"""Of q, k, v and g: subnormal products that a large step makes normal again."""
_POWERS = {
    "normal": 0, "huge": 60, "tiny": -90, "subnormal": -130,
    "below 1": -61, "above 1": 60, "far below 1": -70,
}  # fmt: skip
_NANS = (0x7FC00000, 0x7F800001, -0x3FFFFF, -0x7FFFFF)
"""Quiet and signalling ones of both signs, as int32."""
_RANGES = {"mixed scales": (-30, 30), "overflowing": (90, 127)}
_SHARES = {"one hot": 0.02, "infinite": 0.005, "not a number": 0.005}
"""About a third of the rows have an ∞ or NaN."""
Results = Iterator[tuple[str, tuple[object, ...]]]
"""Kernels' names and what they gave."""
_FACTORS = AdamFactors(0.7, 0.9, 0.99, 1.7, 2.3, 1e-8, 0.1, 3e-3)


def sample(kind: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """fp32 of one kind: the values that rounding, scaling and underflow treat differently."""
    x = torch.randint(-(2**23), 2**23, shape, generator=generator).float() * 2.0**-22
    if kind in _POWERS:
        return x * 2.0 ** _POWERS[kind]
    if kind in _RANGES:
        return torch.ldexp(x, torch.randint(*_RANGES[kind], shape, generator=generator))
    if kind == "constant":
        return torch.full(shape, 0.3)
    if kind == "zeros of both signs":
        return torch.where(x < 0, -0.0, 0.0)
    rare = torch.rand(shape, generator=generator) < _SHARES[kind]
    others = torch.zeros(shape) if kind == "one hot" else x
    return torch.where(rare, _rare(kind, x, generator), others)


def _rare(kind: str, x: Tensor, generator: torch.Generator) -> Tensor:
    if kind == "infinite":
        return torch.copysign(torch.full_like(x, torch.inf), x)
    if kind == "not a number":
        nans = torch.tensor(_NANS, dtype=torch.int32).view(torch.float32)
        return nans[torch.randint(0, len(_NANS), x.shape, generator=generator)]
    return x


def next_to_halves(shape: tuple[int, int], levels: int, generator: torch.Generator) -> Tensor:
    """fp32 whose products with the multiplier onto so many levels round to k + ½, or next to it.

    Where the product is not rounded before it is made whole, as in a contracted multiply-add, many
    of these give another integer; of other values one in 364,000 does at 127 levels. The largest
    magnitude stands in the first row and column.
    """
    peak = torch.tensor(0.7)
    multiplier, _ = steps(peak, levels)
    k = torch.randint(-levels, levels, shape, generator=generator).double()
    x = ((k + 0.5) / multiplier.double()).float()
    aside = torch.randint(0, 3, shape, generator=generator)
    x = torch.where(aside == 0, torch.nextafter(x, x * 2.0), x)
    x = torch.where(aside == 1, torch.nextafter(x, x * 0.5), x).clamp(-peak, peak)
    x[0], x[:, 0] = peak, peak
    return x


def moved(kernels: Kernels, device: torch.device) -> Kernels:
    """Kernels that work on a device for whoever has all tensors on the CPU."""
    return cast(Kernels, _Moved(kernels, device))


class _Moved:
    def __init__(self, kernels: Kernels, device: torch.device) -> None:
        self._kernels, self._device = kernels, device

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._kernels, name)

        def call(*given: object, **named: object) -> object:
            return _on(method(*(_on(each, self._device) for each in given), **named), CPU)

        return call


def _on(value: object, device: torch.device) -> object:
    """A tensor on a device, and whatever of those that are handed to kernels holds some."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, (tuple, list)):
        return type(value)(_on(each, device) for each in value)
    if isinstance(value, (Grid, Scores)):
        parts: dict[str, Any] = {f.name: _on(getattr(value, f.name), device) for f in fields(value)}
        return replace(value, **parts)
    return value


def differences(candidate: Kernels, reference: Kernels, seed: int = 0, rows: int = 37) -> list[str]:
    """The kernels, with the kind of input, whose results differ in any bit; [] if none."""
    found = []
    for kind, results in _inputs(seed, rows).items():
        try:
            for (name, a), (_, b) in zip(results(candidate), results(reference), strict=True):
                if not _same(a, b):
                    found.append(f"{name} on {kind} input")
        except (ArithmeticError, ValueError) as error:  # such as the root of a negative sum
            found.append(f"{error} on {kind} input")
    return found


def attention_differences(
    candidate: WholeAttention, device: torch.device, width: int, seed: int = 0
) -> list[str]:
    """The kinds of input on which it gives other bits than the tiles, forward or backward."""
    route = ROUTES["fp64"]
    tiles = Engine(route, TorchKernels(), batched_product(route))
    whole = replace(tiles, device=device, attention=candidate)
    generator, found = torch.Generator().manual_seed(seed + 4), []
    with torch.inference_mode(mode=False), torch.enable_grad():
        for kinds in _heads():
            inputs = [_long_heads(kind, width, generator) for kind in kinds]
            if not _same(attended(tiles, inputs), attended(whole, inputs)):
                found.append(f"attention on {', '.join(kinds)} input")
    return found


def _heads() -> Iterator[Sequence[str]]:
    """Four kinds each: of q, k, v and the output's gradient.

    What is not finite stands in one of them alone, too: a NaN hides the others' differences.
    """
    for kind in ("normal", "tiny", "constant", "next to their peak", "mixed scales"):
        yield [kind] * 4
    yield _CROSSED
    for kind in ("infinite", "not a number"):
        for at in range(4):
            yield [kind if i == at else "normal" for i in range(4)]
    yield ["not a number"] * 4


def _long_heads(kind: str, width: int, generator: torch.Generator) -> Tensor:
    """Two tiles of positions. Only later ones are not finite: what comes before sees none.

    Of equal ones there are so many that a query's total weight is no int32.
    """
    shape = (1, 2, 2 * TILE + 8 if kind == "constant" else TILE + 72, width)
    x = sample("normal", shape, generator)
    if kind == "next to their peak":  # sums of products are as large as they can be
        return 0.95 + 0.025 * x
    if kind in _SHARES:
        return torch.cat((x[:, :, :150], sample(kind, shape, generator)[:, :, 150:]), dim=2)
    return sample(kind, shape, generator)


def attended(engine: Engine, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Attention of q, k and v, and their gradients from the output's.

    Whoever reads these takes every NaN for the same: they are made so here.
    """
    q, k, v, g = (x.to(engine.device) for x in inputs)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out: Tensor = Attention.apply(engine, q.shape[2], *leaves)  # type: ignore[no-untyped-call]
    return tuple(one_nan(x.detach().cpu()) for x in (out, *torch.autograd.grad(out, leaves, g)))


def _inputs(seed: int, rows: int) -> dict[str, Callable[[Kernels], Results]]:
    def of_kind(kind: str) -> Callable[[Kernels], Results]:
        return lambda kernels: _results(kernels, kind, seed, rows)

    kinds = {kind: of_kind(kind) for kind in KINDS}
    own = {"half": lambda k: _half_results(k, seed), "long": _long_results, "gate": _gate_results}
    return kinds | own


def _same(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))


def _equal(x: object, y: object) -> bool:
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return torch.equal(_bits(x), _bits(y))
    if isinstance(x, float) and isinstance(y, float):
        return struct.pack("<d", x) == struct.pack("<d", y)
    return x == y


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8) if x.dim() else x


def _flat(*grids: Grid) -> tuple[object, ...]:
    return tuple(t for grid in grids for t in (grid.high, grid.low, grid.step))


def _results(kernels: Kernels, kind: str, seed: int, rows: int) -> Results:
    yield from _linear_results(kernels, kind, seed, rows)
    yield from _pointwise_results(kernels, kind, seed, rows)
    yield from _attention_results(kernels, kind, seed)


def _linear_results(k: Kernels, kind: str, seed: int, rows: int) -> Results:
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
    high, middle, middle2 = (part.long() * 31 + 5 for part in sums)
    yield "rescale_split", (k.rescale_split((high, middle, middle2), step, column),)
    yield "square_sums", tuple(n for pair in k.square_sums([x, x[:1]]) for n in pair)
    # One product of the same sums with every implementation: the kernels around it are compared.
    engine = Engine(ROUTES["fp64"], k, torch.matmul)
    yield "gram, quintic or advance", (orthogonalise(engine, x),)


def _pointwise_results(k: Kernels, kind: str, seed: int, rows: int) -> Results:
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
    yield "embedding_gradient", (k.embedding_gradient(plain, ids * 0, 1),)
    yield "softmax_loss", k.softmax_loss(plain, ids)
    yield "softmax_loss", k.softmax_loss(plain, ids - 4)  # some negative: no targets
    turned = sample(kind, (2, 5, 3, 8), generator).transpose(1, 2)
    angles = [sample("normal", (5, 4), generator) for _ in range(2)]
    yield "rotate", (k.rotate(turned, angles[0], angles[1], -1.0),)
    moments = sample("tiny", (rows, 83), generator), sample(kind, (rows, 83), generator).abs()
    yield "momentum", (k.momentum(moments[0], plain, 0.95, 0.05),)
    yield "adamw", k.adamw(y, *moments, plain, _FACTORS)


def _attention_results(k: Kernels, kind: str, seed: int) -> Results:
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


def _half_results(k: Kernels, seed: int) -> Results:
    """Every kernel that rounds to a grid, with factors of one around what is rounded."""
    generator = torch.Generator().manual_seed(seed + 3)

    def halves(levels: int, rows: int = 200, columns: int = 4) -> Tensor:
        return next_to_halves((rows, columns), levels, generator)

    yield "quantise_rows", _flat(k.quantise_rows(halves(INT8_LEVELS), split=False))
    x = halves(SPLIT_LEVELS)
    one_N1, one_1O = torch.ones(len(x), 1), torch.ones(1, x.shape[1])
    yield "quantise_rows", _flat(k.quantise_rows(x, split=True))
    yield (
        "quantise_gradient",
        tuple(t for p in k.quantise_gradient((x,), one_N1, one_1O) for t in p),
    )
    yield "rms_norm", k.rms_norm(halves(2**18), one_1O[0], 1e-5)
    x = halves(SUM_LEVELS)
    ones = torch.ones_like(x)
    yield "rms_norm_gradient", k.rms_norm_gradient(x, ones, one_N1, one_1O[0])
    yield "embedding_gradient", (k.embedding_gradient(x, torch.arange(len(x)), len(x)),)
    yield "row_dot", (k.row_dot(x, ones),)
    yield "square_sums", k.square_sums([halves(2**16)])[0]
    x = halves(362)
    yield "quantise_levels", k.quantise_levels(x, 362)
    yield "quantise_mixture", k.quantise_mixture(x[None], torch.ones(1, 4, 1), 0, 362)
    x = halves(362, 60, 60)[None]
    zero_Gts, one_Gt1 = torch.zeros_like(x), torch.ones(1, 60, 1)
    steps_of_one = (one_Gt1, one_Gt1, one_Gt1, one_Gt1)
    for shares, inverse in ((x, one_Gt1), (zero_Gts, x[:, :, 1:2].abs())):
        tile = Scores(
            zero_Gts,
            shares,
            *steps_of_one,
            zero_Gts[:, :, :1],
            inverse,
            zero_Gts[:, :, :1],
            60,
            362,
        )
        yield "attention_gradient", tuple(t for pair in k.attention_gradient(tile) for t in pair)
    yield "quintic", _quintic_result(k, generator)


def _quintic_result(k: Kernels, generator: torch.Generator) -> tuple[object, ...]:
    """Its rows come out as −4.775 · step: the steps are halves over that factor."""
    size, factor = 64, torch.tensor(-4.775)
    step_S1 = next_to_halves((2, size), INT8_LEVELS, generator)[1][:, None] / factor
    nothing = torch.zeros(size, size, dtype=torch.int32), torch.ones(size, 1)
    along, across = k.quintic(torch.zeros(size), torch.ones(size, size), nothing, step_S1)
    return along, *_flat(across)


def _long_results(k: Kernels) -> Results:
    """Rows longer than any block that an implementation sums at a time, all at their peak."""
    x, step = torch.full((2, 2100), -0.3), torch.ones(1, 2, 1)
    yield "row_dot", (k.row_dot(x, x),)
    yield "rms_norm", k.rms_norm(x, torch.ones(2100), 1e-5)
    yield "softmax_loss", k.softmax_loss(x, torch.tensor([0, 2099]))
    yield (
        "attention_weights",
        k.attention_weights(x[None].clone(), step, torch.ones(1, 2100, 1), 2098),
    )
    for split in (False, True):
        yield "quantise_rows", _flat(k.quantise_rows(x, split))


def _gate_results(k: Kernels) -> Results:
    """Where a sigmoid is subnormal, which a division that flushes them makes 0."""
    gate, up = torch.linspace(-88.7, -87.4, 64)[None], torch.full((1, 64), 2.0**20)
    yield "swiglu", (k.swiglu(gate, up),)
    yield "swiglu_gradient", k.swiglu_gradient(up, gate, up)
