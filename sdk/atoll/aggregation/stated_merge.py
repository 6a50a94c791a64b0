"""The merged update as bytes, and what a merge says beside it: SPEC-MERGE.md, 9.

Rule of this file: opening state, chain, statement and merged update give the next state without any
seat's update, and all that follows from these is checked. Whether the merged update is the merge of
the updates is checked at spots (`merge_spots`), or by merging.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from atoll.aggregation.chunks import CHUNK
from atoll.aggregation.exponents import MOST, moved
from atoll.aggregation.gram import Int64Matrix
from atoll.aggregation.merge_round import MergedUpdate, StatedSection, groups_of, named_sums
from atoll.aggregation.rounding import LIMIT
from atoll.errors import MalformedUpdate
from atoll.numerics.codec.factored import INFINITY, FactoredLayout
from atoll.numerics.codec.header import check_length
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.moments import Moments
from atoll.numerics.pieces import ByteSlices
from atoll.numerics.sections import UpdateLayout, filled
from atoll.numerics.state import GlobalState
from atoll.numerics.state_layout import Shapes
from atoll.protocol.checks import Gram
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import (
    MergeInputs,
    MergeRecord,
    MergeTerms,
    candidates,
    merge_inputs,
)
from atoll.protocol.merge_statement import (
    MergeStatement,
    SectionStatement,
    StatementShape,
    triangle_bytes,
)
from atoll.protocol.types import Bitmap, Digest, SeatIndex, bits, to_bitmap


@dataclass(frozen=True)
class MergedLayout:
    """Where the sections of a round's merged update lie.

    Attributes:
        updates: of the updates that are merged.
        rows: mergeable seats, of whose rows each chunk has the inner products.
    """

    updates: UpdateLayout
    rows: int

    @classmethod
    def of(cls, manifest: Manifest, shapes: Shapes, round: int, rows: int) -> MergedLayout:
        """Of this job's round."""
        return cls(UpdateLayout.of(manifest, shapes, round), rows)

    @property
    def shape(self) -> StatementShape:
        """Of the statement's."""
        first = self.updates.first
        return StatementShape(
            len(self.updates.delta.names), 0 if first is None else len(first.names)
        )

    @property
    def merged_sections(self) -> range:
        """Those that are of coordinates: all but the last."""
        return range(len(self.lengths) - 1)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Bytes of each section: a byte a coordinate, sums, inner products."""
        factored = [] if self.updates.factored is None else [4 * self.updates.factored.total]
        products = sum(chunks_of(each) for each in self.updates.vectors) * triangle_bytes(self.rows)
        return (*(each.total for each in self.updates.vectors), *factored, products)

    @cached_property
    def sections(self) -> tuple[slice, ...]:
        """Where each lies."""
        begins = accumulate(map(filled, self.lengths), initial=0)
        return tuple(slice(at, at + n) for at, n in zip(begins, self.lengths, strict=False))

    @property
    def encoded_length(self) -> int:
        """Bytes of any merged update of this layout."""
        return sum(map(filled, self.lengths[:-1])) + self.lengths[-1]


def chunks_of(layout: Layout) -> int:
    """In how many chunks its vector is."""
    return -(-layout.total // CHUNK)


# --- what a merge says ---


def merged_pieces(merged: MergedUpdate, layout: MergedLayout) -> Iterator[bytes]:
    """A merged update's canonical bytes, a tensor at a time. It has merged something."""
    moments = merged.moments or Moments()
    vectors, parts = (merged.numerators, moments.m), list[Iterable[bytes]]()
    for tensors, vector in zip(vectors, layout.updates.vectors, strict=False):
        parts.append(_flat(tensors, vector))
    if layout.updates.factored is not None:
        parts.append(_sums(moments, layout.updates.factored))
    parts.append(section.products.chunks for section in merged.stated)
    for part, section, end in zip(parts, layout.sections, _ends(layout), strict=True):
        yield from part
        yield bytes(end - section.stop)


def _flat(tensors: Mapping[str, Tensor], vector: Layout) -> Iterator[bytes]:
    return (tensors[name].contiguous().numpy().tobytes() for name in vector.names)


def _ends(layout: MergedLayout) -> list[int]:
    """Where the zeros behind each section end."""
    return [*(each.start for each in layout.sections[1:]), layout.encoded_length]


def _sums(moments: Moments, places: FactoredLayout) -> Iterator[bytes]:
    for name, shape, _ in places.spans():
        group = (
            [moments.whole[name]]
            if len(shape) == 1
            else [moments.rows[name], moments.columns[name]]
        )
        yield from (each.contiguous().numpy().astype("<f4").tobytes() for each in group)


def statement_of(
    merged: MergedUpdate, after: GlobalState, update_root: Digest, update_cid: bytes
) -> MergeStatement:
    """What is said of a merge that merged something.

    Args:
        after: the state that it moved to.
        update_root, update_cid: of the merged update's bytes.
    """
    inputs, sections = merged.inputs, list[SectionStatement]()
    heard = [seat for seat in inputs.merged if seat not in inputs.momentum_excluded]
    moved_to = (merged.exponents, merged.moment_exponents)
    for stated, seats, exponents in zip(
        merged.stated, (inputs.merged, heard), moved_to, strict=False
    ):
        in_order = sorted(exponents, key=str.encode)
        sections.append(
            SectionStatement(
                stated.products.whole.tolist(),
                _seats_of(stated, seats),
                stated.votes,
                tuple(exponents[name] for name in in_order),
            )
        )
    return MergeStatement(
        after.round - 1,
        inputs.f_prime,
        to_bitmap(inputs.mergeable),
        to_bitmap(inputs.excluded),
        to_bitmap(inputs.merged),
        to_bitmap(inputs.momentum_excluded),
        sections[0],
        sections[1] if len(sections) > 1 else None,
        after.roots(),
        update_root,
        update_cid,
    )


def _seats_of(stated: StatedSection, seats: Sequence[SeatIndex]) -> tuple[Bitmap, ...]:
    return _bitmaps(stated.groups, seats)


def _bitmaps(groups: Iterable[Iterable[bool]], seats: Sequence[int]) -> tuple[Bitmap, ...]:
    return tuple(
        to_bitmap(seat for seat, is_in in zip(seats, group, strict=True) if is_in)
        for group in groups
    )


# --- what is checked of it ---


def checked_inputs(
    statement: MergeStatement, state: GlobalState, record: MergeRecord, manifest: Manifest
) -> MergeInputs:
    """Who was merged, where all that a statement says follows from its inner products and votes.

    Raises:
        MalformedUpdate: something does not.
    """
    if statement.round != state.round:
        raise MalformedUpdate(f"the statement is of round {statement.round}")
    terms, mergeable = MergeTerms.of(manifest), [SeatIndex(s) for s in bits(statement.mergeable)]
    # A committee that most of said has an update may drop none of it: who merges sees whether.
    if tuple(mergeable) != candidates(record, terms):
        raise MalformedUpdate("an available update is in none of the statement's lists")
    sections = [each for each in (statement.delta, statement.first) if each is not None]
    if not all(is_gram(each.gram) for each in sections):
        raise MalformedUpdate("these are no vectors' inner products")
    inputs = merge_inputs(record, mergeable, [each.gram for each in sections], terms)
    follows = (inputs.excluded, inputs.merged, inputs.momentum_excluded)
    stated = (statement.excluded, statement.merged, statement.momentum_excluded)
    if tuple(map(to_bitmap, follows)) != stated or inputs.f_prime != statement.f_prime:
        raise MalformedUpdate("the seats do not follow from the inner products")
    known = (state.sent_part(manifest.codec).exponents, state.moment_exponents)
    merged = (statement.merged, statement.heard)
    for section, rows, exponents in zip(sections, merged, known, strict=False):
        if not groups_follow(section, MergedRows(mergeable, rows, inputs.f_prime), manifest):
            raise MalformedUpdate("the groups do not follow from the inner products")
        if moved_by(section, exponents, manifest) != section.exponents:
            raise MalformedUpdate("the next exponents do not follow from the votes")
    return inputs


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Of a section's mergeable rows those that are merged, the rule bearing f bad ones."""

    mergeable: Sequence[int]
    rows: Bitmap
    f: int

    def gram(self, whole: Gram) -> Int64Matrix:
        """Their inner products, of those of all."""
        kept = [row for row, seat in enumerate(self.mergeable) if self.rows >> seat & 1]
        return np.array(whole, dtype=np.int64)[np.ix_(kept, kept)]


def groups_follow(section: SectionStatement, merged: MergedRows, manifest: Manifest) -> bool:
    """Whether a section's groups are those that its inner products give."""
    groups = groups_of(merged.gram(section.gram), manifest.robust, merged.f)
    return _bitmaps(groups, bits(merged.rows)) == section.groups


def moved_by(
    section: SectionStatement, exponents: Mapping[str, int], manifest: Manifest
) -> tuple[int, ...]:
    """What a section's votes make of a round's exponents, in the order of names.

    Raises:
        MalformedUpdate: a vote is beyond what one may be.
    """
    if any(abs(each) > MOST for votes in section.votes for each in votes):
        raise MalformedUpdate("a vote is beyond what one may be")
    layout, codec = Layout.of(dict.fromkeys(exponents, ())), manifest.codec
    bounds = {"low": codec.min_exponent, "high": codec.max_exponent}
    moves = moved(exponents, layout, section.votes, **bounds)
    return tuple(moves[name] for name in layout.names)


def is_gram(gram: Gram) -> bool:
    """Whether no angle is impossible, so that every distance is at least 0."""
    return all(
        gram[i][i] >= 0 and gram[i][j] ** 2 <= gram[i][i] * gram[j][j]
        for i in range(len(gram))
        for j in range(i + 1)
    )


def open_merged(
    data: ByteSlices, layout: MergedLayout, statement: MergeStatement, inputs: MergeInputs
) -> MergedUpdate:
    """The merged update of these bytes, with the exponents of its statement; its inner products
    are those of the statement.

    Raises:
        MalformedUpdate: the bytes are not canonical, or a sum of products is another.
    """
    check_length(len(data), layout.encoded_length)
    for section, end in zip(layout.sections, _ends(layout), strict=True):
        if any(data[section.stop : end]):
            raise MalformedUpdate("the bytes between two sections are not zero")
    stated = [each for each in (statement.delta, statement.first) if each is not None]
    _check_products(data, layout, [each.gram for each in stated])
    parts = list(layout.sections)
    vectors = [_vector(data[parts.pop(0)], vector) for vector in layout.updates.vectors]
    exponents = [
        dict(zip(vector.names, each.exponents, strict=True))
        for vector, each in zip(layout.updates.vectors, stated, strict=True)
    ]
    merged = MergedUpdate(
        inputs,
        {},
        vectors[0],
        1 << (layout.updates.codec.properties.fineness or 0),
        exponents[0],
    )
    if len(vectors) == 1:
        return merged
    sums = {}
    if layout.updates.factored is not None:
        sums = _factored(data[parts.pop(0)], layout.updates.factored)
    moments = Moments(0, vectors[1], {}, **sums)
    return replace(merged, moments=moments, moment_exponents=exponents[1])


def applied(merged: MergedUpdate, state: GlobalState, manifest: Manifest) -> GlobalState:
    """The state that an opened merged update moves to, in the memory of the one that is given."""
    if merged.moments is not None:
        counted = replace(
            merged.moments,
            count=manifest.inner.steps,
            m_exponents=dict(state.moment_exponents),
        )
        merged = replace(merged, moments=counted)
    return merged.moves(state, manifest)


def products_at(data: ByteSlices, layout: MergedLayout, section: int, chunk: int) -> bytes:
    """What a merged update has of a chunk's inner products."""
    before = sum(chunks_of(each) for each in layout.updates.vectors[:section]) + chunk
    size = triangle_bytes(layout.rows)
    begin = layout.sections[-1].start + before * size
    return data[begin : begin + size]


def _check_products(
    data: ByteSlices, layout: MergedLayout, grams: Sequence[Sequence[Sequence[int]]]
) -> None:
    n = layout.rows
    lower = np.tril_indices(n)
    for section, (vector, gram) in enumerate(zip(layout.updates.vectors, grams, strict=True)):
        total = np.zeros(len(lower[0]), dtype=np.int64)
        for chunk in range(chunks_of(vector)):
            products = np.frombuffer(products_at(data, layout, section, chunk), dtype=">i8")
            size = min(CHUNK, vector.total - chunk * CHUNK)
            if np.abs(products).max(initial=0) > LIMIT * LIMIT * size:
                raise MalformedUpdate("an inner product is beyond what its chunk can have")
            total += products
        if not np.array_equal(total, np.array(gram, dtype=np.int64)[lower]):
            raise MalformedUpdate("the chunks' inner products are not the statement's")


def _vector(data: bytes, layout: Layout) -> dict[str, Tensor]:
    values = np.frombuffer(bytearray(data), dtype=np.int8)
    if values.size and int(values.min()) < -LIMIT:
        raise MalformedUpdate("a value of −128 is not on the grid")
    return {n: torch.from_numpy(values[span]).reshape(s) for n, s, span in layout.spans()}


def _factored(data: bytes, places: FactoredLayout) -> dict[str, dict[str, Tensor]]:
    words = np.frombuffer(bytearray(data), dtype="<u4")
    if (words >= INFINITY).any():  # the sign is the highest bit
        raise MalformedUpdate("a sum is negative or not finite")
    return named_sums(words.view(np.float32), places)
