"""The order and shapes of a model's tensors as one flat vector.

Tensors are ordered by the UTF-8 bytes of their names; each is flattened in C order. Every codec
and every rule sees a model as the concatenation of these, so a coordinate has one index for all.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from atoll.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

MAX_TENSORS = 0xFFFF


@dataclass(frozen=True)
class Layout:
    """Names and shapes, ordered by name. Build it with `of` or `of_tensors`."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, shapes: Mapping[str, Sequence[int]]) -> Layout:
        """From a map of name to shape, in any order.

        Raises:
            ConfigError: no tensors, too many, or a negative dimension.
        """
        if not 1 <= len(shapes) <= MAX_TENSORS:
            raise ConfigError(f"a layout has 1 to {MAX_TENSORS} tensors, not {len(shapes)}")
        names = tuple(sorted(shapes, key=lambda name: name.encode()))
        ordered = tuple(tuple(int(side) for side in shapes[name]) for name in names)
        if any(side < 0 for shape in ordered for side in shape):
            raise ConfigError("a tensor's dimensions are not negative")
        return cls(names, ordered)

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor]) -> Layout:
        """From a map of name to tensor."""
        return cls.of({name: tuple(tensor.shape) for name, tensor in tensors.items()})

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each tensor."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def total(self) -> int:
        """Elements of all tensors."""
        return sum(self.sizes)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 that binds every name, order and shape."""
        digest = hashlib.sha256(b"atoll.layout.v1")
        for name, shape in zip(self.names, self.shapes, strict=True):
            encoded = name.encode()
            digest.update(len(encoded).to_bytes(2, "big") + encoded)
            digest.update(len(shape).to_bytes(1, "big"))
            digest.update(b"".join(side.to_bytes(8, "big") for side in shape))
        return digest.digest()

    def spans(self) -> Iterator[tuple[str, tuple[int, ...], slice]]:
        """(name, shape, where it lies in the flat vector) of every tensor, in order."""
        start = 0
        for name, shape, size in zip(self.names, self.shapes, self.sizes, strict=True):
            yield name, shape, slice(start, start + size)
            start += size
