"""What all codecs of updates in grid steps have in common: header, lengths, and bytes as a stream.

An update is `delta = global − last` over the flat vector in `Layout` order, in units of a shared
power-of-two grid: the exponents, one a tensor, are the round's and the same for everyone. A codec
is a `Body`, which writes a vector in grid steps as one or more sections. Bytes, big-endian, nothing
optional and nothing after them:

    magic "ATUP" ‖ version u8 ‖ codec u8 ‖ tensors u16 ‖ layout digest 32 ‖
    exponent i16 per tensor ‖ section ‖ … ‖ section

The length follows from the layout alone. Every section is in coordinate order, and `PIECE`
coordinates fill whole bytes of each, so that an update is written and read a piece at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from atoll.bits.codec.grid import Float32Vector, as_tensors, check_finite, flat
from atoll.bits.codec.header import CodecId, body_of, check_header, header, header_length
from atoll.bits.codec.layout import Layout
from atoll.errors import MalformedUpdate

if TYPE_CHECKING:
    from torch import Tensor

PIECE = 1 << 16
"""Coordinates handled at once, so that the work stays in a core's second-level cache."""
Exponents: TypeAlias = Mapping[str, int]
Integers: TypeAlias = npt.NDArray[Any]


class Body(Protocol):
    """How a codec writes a vector; a vector of a multiple of PIECE is its pieces, one by one.

    `piece` is the index of the (first) piece in the whole vector; only dither depends on it.
    """

    @property
    def codec(self) -> CodecId:
        """What the header calls it."""

    def sections(self, length: int, /) -> tuple[int, ...]:
        """Bytes of each section for a vector of that length."""

    def encode(self, scaled: Float32Vector, piece: int, /) -> bytes:
        """All sections of a vector in grid steps, which may be infinite; overwrites it."""

    def decode(self, body: memoryview, length: int, piece: int, /) -> Integers:
        """The integers that are merged.

        Raises:
            MalformedUpdate: not what `encode` writes.
        """


class UpdateCodec:
    """A codec of updates in grid steps.

    Args:
        body: how it writes them.
    """

    def __init__(self, body: Body) -> None:
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
        return b"".join(self.encode_stream(delta, exponents))

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

    def decode_stream(
        self, data: Iterable[bytes], layout: Layout, exponents: Exponents
    ) -> Iterator[Integers]:
        """The same integers in pieces, from bytes that arrive in any; sections before the last
        wait in memory for it.

        Raises:
            MalformedUpdate: as `decode_flat`, as soon as it shows.
        """
        incoming = _Incoming(data, self.encoded_length(layout))
        head = header(self._body.codec, layout, exponents)
        check_header(incoming.read(len(head)), head)
        *early, _ = self._body.sections(layout.total)
        sections = [memoryview(incoming.read(length)) for length in early]
        for start in range(0, layout.total, PIECE):
            length = min(PIECE, layout.total - start)
            *sizes, last = self._body.sections(length)
            parts = [section[:size] for section, size in zip(sections, sizes, strict=True)]
            sections = [section[size:] for section, size in zip(sections, sizes, strict=True)]
            body = memoryview(b"".join([*parts, incoming.read(last)]))
            yield self._body.decode(body, length, start // PIECE)
        incoming.end()

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


class _Incoming:
    """Bytes that arrive in pieces of any size, `total` in all, read in others."""

    def __init__(self, data: Iterable[bytes], total: int) -> None:
        self._data, self._total = iter(data), total
        self._rest = memoryview(b"")

    def read(self, count: int) -> bytes:
        """The next `count` bytes. Raises MalformedUpdate where there are fewer."""
        parts = []
        while count:
            if not self._rest:
                self._rest = memoryview(self._next())
            parts.append(self._rest[:count])
            count -= len(parts[-1])
            self._rest = self._rest[len(parts[-1]) :]
        return b"".join(parts)

    def end(self) -> None:
        """Raises MalformedUpdate unless everything was read."""
        if self._rest or any(self._data):
            raise MalformedUpdate(f"the update has more than the {self._total} bytes of its layout")

    def _next(self) -> bytes:
        for data in self._data:
            if data:
                return data
        raise MalformedUpdate(f"the update has fewer than the {self._total} bytes of its layout")
