"""A job's program with what whoever runs it asks: which template a node is of, and the tree.

Rule of this file: the bytes are those of `protocol.program`; here it is only made fast for the
hundred thousand templates of a large model. SPEC-JUDGE.md, 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from atoll.numerics.kernels.keccak import keccak_each
from atoll.numerics.pieces import MerkleTree, tree_of
from atoll.protocol.merge_shape import MergeShape
from atoll.protocol.program import Source, TraceHeader, TraceTemplate
from atoll.protocol.types import Digest

_NO_TEMPLATE = -1
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Program:
    """A job's header and templates, in the order of their leaves, and its merges' shape."""

    header: TraceHeader
    templates: tuple[TraceTemplate, ...]
    merge: MergeShape | None = None
    _places: dict[int, _Numbers] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def tree(self) -> MerkleTree:
        """Over the header, leaf 0, template t, leaf 1 + t, and the merge's shape, the last leaf;
        its root is `Terms.program`."""
        packed = [self.header.to_bytes(), *(each.to_bytes() for each in self.templates)]
        if self.merge is not None:
            packed.append(self.merge.to_bytes())
        return tree_of(keccak_each(packed))

    @property
    def root(self) -> Digest:
        """What `Terms.program` is."""
        return self.tree.root

    def nodes(self, part: int) -> int:
        """How many nodes a trace of this part has."""
        return self.header.nodes(part)

    def at(self, part: int, node: int) -> tuple[int, int]:
        """Index of the template that a node is of, and the iteration.

        Raises IndexError where the part has no such node.
        """
        if not 0 <= node < self.nodes(part):
            raise IndexError(f"node {node} of {self.nodes(part)}")
        index = int(self._template_of(part)[node])
        template = self.templates[index]
        return index, (node - template.first) // template.stride if template.stride else 0

    def walk(self, part: int) -> Iterator[tuple[TraceTemplate, int]]:
        """The template and the iteration of every node, in the order of their numbers."""
        for node, index in enumerate(self._template_of(part)):
            template = self.templates[index]
            yield template, (node - template.first) // template.stride if template.stride else 0

    def _template_of(self, part: int) -> _Numbers:
        """Each node's template. Raises ValueError unless every node has exactly one."""
        if part not in self._places:
            places = np.full(self.nodes(part), _NO_TEMPLATE)
            for index, template in enumerate(self.templates):
                if template.part == part:
                    numbers = numbers_of(template)
                    if np.any(places[numbers] != _NO_TEMPLATE):
                        raise ValueError(f"template {index} is of a node that has another")
                    places[numbers] = index
            if np.any(places == _NO_TEMPLATE):
                raise ValueError("a node has no template")
            self._places[part] = places
        return self._places[part]


def numbers_of(template: TraceTemplate) -> _Numbers:
    """The nodes of a template, iteration by iteration."""
    return np.arange(template.count) * template.stride + template.first


def reads_of(template: TraceTemplate) -> Iterator[_Numbers]:
    """Of each input that is a node of the trace, its number iteration by iteration."""
    for read in template.inputs:
        if read.source is Source.TRACE:
            yield np.arange(template.count) * read.stride + read.node
