"""Attention's products as int16 in pairs: `int16_products.c` where this processor has them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from atoll.numerics.kernels.build import Unusable, accepted, load_library
from atoll.numerics.kernels.gemm import is_batched_exact

SOURCE: Final = Path(__file__).with_name("int16_products.c")
_FEWEST_ROWS: Final = 8
"""Of fewer, such as a single query's, packing the other operand takes longer than the product."""
_MOST_THREADS: Final = 3
"""One core does these as fast as so many do fp32's; more of them are faster by fp32."""
Product = Callable[[Tensor, Tensor], Tensor]


def with_int16(otherwise: Product) -> Product:
    """An engine's `batched` that multiplies int16 where that is faster and exact here."""
    library = _library()
    return otherwise if library is None else Int16Product(library, otherwise)


class Int16Product:
    """[G, a, b] · [G, b, c] of fp32 integers below 2^15 whose sums are at most 2^24.

    Args:
        library: of `SOURCE`, where `lanes` is not 0.
        otherwise: the same, for few rows and for many threads.
    """

    def __init__(self, library: ctypes.CDLL, otherwise: Product) -> None:
        self._library, self._otherwise = library, otherwise
        self._lanes: int = library.lanes()
        library.products.restype = None

    def __call__(self, x_Gab: Tensor, y_Gbc: Tensor) -> Tensor:
        groups, rows, inner = x_Gab.shape
        if rows < _FEWEST_ROWS or torch.get_num_threads() > _MOST_THREADS:
            return self._otherwise(x_Gab, y_Gbc)
        columns = y_Gbc.shape[2]
        wide = -(-columns // self._lanes) * self._lanes
        scratch = torch.empty((inner + 1) // 2 * (wide + rows), dtype=torch.int32)
        out = torch.empty(groups, rows, columns)
        self._library.products(
            *(c_void_p(t.data_ptr()) for t in (x_Gab, y_Gbc)),
            (c_int64 * 4)(groups, rows, inner, columns),
            (c_int64 * 6)(*x_Gab.stride(), *y_Gbc.stride()),
            *(c_void_p(t.data_ptr()) for t in (scratch, out)),
        )
        return out


@cache
def _library() -> ctypes.CDLL | None:
    """What is built of `SOURCE`, where the processor has such products and they are exact."""

    def parted(library: ctypes.CDLL) -> list[str]:
        if not library.lanes():
            return []
        product = Int16Product(library, torch.matmul)
        return [] if is_batched_exact(product, "cpu") else ["fp64 products"]

    library = accepted("products of int16", lambda: load_library(SOURCE), parted)
    return None if isinstance(library, Unusable) or not library.lanes() else library
