"""Spots at which a merged update is held against the updates: SPEC-MERGE.md, 9.

Rule of this file: a spot is a place, which is the coordinates of one piece of an update, or a chunk
of a section. What a merge says of it is worked out from the updates' pieces there alone.

Most spots are places: so many lies are seen by so few bytes. Inner products are stated of chunks,
so these are looked at, too, a few.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, count
from typing import Final

import numpy as np

from atoll.aggregation.chunks import CHUNK
from atoll.aggregation.exponents import vote
from atoll.aggregation.merge_round import rule_applied
from atoll.aggregation.merge_strikes import words_of, wrong_moments
from atoll.aggregation.passes import gram
from atoll.aggregation.rounding import Int8Vector, rounded
from atoll.aggregation.stated_merge import MergedLayout, chunks_of, products_at
from atoll.errors import MalformedUpdate
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.registry import codec_of
from atoll.numerics.codec.update_codec import Integers
from atoll.numerics.pieces import ByteSlices
from atoll.numerics.shown_pieces import shown_length
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_statement import MergeStatement
from atoll.protocol.types import Bitmap, Digest, bits

PLACES_SHARE: Final = 0.08
"""Of the merged update's bytes, so many are fetched of all updates together, on average of rounds:
as pieces, with what proves them."""
CHUNKS_SHARE: Final = 0.02
"""And so many in chunks, whose inner products are compared, too."""
_MOST: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Spot:
    """Coordinates of Δ (section 0), of first moments (1) or of factored second moments: those that
    begin in one piece of an update, or a chunk.
    """

    section: int
    start: int
    stop: int
    is_chunk: bool = False

    @property
    def span(self) -> slice:
        """Its coordinates."""
        return slice(self.start, self.stop)


def place(layout: MergedLayout, section: int, number: int) -> Spot:
    """A place of a section."""
    span = layout.updates.place(section, number)
    return Spot(section, span.start, span.stop)


def chunk(layout: MergedLayout, section: int, number: int) -> Spot:
    """A chunk of a section that the rule merges."""
    begin, total = number * CHUNK, layout.updates.vectors[section].total
    return Spot(section, begin, min(begin + CHUNK, total), is_chunk=True)


def drawn(layout: MergedLayout, secret: bytes) -> tuple[Spot, ...]:
    """Different spots that nobody knows who has not the secret.

    A small merge has none in many rounds: one alone is more than the share of it.
    """
    updates = layout.updates
    kinds = (
        (place, PLACES_SHARE, [updates.places(section) for section in layout.merged_sections]),
        (chunk, CHUNKS_SHARE, list(map(chunks_of, updates.vectors))),
    )
    spots = list[Spot]()
    for spot_of, share, counts in kinds:
        numbers = _numbers(secret + spot_of.__name__.encode())
        typical = [spot_of(layout, section, n // 2) for section, n in enumerate(counts)]
        costs = [n * _cost(layout, spot) for n, spot in zip(counts, typical, strict=True)]
        affordable = share * layout.encoded_length * sum(counts) / (layout.rows * sum(costs))
        ends = list(accumulate(counts))
        wanted = min(int(affordable + next(numbers) / _MOST), ends[-1])
        sample = set[int]()
        while len(sample) < wanted:
            sample.add(next(numbers) % ends[-1])
        for number in sorted(sample):
            section = bisect_right(ends, number)
            spots.append(spot_of(layout, section, number - ends[section] + counts[section]))
    return tuple(spot for spot in spots if spot.start < spot.stop)


def _numbers(key: bytes) -> Iterator[int]:
    """Numbers below `_MOST` that nobody knows who has not the key."""
    for index in count():
        yield int.from_bytes(sha256(key + index.to_bytes(8, "big"))[:8], "big")


def _cost(layout: MergedLayout, spot: Spot) -> int:
    """Bytes that are fetched of an update where this spot is asked for alone."""
    size, numbers = layout.updates.encoded_length, layout.updates.pieces_at(spot.section, spot.span)
    return shown_length(numbers, size) if numbers else 0


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
        if spot.section == len(self.layout.updates.vectors):
            self._compare_factored(spot, updates)
            return
        rows = dict[int, Integers]()
        for seat in bits(self.statement.mergeable):
            key = DitherKey(self.data_seed, seat)
            about = (spot.section, spot.span, key)
            rows[seat] = self.layout.updates.decode_span(updates[seat], *about)
        if spot.is_chunk:
            self._compare_products(spot, rows)
        if self._merged_of(spot, rows).tobytes() != self._merged_at(spot, width=1):
            raise MalformedUpdate(f"the merge of {spot} is another")
        self._compare_votes(spot, rows)

    def _compare_products(self, spot: Spot, rows: Mapping[int, Integers]) -> None:
        products = gram(list(rows.values()))[np.tril_indices(len(rows))].astype(">i8").tobytes()
        stated = products_at(self.merged, self.layout, spot.section, spot.start // CHUNK)
        if products != stated:
            raise MalformedUpdate(f"the inner products of {spot} are others")

    def _compare_factored(self, spot: Spot, updates: Mapping[int, ByteSlices]) -> None:
        """As far as a strike goes: what a number is cut off at takes all of its kind."""
        (part,) = self.layout.updates.spans(spot.section, spot.span)
        rows = [words_of(updates[seat][part]) for seat in bits(self.statement.merged)]
        claimed = words_of(self._merged_at(spot, width=4))
        if wrong_moments(np.stack(rows), claimed, self.statement.f_prime).size:
            raise MalformedUpdate(f"the merge of {spot} is another")

    def _merged_at(self, spot: Spot, width: int) -> bytes:
        begin = self.layout.sections[spot.section].start
        return self.merged[begin + width * spot.start : begin + width * spot.stop]

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
        """Of the tensors that lie in the spot as a whole; of others a vote takes more than it."""
        vector, span = self.layout.updates.vectors[spot.section], spot.span
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
