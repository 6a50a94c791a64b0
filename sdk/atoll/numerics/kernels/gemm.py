"""Exact products of integer matrices, by whichever arithmetic this machine does fastest.

Every partial sum of an integer product is an integer, so order, threads, vector width and FMA
cannot change it as long as the arithmetic holds each partial sum exactly. A route is one such
arithmetic. It is only used after `is_exact` has passed on this machine: oneDNN's int8 GEMM on a CPU
without VNNI saturates int16 pair sums and returns wrong numbers without an error.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import Tensor

from atoll.numerics.kernels.gpu import lacks_kernel
from atoll.numerics.kernels.variables import DEVICES
from atoll.protocol.model_spec import INNER_LIMIT

INT8_MAX = 127
FP32_EXACT = 2**24
_FP64_BLOCK = 2048
"""Rows, inner terms and columns of an fp64 product at most."""
FP32_SPLIT_K = 1040
"""Columns per fp32 product of int8 operands: 1040 · 127² < 2^24."""


@dataclass(frozen=True, slots=True)
class Route:
    """One way to multiply int8 matrices exactly.

    Attributes:
        name: what logs and the manifest's lab call it.
        matmul: x (M, K) int8 · w (K, N) int8 → (M, N) int32, any strides, K ≤ INNER_LIMIT.
        devices: where it may be tried.
    """

    name: str
    matmul: Callable[[Tensor, Tensor], Tensor]
    devices: tuple[str, ...] = DEVICES


def _matmul_int8(x_MK: Tensor, w_KN: Tensor) -> Tensor:
    rows, inner, columns = (*x_MK.shape, w_KN.shape[1])
    if x_MK.is_cuda:
        # cuBLASLt multiplies int8 where both operands have their inner terms side by side, in
        # rows of a multiple of 16 bytes. Of other layouts it has some sizes, and refuses others.
        x_MK, w_KN = _padded(x_MK, w_KN, (max(-rows % 16, 32 - rows), -inner % 16, -columns % 16))
        return torch._int_mm(x_MK.contiguous(), w_KN.mT.contiguous().mT)[:rows, :columns]
    # The stride of a dimension of size 1 means nothing, but PyTorch hands it to oneDNN, which may
    # refuse it; then nobody writes the result, and memory as it was is returned without an error.
    # Source: https://github.com/pytorch/pytorch/issues/195066.
    x_MK, w_KN = _padded(x_MK, w_KN, (rows == 1, inner == 1, columns == 1))
    return torch._int_mm(x_MK, w_KN)[:rows, :columns]


def _padded(x_MK: Tensor, w_KN: Tensor, by: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """The operands with so many more rows, inner terms and columns: zeros change no sum."""
    rows, inner, columns = by
    if rows or inner:
        x_MK = torch.nn.functional.pad(x_MK, (0, inner, 0, rows))
    if inner or columns:
        w_KN = torch.nn.functional.pad(w_KN, (0, columns, 0, inner))
    return x_MK, w_KN


def _in_parts(
    x_MK: Tensor,
    w_KN: Tensor,
    product: Callable[[Tensor, Tensor], Tensor],
    inner: int = FP32_SPLIT_K,
) -> Tensor:
    """By a product that adds in fp32, so many terms at a time."""
    total: Tensor | None = None
    for start in range(0, x_MK.shape[1], inner):
        stop = start + inner
        part = product(x_MK[:, start:stop], w_KN[start:stop]).to(torch.int32)
        # Parts are added as integers: in fp32 their sum would leave what it holds exactly.
        total = part if total is None else total + part
    return (
        x_MK.new_zeros((x_MK.shape[0], w_KN.shape[1]), dtype=torch.int32)
        if total is None
        else total
    )


def _fp32_product(x_MK: Tensor, w_KN: Tensor) -> Tensor:
    return x_MK.float() @ w_KN.float()


def _bf16_product(x_MK: Tensor, w_KN: Tensor) -> Tensor:
    """bf16 has every integer up to 256; units for matrices add its products up in fp32."""
    return torch.mm(x_MK.bfloat16(), w_KN.bfloat16(), out_dtype=torch.float32)


def _matmul_fp64(x_MK: Tensor, w_KN: Tensor) -> Tensor:
    # Block by block: operands and product of a head over a large vocabulary, eight bytes a number,
    # would be more than the rest of a step.
    (rows, inner), columns = x_MK.shape, w_KN.shape[1]
    total = x_MK.new_zeros((rows, columns), dtype=torch.int32)
    for at in product(*(range(0, size, _FP64_BLOCK) for size in (rows, inner, columns))):
        row, term, column = (slice(start, start + _FP64_BLOCK) for start in at)
        part = x_MK[row, term].double() @ w_KN[term, column].double()
        total[row, column] += part.to(torch.int32)
    return total


ROUTES = {
    "int8": Route("int8", _matmul_int8),
    # A CPU's product of bf16 rounds its result to bf16, and on some virtual machines it ends the
    # process: there it is not even tried.
    "bf16": Route("bf16", partial(_in_parts, product=_bf16_product), devices=("cuda",)),
    "fp32": Route("fp32", partial(_in_parts, product=_fp32_product)),
    "fp64": Route("fp64", _matmul_fp64),
}


def fp32_route(inner: int) -> Route:
    """The fp32 route with so many columns a product, at most FP32_SPLIT_K."""
    if not 1 <= inner <= FP32_SPLIT_K:
        raise ValueError(f"fp32 holds products of 1 to {FP32_SPLIT_K} columns, not {inner}")
    return Route("fp32", partial(_in_parts, product=_fp32_product, inner=inner))


def long_product(route: Route, x_MK: Tensor, w_KN: Tensor) -> Tensor:
    """x · w for any K: int32 [M, N] where an int32 holds its sums, else int64.

    Parts of at most INNER_LIMIT terms are summed apart and added as int64. They have one length but
    for the last, so that none of them is of a term or two.
    """
    inner = x_MK.shape[1]
    if inner <= INNER_LIMIT:
        return route.matmul(x_MK, w_KN)
    length = math.ceil(inner / math.ceil(inner / INNER_LIMIT))
    starts = range(0, inner, length)
    parts = (route.matmul(x_MK[:, at : at + length], w_KN[at : at + length]) for at in starts)
    total = next(parts).long()
    for part in parts:
        total += part
    return total


def matmul_reference(x_MK: Tensor, w_KN: Tensor) -> Tensor:
    """The same product in int64, element by element: slow, and obviously right."""
    return (x_MK.long().unsqueeze(2) * w_KN.long().unsqueeze(0)).sum(1).to(torch.int32)


def layouts(x: Tensor) -> Iterator[Tensor]:
    """x [..., a, b] itself, transposed in memory, and both as a part of a larger tensor.

    Libraries choose their kernels, and apply their settings, by an operand's layout.
    """
    yield x
    # Not `contiguous`, which leaves a dimension of size 1 the stride that it has.
    yield x.mT.clone(memory_format=torch.contiguous_format).mT
    yield torch.nn.functional.pad(x, (3, 5, 2, 1))[..., 2:-1, 3:-5]
    yield torch.nn.functional.pad(x.mT, (3, 5, 2, 1))[..., 2:-1, 3:-5].mT


_TRIED = (
    (64, 256, 64), (33, 500, 17), (64, 2048, 32),
    (1, 64, 64), (33, 1, 17), (33, 64, 1), (1, 64, 1), (1, 1, 64),
)  # fmt: skip
"""Rows, inner terms, columns: large, odd, and of size 1, where libraries go ways of their own."""
_TIMED = {"cpu": (512, 256, 512), "cuda": (2048, 1024, 2048)}
"""Rows, inner terms, columns: a GPU takes as long to start a small product of any route."""


def is_exact(route: Route, device: torch.device | str = "cpu") -> bool:
    """Whether a route gives the integers' own product here, on extreme and on random operands.

    Raises RuntimeError where the device fails, which says nothing of the route.
    """
    if torch.device(device).type not in route.devices:
        return False
    generator = torch.Generator().manual_seed(5)
    for rows, inner, columns in _TRIED:
        shapes = ((rows, inner), (inner, columns))
        x, w = (torch.randint(-127, 128, s, generator=generator, dtype=torch.int8) for s in shapes)
        extreme = (
            torch.full_like(x, INT8_MAX),
            torch.where(w < 0, -INT8_MAX, INT8_MAX).to(torch.int8),
        )
        for left, right in ((x, w), extreme):
            expected = (left.double() @ right.double()).to(torch.int32)
            try:
                if not _gives(route.matmul, (left.to(device), right.to(device)), expected):
                    return False
            except TypeError:  # before PyTorch 2.8 no product of bf16 gives fp32
                return False
            except RuntimeError as error:
                if not lacks_kernel(error):
                    raise
                return False
    return True


def _gives(
    product: Callable[[Tensor, Tensor], Tensor], operands: tuple[Tensor, Tensor], expected: Tensor
) -> bool:
    left, right = operands
    # All are kept until the last is there: a product that leaves its result unwritten would find
    # the right one in memory that the product before it gave back.
    results = [product(a, b) for a in layouts(left) for b in layouts(right)]
    return all(torch.equal(result.cpu(), expected) for result in results)


def _seconds(route: Route, device: torch.device | str) -> float:
    rows, inner, columns = _TIMED[torch.device(device).type]
    x = torch.ones(rows, inner, dtype=torch.int8, device=device)
    w = torch.ones(inner, columns, dtype=torch.int8, device=device)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        route.matmul(x, w).cpu()
        best = min(best, time.perf_counter() - start)
    return best


def choose_route(name: str = "auto", device: torch.device | str = "cpu") -> Route:
    """The named route, or with "auto" the fastest of those that are exact on this machine.

    Raises:
        ValueError: the name is unknown, or that route is not exact here.
    """
    if name == "auto":
        exact = [route for route in ROUTES.values() if is_exact(route, device)]
        if not exact:
            raise ValueError(f"no product of integers is exact on the device {device}")
        return min(exact, key=lambda route: _seconds(route, device))
    if name not in ROUTES:
        raise ValueError(f"unknown route {name!r}; known: {', '.join(ROUTES)}")
    if not is_exact(ROUTES[name], device):
        raise ValueError(f"route {name!r} gives wrong products on this machine")
    return ROUTES[name]


def batched_product(
    route: Route, device: torch.device | str = "cpu"
) -> Callable[[Tensor, Tensor], Tensor]:
    """[G, a, b] · [G, b, c] of fp32 integers whose sums stay within 2^24: attention's products.

    fp32 where this machine's fp32 product is exact (not in reduced precision), else fp64.
    """
    if route.name != "fp64" and is_batched_exact(torch.matmul, device):
        return torch.matmul
    return _batched_fp64


def _batched_fp64(x_Gab: Tensor, y_Gbc: Tensor) -> Tensor:
    return (x_Gab.double() @ y_Gbc.double()).float()


def is_batched_exact(
    product: Callable[[Tensor, Tensor], Tensor], device: torch.device | str
) -> bool:
    """Whether attention's products are the integers' own, on extreme and on random operands."""
    generator = torch.Generator().manual_seed(6)
    for inner in (1, 16, 64, 128):
        largest = math.isqrt(FP32_EXACT // inner)
        shapes = (3, 128, inner), (3, inner, 96)
        x, y = (
            torch.randint(-largest, largest + 1, shape, generator=generator).float()
            for shape in shapes
        )
        for left, right in ((x, y), (x.sign() * largest, y.sign() * largest)):
            operands = left.to(device), right.to(device)
            if not _gives(product, operands, _batched_fp64(left, right)):
                return False
    return True
