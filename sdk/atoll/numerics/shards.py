"""Tensors that several processes hold together: each has some rows of each of them.

Rule of this file: it says what such tensors can be asked for, and knows no process.
`atoll.train.sharded` has those that ranks hold.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, MutableMapping
from typing import TypeAlias

from torch import Tensor

Shape: TypeAlias = tuple[int, ...]
Held: TypeAlias = MutableMapping[str, Tensor]
"""Tensors by name, where they lie in a state: in this process, or with several."""


class Shards(MutableMapping[str, Tensor]):
    """A tensor that is read is put together on the CPU, and is the reader's own; one that is
    written is handed out, and is nobody's but theirs who got its rows.
    """

    @property
    @abstractmethod
    def shapes(self) -> Mapping[str, Shape]:
        """Of what is held, by name."""

    @abstractmethod
    def copied(self) -> Shards:
        """Another mapping of the same tensors, in which they can be replaced."""

    @abstractmethod
    def chunk_hashes(self, prefix: str) -> list[bytes]:
        """Leaves of `tree_root`, in ascending order of name; `prefix` stands before each name."""


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    """Shapes by name; of what others hold none is fetched for that."""
    if isinstance(tensors, Shards):
        return dict(tensors.shapes)
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def copied(tensors: Held) -> Held:
    """The same tensors in a mapping of its own."""
    return tensors.copied() if isinstance(tensors, Shards) else dict(tensors)
