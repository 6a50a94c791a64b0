"""Nodes as they are thought of, before they have numbers.

Rule of this file: a step is five regions one after another, two of which are loops over the
micro-batches. Nodes stand in a region in the order in which they were made; those that the result
does not depend on are excluded. So a program follows from the order of calls and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import accumulate

from atoll.errors import ManifestError
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.program import Input, Source, TraceTemplate

NODE_LIMIT = 1 << 32
"""Node numbers are u32."""
MOST_TEMPLATES = 1 << 19
"""Of a job's steps: to make so many takes ten seconds and a gigabyte, of whoever looks at it."""


def too_many() -> ManifestError:
    """A program that is too large to be made."""
    return ManifestError(
        f"manifest: a step of this job has more than {MOST_TEMPLATES} different operations",
        next_step="choose shorter sequences, fewer layers or fewer fragments",
    )


class Region(IntEnum):
    """Where a node stands; COUNTS and BODY are worked through once for each micro-batch."""

    PRELUDE = 0
    """What is the same for every micro-batch."""
    COUNTS = 1
    """Tokens and how many of them are targets: every micro-batch's share depends on all of them."""
    SHARES = 2
    BODY = 3
    """A micro-batch's loss and gradients."""
    END = 4


LOOPS = frozenset({Region.COUNTS, Region.BODY})


@dataclass(frozen=True, slots=True)
class Value:
    """What a node gives, or a source beside the trace.

    Attributes:
        source: TRACE for a node.
        node: its place in `Graph.nodes`; 0 of other sources.
        width: bytes of an element.
        elements: how many there are.
        at: the one micro-batch whose node is meant; None for that of the reader.
        back: how many micro-batches before the reader's it is.
    """

    source: Source
    node: int
    width: int
    elements: int
    at: int | None = None
    back: int = 0

    @property
    def size(self) -> int:
        """Bytes."""
        return self.width * self.elements

    def of(self, micro_batch: int) -> Value:
        """The same node in one micro-batch."""
        return replace(self, at=micro_batch)

    def before(self) -> Value:
        """The same node in the micro-batch before."""
        return replace(self, back=1)


@dataclass(frozen=True, slots=True)
class TraceNode:
    """An operation.

    Attributes:
        start, count, every: the iterations of its region's loop in which it is this one: from
            `start`, `count` of them, each `every` behind the one before.
        place: the node in whose place it stands in other iterations; None where it has its own.
    """

    op: int
    value: Value
    inputs: tuple[Value, ...]
    words: tuple[int, ...]
    tail: bytes
    region: Region
    start: int
    count: int
    every: int = 1
    place: int | None = None


@dataclass(frozen=True, slots=True)
class _Form:
    """What a node is beside its operation and inputs; `TraceNode` and `Value` say what each is."""

    tail: bytes = b""
    start: int = 0
    count: int = 1
    every: int = 1
    place: int | None = None


class Graph:
    """The nodes of a step while they are made."""

    def __init__(self, micro_batches: int, lane: int | None = None) -> None:
        """`lane`: micro-batches of a lane; all of them if not given."""
        self.micro_batches = micro_batches
        self.lane = lane or micro_batches
        self.nodes: list[TraceNode] = []
        self._region = Region.PRELUDE
        self._also: dict[int, list[int]] = {}

    @contextmanager
    def within(self, region: Region) -> Iterator[None]:
        """Nodes that are made inside stand in this region."""
        outer, self._region = self._region, region
        try:
            yield
        finally:
            self._region = outer

    def add(
        self,
        op: Op,
        inputs: Sequence[Value],
        elements: int,
        words: Sequence[int] = (),
        *,
        tail: bytes = b"",
    ) -> Value:
        """A new node in this region, with so many elements."""
        count = self.micro_batches if self._region in LOOPS else 1
        return self._append(op, inputs, elements, words, _Form(tail, count=count))

    def summed(self, value: Value) -> list[Value]:
        """Each lane's sum of what its micro-batches have of an f32 (S2), in their order."""
        if self.micro_batches == 1:
            return [value]
        starts = range(0, self.micro_batches, self.lane)
        form = _Form(count=len(starts), every=self.lane)
        first = self._append(Op.COPY, [value], value.elements, [4], form)
        self._also[first.node] = []
        for start in starts:
            later = _Form(start=start + 1, count=self.lane - 1, place=first.node)
            added = self._append(Op.ADD, [first.before(), value], value.elements, [], later)
            self._also[first.node].append(added.node)
        return [first.of(start + self.lane - 1) for start in starts]

    def chained(self, values: Sequence[Value]) -> Value:
        """The values of f32 added one after another, in this region."""
        sum_, *others = values
        for value in others:
            sum_ = self.add(Op.ADD, [sum_, value], value.elements)
        return sum_

    def _append(
        self,
        op: Op,
        inputs: Sequence[Value],
        elements: int,
        words: Sequence[int],
        form: _Form,
    ) -> Value:
        if len(self.nodes) == MOST_TEMPLATES:
            raise too_many()
        value = Value(Source.TRACE, len(self.nodes), op.row.width(words), elements)
        self.nodes.append(
            TraceNode(
                op=op,
                value=value,
                inputs=tuple(inputs),
                words=tuple(words),
                tail=form.tail,
                region=self._region,
                start=form.start,
                count=form.count,
                every=form.every,
                place=form.place,
            )
        )
        return value

    def templates(self, part: int, result: Value) -> tuple[int, tuple[TraceTemplate, ...]]:
        """How many nodes the trace has, and its templates in the order of their nodes.

        The result is the last node.

        Raises:
            ManifestError: a trace of this job would have more nodes than numbers.
        """
        live = self._live(result.node)
        places: dict[int, int] = {}
        lengths = dict.fromkeys(Region, 0)
        for index in live:
            node = self.nodes[index]
            if node.place is None:
                places[index] = lengths[node.region]
                lengths[node.region] += 1
        bases, total = self._bases(lengths)
        if total > NODE_LIMIT:
            raise ManifestError(f"the trace of a step would have {total} nodes")
        strides = tuple(lengths[region] if region in LOOPS else 0 for region in Region)
        numbering = _Numbering(self.nodes, places, bases, strides)
        order = sorted(live, key=lambda index: self.nodes[index].region)
        return total, tuple(numbering.template(part, index) for index in order)

    def _live(self, result: int) -> list[int]:
        """What the result depends on, and itself, in the order in which it was made."""
        live, waiting = set[int](), [result]
        while waiting:
            index = waiting.pop()
            if index in live:
                continue
            live.add(index)
            waiting += [i.node for i in self.nodes[index].inputs if i.source is Source.TRACE]
            if index in self._also:
                waiting += self._also[index]
        return sorted(live)

    def _bases(self, lengths: dict[Region, int]) -> tuple[tuple[int, ...], int]:
        counts = [
            lengths[region] * (self.micro_batches if region in LOOPS else 1) for region in Region
        ]
        *bases, total = accumulate(counts, initial=0)
        return tuple(bases), total


@dataclass(frozen=True, slots=True)
class _Numbering:
    """Numbers of the nodes that stay.

    Attributes:
        places: of a node in its region.
        bases, strides: of the regions: the first node's number, and nodes of one iteration, 0
            where there is no loop.
    """

    nodes: list[TraceNode]
    places: dict[int, int]
    bases: tuple[int, ...]
    strides: tuple[int, ...]

    def template(self, part: int, index: int) -> TraceTemplate:
        node = self.nodes[index]
        place = index if node.place is None else node.place
        first, length = self._number(place, node.start)
        return TraceTemplate(
            part=part,
            op=int(node.op),
            width=node.value.width,
            size=node.value.size,
            first=first,
            count=node.count,
            stride=length * node.every if node.count > 1 else 0,
            inputs=tuple(self._input(value, node) for value in node.inputs),
            words=node.words,
            tail=node.tail,
        )

    def _number(self, index: int, iteration: int) -> tuple[int, int]:
        """A node's number, and nodes of an iteration of its region."""
        region = self.nodes[index].region
        stride = self.strides[region]
        return self.bases[region] + self.places[index] + iteration * stride, stride

    def _input(self, value: Value, reader: TraceNode) -> Input:
        if value.source is not Source.TRACE:
            return Input(value.source, 0, 0, value.size)
        fixed = value.at is not None
        iteration = value.at if value.at is not None else reader.start - value.back
        number, length = self._number(value.node, iteration)
        stride = 0 if fixed or reader.count == 1 else length * reader.every
        return Input(value.source, number, stride, value.size)
