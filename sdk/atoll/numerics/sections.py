"""The sections of an update: what moves the model, what tells the next round its moments, and
what was sampled in the round.

Rule of this file: whoever reads a job's updates knows every length, so nothing that a sender wrote
is parsed into a size. Sections begin at whole pieces; the bytes between them are zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from itertools import accumulate
from typing import Final

from atoll.errors import MalformedUpdate
from atoll.numerics.codec.dither import MOMENT_SECTION, DitherKey
from atoll.numerics.codec.factored import FactoredLayout, FactoredMoments
from atoll.numerics.codec.header import check_length
from atoll.numerics.codec.registry import codec_of, seat_codec
from atoll.numerics.codec.update_codec import Integers, StoredRow
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.pieces import PIECE_BYTES, ByteSlices
from atoll.numerics.state import GlobalState
from atoll.numerics.state_layout import Shapes, moment_layout
from atoll.protocol.manifest import Manifest
from atoll.protocol.method_spec import CodecSpec
from atoll.protocol.types import ZERO_DIGEST

_NOBODY: Final = DitherKey(ZERO_DIGEST, 0)


@dataclass(frozen=True, slots=True)
class StoredUpdate:
    """An update's sections, decoded where they are read; None where a job's updates have none.

    Attributes:
        delta: what moves the model.
        first: the first moment.
        factored: the row and column sums of the second moment (Shazeer and Stern, 2018).
    """

    delta: StoredRow
    first: StoredRow | None = None
    factored: FactoredMoments | None = None


@dataclass(frozen=True)
class UpdateLayout:
    """What the updates of a round speak of.

    Attributes:
        delta: parameters that are sent.
        first: those whose first moment is told, None where there are none.
        factored: those whose second moment is.
        sampled: bytes of the ids that a round samples; no merge reads them.
    """

    codec: CodecSpec
    delta: Layout
    first: Layout | None
    factored: FactoredLayout | None
    sampled: int = 0

    @classmethod
    def of(cls, manifest: Manifest, shapes: Shapes, round: int) -> UpdateLayout:
        """Of this job's round; `shapes` are those of what is trained."""
        codec, shared = manifest.codec, moment_layout(manifest, shapes)
        sent = {name: shape for name, shape in shapes.items() if codec.is_sent(name, round)}
        return cls(
            codec,
            Layout.of(sent),
            Layout.of(shared.m) if shared.m else None,
            FactoredLayout(Layout.of(shared.v)) if shared.v else None,
            manifest.sampled_bytes,
        )

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Bytes of each section."""
        codec = codec_of(self.codec)
        lengths = [codec.encoded_length(self.delta)]
        if self.first is not None:
            lengths.append(codec.encoded_length(self.first))
        if self.factored is not None:
            lengths.append(self.factored.encoded_length)
        if self.sampled:
            lengths.append(self.sampled)
        return tuple(lengths)

    @property
    def encoded_length(self) -> int:
        """Bytes of any update of this layout."""
        return _joined_length(self.lengths)

    def spans(self, section: int, span: slice) -> list[slice]:
        """Where in an update's bytes some coordinates of Δ (0), of first moments (1) or of factored
        second moments lie; what a place or a chunk begins with.
        """
        begin = sum(map(filled, self.lengths[:section]))
        if section == len(self.vectors):
            begin += len(self._factored.header)
            return [slice(begin + 4 * span.start, begin + 4 * span.stop)]
        codec = seat_codec(self.codec, _NOBODY)
        parts = codec.spans(self.vectors[section], span)
        return [slice(begin + part.start, begin + part.stop) for part in parts]

    def decode_span(
        self, data: ByteSlices, section: int, span: slice, dither: DitherKey
    ) -> Integers:
        """The integers of such coordinates of a vector alone.

        Raises:
            MalformedUpdate: these are not canonical.
        """
        begin = sum(map(filled, self.lengths[:section]))
        key = replace(dither, section=MOMENT_SECTION) if section else dither
        part = _Part(data, begin, self.lengths[section])
        return seat_codec(self.codec, key).decode_span(part, self.vectors[section], span)

    def places(self, section: int) -> int:
        """In how many places a section's coordinates are: those that begin in one piece each."""
        codes = self._codes(section)
        return (codes.stop - 1) // PIECE_BYTES - codes.start // PIECE_BYTES + 1

    def place(self, section: int, number: int) -> slice:
        """A place's coordinates; the last may have none."""
        codes = self._codes(section)
        return slice(codes.first_of(number), codes.first_of(number + 1))

    def pieces_at(self, section: int, span: slice) -> tuple[int, ...]:
        """The numbers of the pieces of any update in which some coordinates lie."""
        numbers = set[int]()
        for part in self.spans(section, span):
            if part.start < part.stop:
                first, last = part.start // PIECE_BYTES, (part.stop - 1) // PIECE_BYTES
                numbers.update(range(first, last + 1))
        return tuple(sorted(numbers))

    @property
    def _factored(self) -> FactoredLayout:
        assert self.factored is not None  # there is such a section
        return self.factored

    def _codes(self, section: int) -> _Codes:
        if section == len(self.vectors):
            (codes,) = self.spans(section, slice(0, self._factored.total))
            return _Codes(codes.start, codes.stop, 32, 1, self._factored.total)
        total, form = self.vectors[section].total, codec_of(self.codec).form
        codes = self.spans(section, slice(0, total))[-1]
        bits = form.bits if form.levels is None else form.levels.width
        # Two blocks have their steps in one byte.
        unit = 8 // bits if form.levels is None else 2 * form.block
        return _Codes(codes.start, codes.stop, bits, unit, total)

    @property
    def vectors(self) -> tuple[Layout, ...]:
        """What the rule merges: Δ, and first moments where there are any."""
        return (self.delta,) if self.first is None else (self.delta, self.first)

    def open(self, data: ByteSlices, model: GlobalState, dither: DitherKey) -> StoredUpdate:
        """An update of the round that begins with `model`; reads all of it once.

        Raises:
            MalformedUpdate: it is not canonical.
        """
        lengths = self.lengths
        check_length(len(data), _joined_length(lengths))
        begins = list(accumulate(map(filled, lengths[:-1]), initial=0))
        for begin, length, end in zip(begins, lengths, begins[1:], strict=False):
            if any(data[begin + length : end]):
                raise MalformedUpdate("the bytes between two sections are not zero")
        parts = [_Part(data, *place) for place in zip(begins, lengths, strict=True)]
        exponents = {name: model.exponents[name] for name in self.delta.names}
        stored_update = StoredUpdate(
            seat_codec(self.codec, dither).open(parts.pop(0), self.delta, exponents)
        )
        if self.first is not None:
            codec = seat_codec(self.codec, replace(dither, section=MOMENT_SECTION))
            first = codec.open(parts.pop(0), self.first, model.moment_exponents)
            stored_update = replace(stored_update, first=first)
        if self.factored is not None:
            stored_update = replace(
                stored_update, factored=FactoredMoments(parts.pop(0), self.factored)
            )
        return stored_update


@dataclass(frozen=True, slots=True)
class _Codes:
    """Where a section's codes lie in an update: bytes, bits of a code, and coordinates of which so
    many fill whole bytes of all that says something of them.
    """

    start: int
    stop: int
    bits: int
    unit: int
    total: int

    def first_of(self, number: int) -> int:
        """The first coordinate of a place."""
        begin = (self.start // PIECE_BYTES + number) * PIECE_BYTES - self.start
        in_units = -(-8 * max(begin, 0) // self.bits // self.unit) * self.unit
        return min(in_units, self.total)


def filled(length: int) -> int:
    """A section's bytes and the zeros behind it, where another one follows."""
    return -(-length // PIECE_BYTES) * PIECE_BYTES


def _joined_length(lengths: Sequence[int]) -> int:
    *others, last = lengths
    return sum(map(filled, others)) + last


def joined(sections: Iterable[bytes]) -> bytes:
    """An update of these sections, which may be made as they are taken."""
    update = BytesIO()
    for section in sections:
        update.write(bytes(filled(update.tell()) - update.tell()))
        update.write(section)
    return update.getvalue()


class _Part:
    """Some bytes of a byte string, read where they lie."""

    def __init__(self, data: ByteSlices, begin: int, length: int) -> None:
        self._data, self._begin, self._length = data, begin, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, span: slice, /) -> bytes:
        start, stop, _ = span.indices(self._length)
        return self._data[self._begin + start : self._begin + stop]
