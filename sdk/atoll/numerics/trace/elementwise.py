"""The operations of the trace that have a formula, on whole tensors.

Rule of this file: the table of `opcodes` says which element of each input an element is of, and
what is made of them; here it is only spread over tensors. Formulas.sol has the same for one
element. Every number is rounded once an IEEE operation and has one NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from atoll.numerics.kernels import elementary
from atoll.numerics.kernels.grid import one_nan
from atoll.numerics.kernels.reference import flushed
from atoll.numerics.trace.integers import float32, float64
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.rows import Each, Place

Operation: TypeAlias = Callable[[Sequence[int], Sequence[Tensor], object], Tensor]
"""(words, inputs as flat tensors, iteration or tail) → the node's flat tensor."""


class Tensors:
    """`formulas.Arithmetic` on tensors [R, C], or those that spread over them."""

    def __init__(self, columns: int) -> None:
        self._columns = columns

    def f32(self, x: Tensor) -> Tensor:
        """int64 is within the 2⁵³ of SPEC-STEP.md, 1, so that fp64 holds it."""
        return x.double().float() if x.dtype == torch.int64 else x.float()

    def f64(self, x: Tensor) -> Tensor:
        return x.double()

    def div(self, a: Tensor | float, b: Tensor) -> Tensor:
        """Of fp32 through fp64, whose quotient of fp32 numbers, rounded, is the correct one.

        A number over a tensor would, to PyTorch, be its product with the reciprocal.
        """
        numerator = a.double() if isinstance(a, Tensor) else torch.full_like(b, a).double()
        return (numerator / b.double()).to(b.dtype)

    def sqrt(self, x: Tensor) -> Tensor:
        """Of fp64 NumPy's: PyTorch's own misses by an ulp now and then (2.13, x86-64)."""
        if x.dtype == torch.float32:
            return elementary.sqrt(x)
        with np.errstate(invalid="ignore"):
            return torch.from_numpy(np.sqrt(x.numpy()))

    def rsqrt(self, x: Tensor) -> Tensor:
        return elementary.rsqrt(x)

    def exp(self, x: Tensor) -> Tensor:
        return elementary.exp(x)

    def sigmoid(self, x: Tensor) -> Tensor:
        return elementary.sigmoid(x)

    def flush(self, x: Tensor) -> Tensor:
        return flushed(x)

    def less(self, a: Tensor | float, b: Tensor | float) -> Tensor:
        return torch.as_tensor(a < b)

    def is_zero(self, n: Tensor) -> Tensor:
        return n == 0

    def is_negative(self, n: Tensor) -> Tensor:
        return n < 0

    def is_column(self, n: Tensor) -> Tensor:
        return n == torch.arange(self._columns, device=n.device)

    def where(self, condition: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
        return torch.where(condition, a, b)

    def off_diagonal(self, x: Tensor) -> Tensor:
        return x.clone().fill_diagonal_(0.0)


def _spread(x: Tensor, place: Place, columns: int) -> Tensor:
    """An operand over the result's rows and columns."""
    match place:
        case Place.SAME:
            return x.view(-1, columns)
        case Place.ROW:
            return x[:, None]
        case Place.DIAGONAL:
            return x.view(columns, columns).diagonal()
        case Place.COLUMN | Place.FIRST | Place.PAIR:
            return x


def operation(row: Each) -> Operation:
    """What works out the nodes of a row that has a formula."""
    formula, numbers = row.formula, {"f32": float32, "f64": float64}
    assert formula is not None

    def worked_out(words: Sequence[int], inputs: Sequence[Tensor], _: object) -> Tensor:
        columns = words[0] if "C" in row.names else 1
        constants = [numbers[kind](words[place]) for place, _, kind in row.constants]
        given = row.given(words)
        operands = [
            _spread(inputs[given[operand]], operand.place, columns) if operand in given else None
            for operand in row.operands
        ]
        return one_nan(formula(Tensors(columns), *constants, *operands)).flatten()

    return worked_out


OPERATIONS: Final[dict[Op, Operation]] = {
    op: operation(op.row) for op in Op if isinstance(op.row, Each) and op.row.formula
}
