"""The moments that all seats share: what a round opens with that opens from public data.

Rule of this file: a round's moments are a function of what was merged, never of what a seat had.
The first moment is a tensor of integers on a grid; of the second there are sums of rows and
columns, whose product over their total stands for it (Shazeer and Stern 2018, arXiv:1804.04235).
SPEC-STEP.md, 18, has the lines; SPEC-MERGE.md how they are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

import torch
from torch import Tensor

from atoll.numerics.codec.factored import exact_sum
from atoll.numerics.errors import MalformedState
from atoll.numerics.shards import shapes_of
from atoll.numerics.tensors import TreeRoot, check_layout, tree_root
from atoll.protocol.types import Digest

Tensors: TypeAlias = dict[str, Tensor]
GROUPS: Final = ("columns", "m", "rows", "whole")
"""Of a global state's tensors, those that are moments."""
SHARE: Final = 0.25
"""Of a merged second moment, what the model's next steps open with: it moves by a mean of seats."""
_KIND: Final = "moments"
_AT_ONCE: Final = 1 << 18
"""Elements of a second moment that are worked out at once: each takes forty bytes meanwhile."""


@dataclass(frozen=True)
class Moments:
    """The merged moments of the round before, or none: `COLD`.

    Attributes:
        count: steps that the opening counts, those of every round merged; 0 where there are none.
        m: first moments by parameter: int8 in steps of 2**m_exponents, of fp32 updates fp32.
        m_exponents: of those integers; of every name in `m`.
        rows, columns: of each second moment that is a matrix, fp32 sums [rows] and [columns].
        whole: second moments that are vectors, fp32.
    """

    count: int = 0
    m: Tensors = field(default_factory=dict)
    m_exponents: dict[str, int] = field(default_factory=dict)
    rows: Tensors = field(default_factory=dict)
    columns: Tensors = field(default_factory=dict)
    whole: Tensors = field(default_factory=dict)

    @property
    def is_warm(self) -> bool:
        """Whether there are any."""
        return self.count > 0

    def tensors(self) -> Tensors:
        """All of them, by group and name."""
        return {f"{g}/{name}": t for g in GROUPS for name, t in getattr(self, g).items()}

    def root(self) -> Digest:
        """Tree root over all of them; 32 zero bytes where there are none."""
        return tree_root(self.tensors())

    def first(self, name: str) -> Tensor:
        """The first moment that a round opens with: fp32, exact."""
        return self._first_rows(name, slice(None))

    def second(self, name: str) -> Tensor:
        """The second moment that a round opens with: fp32, at least the first one's square."""
        if name in self.whole:
            m = self.first(name)
            return torch.maximum(self.whole[name] * SHARE, m * m)
        rows_R, columns_C = self.rows[name].double(), self.columns[name].double()
        total = exact_sum(self.rows[name].numpy())
        out_RC = torch.empty(self.m[name].shape, dtype=torch.float32)
        for span in _spans(len(rows_R), len(columns_C)):
            m_rC = self._first_rows(name, span)
            torch.mul(m_rC, m_rC, out=out_RC[span])
            if total > 0:
                # The product of two binary32 numbers is exact in binary64.
                product_rC = rows_R[span, None] * columns_C[None, :]
                quotient_rC = (product_rC / total).float().mul_(SHARE)
                torch.maximum(out_RC[span], quotient_rC, out=out_RC[span])
        return out_RC

    def _first_rows(self, name: str, span: slice) -> Tensor:
        m = self.m[name][span]
        return m if m.dtype == torch.float32 else m.float().mul_(2.0 ** self.m_exponents[name])

    @cached_property
    def initial_root(self) -> Digest:
        """Optimiser root of the opening; 32 zero bytes where there are no moments.

        The tensors are made one after another, and one is there at a time.
        """
        root = TreeRoot()
        if not self.is_warm:
            return root.digest()
        root.add("count", torch.tensor(self.count, dtype=torch.int64))
        for name in sorted(self.m):
            root.add(f"m/{name}", self.first(name))
        for name in sorted({*self.rows, *self.whole}):
            root.add(f"v/{name}", self.second(name))
        return root.digest()

    def check(self, params: Mapping[str, Tensor]) -> None:
        """Raises MalformedState unless these are moments of some of those parameters."""
        shapes = shapes_of(params)
        if not set(self.m) <= set(shapes) or not set(self.m_exponents) == set(self.m):
            raise MalformedState(f"{_KIND}: not one exponent a first moment of a parameter")
        if self.is_warm != bool(self.m):
            raise MalformedState(f"{_KIND}: {self.count} steps with {len(self.m)} first moments")
        seconds = {n: shapes[n] for n in {*self.rows, *self.whole} if n in self.m}
        matrices = {n: shape for n, shape in seconds.items() if len(shape) > 1}
        check_layout(_KIND, self.m, {n: shapes[n] for n in self.m})
        check_layout(_KIND, self.rows, {n: shape[:1] for n, shape in matrices.items()})
        check_layout(_KIND, self.columns, {n: shape[1:] for n, shape in matrices.items()})
        vectors = {n: shape for n, shape in seconds.items() if len(shape) == 1}
        check_layout(_KIND, self.whole, vectors)
        kinds = {t.dtype for t in self.m.values()}
        if len(kinds) > 1 or not kinds <= {torch.int8, torch.float32}:
            raise MalformedState(f"{_KIND}: first moments are not all int8, or all float32")
        for group in (self.rows, self.columns, self.whole):
            _check_sums(group)


COLD: Final = Moments()
"""No moments: a round that opens with them opens with zeros."""


def _check_sums(group: Tensors) -> None:
    for tensor in group.values():
        if tensor.dtype != torch.float32 or not _is_sum(tensor):
            raise MalformedState(f"{_KIND}: a sum is not a finite float32 of at least +0")


def _is_sum(tensor: Tensor) -> bool:
    """Bits as an integer are below those of ∞: neither signed, nor ∞, nor NaN."""
    bits = tensor.view(torch.int32)
    return bool((bits >= 0).all()) and bool((bits < 0x7F800000).all())


def _spans(rows: int, columns: int) -> Iterator[slice]:
    size = max(1, _AT_ONCE // columns)
    return (slice(at, at + size) for at in range(0, rows, size))
