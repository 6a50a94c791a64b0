"""Places at which a merged update is held against the updates: SPEC-MERGE.md, 9.

Rule of this file: a spot is a chunk of coordinates of one section. What a merge says of it is
worked out by the functions that a merge uses, from the updates' bytes of these coordinates alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from atoll.aggregation.chunks import CHUNK
from atoll.aggregation.exponents import vote
from atoll.aggregation.merge_round import rule_applied
from atoll.aggregation.passes import gram
from atoll.aggregation.rounding import Int8Vector, rounded
from atoll.aggregation.stated_merge import MergedLayout, chunks_of, products_at
from atoll.errors import MalformedUpdate
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.registry import codec_of
from atoll.numerics.codec.update_codec import Integers
from atoll.numerics.pieces import ByteSlices
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_statement import MergeStatement
from atoll.protocol.types import Bitmap, Digest, bits

SHARE: Final = 0.05
"""Of the merged update's bytes, so many are fetched of all updates together, in whole chunks."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A chunk of Δ (section 0) or of first moments (1)."""

    section: int
    chunk: int

    def span(self, layout: MergedLayout) -> slice:
        """Its coordinates."""
        begin = self.chunk * CHUNK
        return slice(begin, min(begin + CHUNK, layout.updates.vectors[self.section].total))


def drawn(layout: MergedLayout, secret: bytes) -> tuple[Spot, ...]:
    """Different spots that nobody knows who has not the secret; one at least."""
    chunks = [
        Spot(section, chunk)
        for section, vector in enumerate(layout.updates.vectors)
        for chunk in range(chunks_of(vector))
    ]
    count = ceil(SHARE * len(chunks) / layout.rows)
    order = sorted(chunks, key=lambda it: sha256(secret + bytes([it.section]) + _word(it.chunk)))
    return tuple(order[:count])


def _word(number: int) -> bytes:
    return number.to_bytes(8, "big")


@dataclass(frozen=True, slots=True)
class SpotCheck:
    """What spots are compared with.

    Attributes:
        merged: bytes of the merged update.
        data_seed: of the round.
    """

    layout: MergedLayout
    statement: MergeStatement
    merged: ByteSlices
    manifest: Manifest
    data_seed: Digest

    def compare(self, spot: Spot, updates: Mapping[int, ByteSlices]) -> None:
        """Works a spot out from the mergeable seats' updates.

        Raises:
            MalformedUpdate: it is not what the merged update or the statement has there.
        """
        span, rows = spot.span(self.layout), dict[int, Integers]()
        for seat in bits(self.statement.mergeable):
            key = DitherKey(self.data_seed, seat)
            rows[seat] = self.layout.updates.decode_span(updates[seat], spot.section, span, key)
        products = gram(list(rows.values()))[np.tril_indices(len(rows))].astype(">i8").tobytes()
        if products != products_at(self.merged, self.layout, spot.section, spot.chunk):
            raise MalformedUpdate(f"the inner products of {spot} are others")
        if not np.array_equal(self._merged_of(spot, rows), self._merged_at(spot)):
            raise MalformedUpdate(f"the merge of {spot} is another")
        self._compare_votes(spot, rows)

    def _merged_at(self, spot: Spot) -> Int8Vector:
        begin, span = self.layout.sections[spot.section].start, spot.span(self.layout)
        return np.frombuffer(self.merged[begin + span.start : begin + span.stop], dtype=np.int8)

    def _rows_merged(self, section: int) -> Bitmap:
        return self.statement.heard if section else self.statement.merged

    def _merged_of(self, spot: Spot, rows: Mapping[int, Integers]) -> Int8Vector:
        """By the rule, whose groups follow from inner products over all coordinates."""
        seats = bits(self._rows_merged(spot.section))
        stated = self.statement.first if spot.section else self.statement.delta
        assert stated is not None  # there is such a section
        kept = [row for row, seat in enumerate(rows) if seat in seats]
        whole = np.array(stated.gram, dtype=np.int64)[np.ix_(kept, kept)]
        merged = rule_applied(
            [rows[seat] for seat in seats], self.manifest, self.statement.f_prime, whole
        )
        fineness = 0 if spot.section else self.manifest.codec.properties.fineness or 0
        return rounded(merged.numerators, merged.denominator, fineness)

    def _compare_votes(self, spot: Spot, rows: Mapping[int, Integers]) -> None:
        """Of the tensors that lie in the chunk as a whole; of others a vote takes all chunks."""
        vector, span = self.layout.updates.vectors[spot.section], spot.span(self.layout)
        stated = self.statement.first if spot.section else self.statement.delta
        target = codec_of(self.manifest.codec).target
        assert stated is not None and target is not None  # a merge that is stated has both
        for number, (name, _, place) in enumerate(vector.spans()):
            if place.start < span.start or place.stop > span.stop:
                continue
            within = slice(place.start - span.start, place.stop - span.start)
            for seat, votes in zip(
                bits(self._rows_merged(spot.section)), stated.votes, strict=True
            ):
                if vote(rows[seat][within], target) != votes[number]:
                    raise MalformedUpdate(f"seat {seat} votes otherwise about {name}")
