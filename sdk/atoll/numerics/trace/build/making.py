"""What a program is made of: the manifest, where its weights come from, their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias, TypeVar, cast

import numpy as np

from atoll.numerics.schedule_tables import table_sizes
from atoll.numerics.state_layout import Shapes, param_shapes, trained_shapes
from atoll.numerics.tensors import chunk_count, chunk_prefix
from atoll.numerics.trace.build.graph import Graph, Region, Value
from atoll.numerics.trace.build.grids import f32
from atoll.numerics.trace.imports import CONTEXT_BYTES
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.manifest import Manifest
from atoll.protocol.method_spec import InnerSpec
from atoll.protocol.model_spec import ModelSpec
from atoll.protocol.program import Source

CONTEXT = Value(Source.CONTEXT, 0, 1, CONTEXT_BYTES)
T = TypeVar("T")
Back: TypeAlias = Callable[[Value], Value]
"""From the gradient of a result to that of what it was worked out from."""


def chained(backs: Sequence[Back]) -> Back:
    """Backward through operations, given in the order in which they were done."""

    def back(gradient: Value) -> Value:
        for each in reversed(backs):
            gradient = each(gradient)
        return gradient

    return back


@dataclass(frozen=True, slots=True)
class StateTree:
    """Where the tensors of a SHA-256 tree are.

    Attributes:
        shapes: by name, in ascending order.
        types: of the tensors that are not fp32.
        first: each tensor's first leaf.
    """

    shapes: Shapes
    types: dict[str, str]
    first: dict[str, int]
    leaves: int

    @classmethod
    def of(cls, shapes: Shapes, types: dict[str, str] | None = None) -> StateTree:
        """The tree over tensors of these shapes."""
        ordered = {name: shapes[name] for name in sorted(shapes)}
        first, leaves, kinds = {}, 0, types or {}
        for name, shape in ordered.items():
            first[name] = leaves
            leaves += chunk_count(_bytes(shape, kinds.get(name, "float32")))
        return cls(ordered, kinds, first, leaves)

    def prefix(self, name: str) -> bytes:
        """What the tensor's chunks are hashed behind."""
        return chunk_prefix(name, self.types.get(name, "float32"), self.shapes[name])


def _bytes(shape: tuple[int, ...], kind: str) -> int:
    return prod(shape) * (8 if kind == "int64" else 4)


@dataclass(frozen=True)
class Making:
    """A program in the making.

    Attributes:
        weights: the tree of the params that are trained; frozen: of the base's, under adapters.
        optimiser: the tree of the optimiser root.
        taken: the fragment that the step takes in; None where it takes nothing in.
        gradients: by name, of the micro-batch: the sum of those met so far.
    """

    graph: Graph
    manifest: Manifest
    weights: StateTree
    frozen: StateTree
    optimiser: StateTree
    taken: int | None = None
    gradients: dict[str, Value] = field(default_factory=dict)
    _made: dict[object, object] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: Manifest, optimiser: StateTree, taken: int | None = None) -> Making:
        graph = Graph(manifest.inner.micro_batches, manifest.inner.lane)
        frozen = StateTree.of(param_shapes(manifest.model) if manifest.lora else {})
        return cls(
            graph, manifest, StateTree.of(trained_shapes(manifest)), frozen, optimiser, taken
        )

    @property
    def spec(self) -> ModelSpec:
        return self.manifest.model

    @property
    def inner(self) -> InnerSpec:
        return self.manifest.inner

    @property
    def tokens(self) -> int:
        """N, of a micro-batch."""
        return self.inner.micro_batch * self.spec.seq

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a weight, trained or frozen."""
        trained = self.weights.shapes
        return trained[name] if name in trained else self.frozen.shapes[name]

    def weight(self, name: str) -> Value:
        """A weight as it is before the step: of the state, or of the frozen model."""
        if name in self.weights.shapes:
            return self.state(0, name)
        return self.once(("base", name), lambda: self._read(Op.BASE, self.frozen, 0, name))

    def state(self, root: int, name: str) -> Value:
        """A tensor that the step starts from: under the params root (0) or the optimiser's (1)."""
        if root == 0 and self.taken is not None and self._fragment_of(name) == self.taken:
            return self.once(("taken", name), lambda: self._mixed(name))
        if root == 1 and self.taken is not None and name.startswith("feedback/"):
            return self._before(root, name.replace("feedback/", "left/", 1))
        return self._before(root, name)

    def model(self, name: str) -> Value:
        """A parameter of the global model that the round began with."""
        count = prod(self.shape(name))
        words = [self.weights.first[name], self.weights.leaves, 0]
        source, prefix = [Value(Source.MODEL, 0, 4, count)], self.weights.prefix(name)
        return self.graph.add(Op.MODEL, source, count, words, tail=prefix)

    def _fragment_of(self, name: str) -> int:
        return self.manifest.codec.fragment_of(name)

    def _before(self, root: int, name: str) -> Value:
        tree = self.optimiser if root else self.weights
        return self.once((root, name), lambda: self._read(Op.STATE, tree, root, name))

    def _mixed(self, name: str) -> Value:
        """S0: what the round before merged, taken in."""
        mixing = np.float32(float(self.manifest.codec.mixing))
        p, model = self._before(0, name), self.model(name)
        parts = [
            self.graph.add(Op.SCALE, [value], value.elements, [factor])
            for value, factor in (
                (p, f32(float(mixing))),
                (model, f32(float(np.float32(1) - mixing))),
            )
        ]
        return self.graph.add(Op.ADD, parts, p.elements)

    def _read(self, op: Op, tree: StateTree, root: int, name: str) -> Value:
        source = Source.STATE if op is Op.STATE else Source.BASE
        count = prod(tree.shapes[name])
        words = [tree.first[name], tree.leaves, root]
        inputs = [Value(source, 0, 4, count)]
        return self.graph.add(op, inputs, count, words, tail=tree.prefix(name))

    def once(self, key: object, make: Callable[[], T]) -> T:
        """What is made of nodes of the prelude, when it is first asked for."""
        if key not in self._made:
            with self.graph.within(Region.PRELUDE):
                self._made[key] = make()
        return cast(T, self._made[key])

    def table(self, op: Op, elements: int, inputs: tuple[Value, ...], words: list[int]) -> Value:
        """What an import reads of the tables."""
        size = sum(table_sizes(self.spec, self.inner, self.total_steps))
        tables = Value(Source.TABLES, 0, 1, size)
        make = self.graph.add
        return self.once(op, lambda: make(op, [tables, *inputs], elements, words))

    @property
    def total_steps(self) -> int:
        """Of the job, whose rates are in the tables."""
        return self.manifest.terms.rounds * self.inner.steps

    def meet(self, name: str, gradient: Value) -> None:
        """Takes in a weight's gradient; a tied table has two."""
        met = self.gradients.get(name)
        if met is not None:
            gradient = self.graph.add(Op.ADD, [met, gradient], gradient.elements)
        self.gradients[name] = gradient
