"""What all codecs of updates in grid steps have in common: header, lengths, and bytes as a stream.

An update is `delta = global − last` over the flat vector in `Layout` order, in units of a shared
power-of-two grid: the exponents, one a tensor, are the round's and the same for everyone. A codec
is a `VectorCodec`, which writes a vector in grid steps as one or more sections. Bytes, big-endian,
nothing optional and nothing after them:

    magic "ATUP" ‖ version u8 ‖ codec u8 ‖ tensors u16 ‖ layout digest 32 ‖
    exponent i16 per tensor ‖ section ‖ … ‖ section

The length follows from the layout alone. Every section is in coordinate order, and `PIECE`
coordinates fill whole bytes of each, so that an update is written and read a piece at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from atoll.numerics.codec.grid_rounding import Float32Vector, as_tensors, check_finite, flat
from atoll.numerics.codec.header import (
    body_of,
    check_header,
    check_length,
    header,
    header_length,
)
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.pieces import ByteSlices

if TYPE_CHECKING:
    from torch import Tensor

PIECE = 1 << 16
"""Coordinates handled at once, so that the work stays in a core's second-level cache."""
_CHECKED_AT_ONCE = 16 * PIECE
Exponents: TypeAlias = Mapping[str, int]
Integers: TypeAlias = npt.NDArray[Any]


class VectorCodec(Protocol):
    """How a codec writes a vector; a vector of a multiple of PIECE is its pieces, one by one.

    `piece` is the index of the (first) piece in the whole vector, `start` the first coordinate,
    with which every section begins a byte; only dither depends on them.
    """

    @property
    def codec(self) -> int:
        """What the header calls it."""

    def sections(self, length: int, /) -> tuple[int, ...]:
        """Bytes of each section for a vector of that length."""

    def encode(self, scaled: Float32Vector, piece: int, /) -> bytes:
        """All sections of a vector in grid steps, which may be infinite; overwrites it."""

    def decode(self, body: memoryview, length: int, start: int, /) -> Integers:
        """The integers that are merged.

        Raises:
            MalformedUpdate: not what `encode` writes.
        """


class VectorRow(Protocol):
    """An update's integers, flat in layout order: an array, or what decodes slices of one."""

    def __len__(self) -> int: ...

    def __getitem__(self, span: slice, /) -> Integers: ...


class StoredRow:
    """The integers that are merged, decoded where they are asked for, so that few are held.

    Those of the piece of which a part was read last are kept where they take no more bytes than
    coordinates of a piece: tensors are asked for one by one, each would be decoded as the whole.

    Args:
        body: how the update is written.
        data: its bytes.
        layout, exponents: of the round.

    Raises:
        MalformedUpdate: not the canonical encoding of this layout and these exponents.
    """

    def __init__(
        self, body: VectorCodec, data: ByteSlices, layout: Layout, exponents: Exponents
    ) -> None:
        head = header(body.codec, layout, exponents)
        sections = body.sections(layout.total)
        check_length(len(data), len(head) + sum(sections))
        check_header(data[: len(head)], head)
        self._body, self._data, self._total = body, data, layout.total
        self._begins = [len(head) + position for position in accumulate(sections, initial=0)][:-1]
        self._kept: tuple[int, Integers] | None = None
        if self._total <= PIECE:
            self._length = len(self._piece(0))
            return
        spans = range(0, self._total, _CHECKED_AT_ONCE)
        self._length = sum(len(self._decoded(at, at + _CHECKED_AT_ONCE)) for at in spans)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, span: slice, /) -> Integers:
        """The integers of a span without a step; whole pieces are decoded."""
        start, stop, step = span.indices(self._length)
        if step != 1:
            raise ValueError("integers are read in their order, one after another")
        first, end = start // PIECE * PIECE, -(-stop // PIECE) * PIECE
        is_part = stop - start < PIECE and end <= first + PIECE
        whole = self._piece(first) if is_part else self._decoded(first, end)
        return whole[start - first : stop - first]

    def _piece(self, start: int) -> Integers:
        """The integers of the piece that begins there."""
        if self._kept is not None and self._kept[0] == start:
            return self._kept[1]
        decoded = self._decoded(start, start + PIECE)
        if decoded.nbytes <= PIECE:
            decoded.flags.writeable = False
            self._kept = start, decoded
        return decoded

    def _decoded(self, start: int, stop: int) -> Integers:
        """The integers of whole pieces, and of what is left after the last of them."""
        length = max(0, min(stop, self._total) - start)
        parts = []
        before, within = self._body.sections(start), self._body.sections(length)
        for begin, skipped, size in zip(self._begins, before, within, strict=True):
            parts.append(self._data[begin + skipped : begin + skipped + size])
        return self._body.decode(memoryview(b"".join(parts)), length, start)


class UpdateCodec:
    """A codec of updates in grid steps.

    Args:
        body: how it writes them.
    """

    def __init__(self, body: VectorCodec) -> None:
        self._body = body

    def encoded_length(self, layout: Layout) -> int:
        """Bytes of any update of this layout."""
        return header_length(layout) + sum(self._body.sections(layout.total))

    def encode(self, delta: Mapping[str, Tensor], exponents: Exponents) -> bytes:
        """The canonical bytes of an update.

        Args:
            delta: fp32 tensors by name, `global − last`; any device.
            exponents: the round's grid exponent of each tensor.

        Raises:
            NonFiniteDeltaError: a value is NaN or infinite.
            ConfigError: exponents out of range or not of these tensors.
        """
        update = BytesIO()  # the pieces are let go as they come
        for piece in self.encode_stream(delta, exponents):
            update.write(piece)
        return update.getvalue()

    def encode_stream(self, delta: Mapping[str, Tensor], exponents: Exponents) -> Iterator[bytes]:
        """The same bytes in pieces; sections after the first wait in memory for their turn.

        Raises:
            As `encode`; NonFiniteDeltaError when the stream comes to the value.
        """
        yield header(self._body.codec, Layout.of_tensors(delta), exponents)
        waiting: list[list[bytes]] = []
        for piece, scaled in enumerate(self._pieces(delta, exponents)):
            lengths = self._body.sections(len(scaled))
            first, *others = _cut(self._body.encode(scaled, piece), lengths)
            yield first
            waiting = waiting or [[] for _ in others]
            for section, part in zip(waiting, others, strict=True):
                section.append(part)
        for section in waiting:
            yield from section

    def decode_flat(self, data: bytes, layout: Layout, exponents: Exponents) -> Integers:
        """The integers that are merged, flat in layout order; a view of `data` where it can be.

        Raises:
            MalformedUpdate: not the canonical encoding of this layout and these exponents.
        """
        head = header(self._body.codec, layout, exponents)
        body = body_of(data, head, sum(self._body.sections(layout.total)))
        return self._body.decode(body, layout.total, 0)

    def open(self, data: ByteSlices, layout: Layout, exponents: Exponents) -> StoredRow:
        """As `decode_flat`, which reads all of it once and holds nothing. Raises as that."""
        return StoredRow(self._body, data, layout, exponents)

    def spans(self, layout: Layout, span: slice) -> list[slice]:
        """Where in an update's bytes a span's coordinates lie, which begins with whole bytes."""
        begin, parts = header_length(layout), []
        body, length = self._body, span.stop - span.start
        for size, before, within in zip(
            body.sections(layout.total),
            body.sections(span.start),
            body.sections(length),
            strict=True,
        ):
            parts.append(slice(begin + before, begin + before + within))
            begin += size
        return parts

    def decode_span(self, data: ByteSlices, layout: Layout, span: slice) -> Integers:
        """The integers of such a span alone.

        Raises:
            MalformedUpdate: these are not canonical.
        """
        parts = b"".join(data[part] for part in self.spans(layout, span))
        return self._body.decode(memoryview(parts), span.stop - span.start, span.start)

    def decode(self, data: bytes, layout: Layout, exponents: Exponents) -> dict[str, Tensor]:
        """The update as fp32 tensors.

        Raises:
            MalformedUpdate: as `decode_flat`.
        """
        return as_tensors(self.decode_flat(data, layout, exponents), layout, exponents)

    def _pieces(self, delta: Mapping[str, Tensor], exponents: Exponents) -> Iterator[Float32Vector]:
        return pieces(delta, exponents)


def pieces(delta: Mapping[str, Tensor], exponents: Exponents) -> Iterator[Float32Vector]:
    """delta / 2^exponent in layout order, PIECE at a time; ±infinity on overflow.

    What is yielded is the caller's until the next one.

    Raises:
        NonFiniteDeltaError: a value is NaN or infinite.
    """
    buffer, filled = np.empty(PIECE, dtype=np.float32), 0
    for name in Layout.of_tensors(delta).names:
        values, factor, at = flat(delta[name]), np.float32(2.0 ** -exponents[name]), 0
        while at < len(values):
            part = values[at : at + PIECE - filled]
            check_finite(name, part)
            with np.errstate(over="ignore", under="ignore"):
                np.multiply(part, factor, out=buffer[filled : filled + len(part)])
            at, filled = at + len(part), filled + len(part)
            if filled == PIECE:
                yield buffer
                filled = 0
    if filled:
        yield buffer[:filled]


def _cut(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    if len(lengths) == 1:
        return [data]
    return [data[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]
