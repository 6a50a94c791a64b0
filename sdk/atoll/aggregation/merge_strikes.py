"""Where a merged update is not what the updates give, and the pieces that show it.

Rule of this file: what `Strikes.sol` computes of one coordinate, computed of all, by the seats and
groups of the statement. SPEC-ROUNDS.md, 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from atoll.aggregation.chunks import CHUNK
from atoll.aggregation.merge_round import FEW_UPDATES
from atoll.aggregation.rounding import LIMIT, rounded
from atoll.aggregation.stated_merge import MergedLayout
from atoll.errors import MalformedUpdate
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.factored import INFINITY, Words
from atoll.numerics.codec.places import HEADER, Place, is_canonical, place_in
from atoll.numerics.codec.update_codec import Integers
from atoll.numerics.kernels.keccak import keccak_each
from atoll.numerics.pieces import PIECE_BYTES, ByteSlices, tree_of
from atoll.numerics.sections import UpdateLayout, filled
from atoll.protocol.call_structs import Piece
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_statement import MergeStatement
from atoll.protocol.rules import RULES
from atoll.protocol.strikes import ShownUpdate, StrikePlace
from atoll.protocol.types import Bitmap, Digest, bits

FACTORED: Final = 2
"""The section of factored second moments."""
_MOST: Final = 0x5F800000
"""2⁶⁴ in binary32."""
_TIMES_16: Final = 4 << 23
Int64Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StruckMerge:
    """A certified merge and what it was made of.

    Attributes:
        statement: sound.
        merged: bytes of the merged update.
        updates: of the merged seats.
        data_seed: of the round.
    """

    layout: MergedLayout
    statement: MergeStatement
    merged: ByteSlices
    updates: Mapping[int, ByteSlices]
    manifest: Manifest
    data_seed: Digest

    def seats(self, section: int) -> Bitmap:
        """Whose rows are merged in a section."""
        return self.statement.heard if section == 1 else self.statement.merged

    @property
    def sections(self) -> tuple[int, ...]:
        """Those that a strike may be about."""
        of_rule = tuple(range(len(self.layout.updates.vectors)))
        return of_rule if self.layout.updates.factored is None else (*of_rule, FACTORED)

    def length(self, section: int) -> int:
        """Coordinates of a section."""
        updates = self.layout.updates
        if section == FACTORED:
            return 0 if updates.factored is None else updates.factored.total
        return updates.vectors[section].total


def find_coordinate(merge: StruckMerge) -> StrikePlace | None:
    """The first coordinate at which the merged update is not the rule's, or an update is not
    canonical.
    """
    sizes = [len(each) for each in merge.updates.values()]
    size = merge.layout.updates.encoded_length
    if any(each != size for each in sizes) or len(merge.merged) != merge.layout.encoded_length:
        return StrikePlace(0, 0)
    places = (_first_of(merge, section) for section in merge.sections)
    return next((place for place in places if place is not None), None)


def _first_of(merge: StruckMerge, section: int) -> StrikePlace | None:
    if section == FACTORED:
        return _first_moment(merge)
    for begin in range(0, merge.length(section), CHUNK):
        span = slice(begin, min(begin + CHUNK, merge.length(section)))
        wrong = _wrong_in(merge, section, span)
        if wrong is not None:
            return StrikePlace(section, span.start + wrong)
    return None


def _wrong_in(merge: StruckMerge, section: int, span: slice) -> int | None:
    seats = bits(merge.seats(section))
    try:
        rows = [_decoded(merge, seat, section, span) for seat in seats]
    except MalformedUpdate:
        return _not_canonical(merge, section, span)
    stated = merge.statement.first if section else merge.statement.delta
    assert stated is not None  # there is such a section
    begin = merge.layout.sections[section].start
    data = merge.merged[begin + span.start : begin + span.stop]
    claimed = np.frombuffer(data, dtype=np.int8)
    values = merged_values(rows, seats, stated.groups, merge)
    if values is None:
        return 0
    fineness = 0 if section else merge.manifest.codec.properties.fineness or 0
    right = rounded(values.numerators, values.denominator, fineness)
    wrong = np.flatnonzero((right != claimed) | (claimed < -LIMIT))
    return int(wrong[0]) if wrong.size else None


def _decoded(merge: StruckMerge, seat: int, section: int, span: slice) -> Integers:
    key = DitherKey(merge.data_seed, seat)
    return merge.layout.updates.decode_span(merge.updates[seat], section, span, key)


@dataclass(frozen=True, slots=True)
class MergedValues:
    """What the rule gives: numerators over one denominator."""

    numerators: Int64Rows
    denominator: int


def merged_values(
    rows: Sequence[Integers], seats: Sequence[int], groups: Sequence[Bitmap], merge: StruckMerge
) -> MergedValues | None:
    """The rule applied by the groups that a statement has; None where these are no groups."""
    rule, n, f = RULES[merge.manifest.robust.rule], len(rows), merge.statement.f_prime
    size = n - f if rule.mixes and n > FEW_UPDATES else 1
    alone = [Bitmap(1 << seat) for seat in seats]
    if size == 1 and list(groups) != alone:
        return None
    everybody = sum(alone)
    if any(group & ~everybody or group.bit_count() != size for group in groups):
        return None
    values = np.stack([np.asarray(row, dtype=np.int64) for row in rows])
    marks = np.array([[group >> seat & 1 for seat in seats] for group in groups], dtype=np.int64)
    mixes = values if size == 1 else marks @ values
    cut = {"median": (n - 1) // 2, "trimmed_mean": f}.get(rule.base, 0) if n > FEW_UPDATES else 0
    kept = np.sort(mixes, axis=0)[cut : n - cut]
    return MergedValues(kept.sum(axis=0), size * (n - 2 * cut))


def _not_canonical(merge: StruckMerge, section: int, span: slice) -> int:
    """Where the update that could not be decoded is not canonical: by halves."""
    while span.stop - span.start > 1:
        middle = (span.start + span.stop) // 2
        first = slice(span.start, middle)
        span = first if _is_odd(merge, section, first) else slice(middle, span.stop)
    begin: int = span.start
    return begin % CHUNK


def _is_odd(merge: StruckMerge, section: int, span: slice) -> bool:
    layout, kind = merge.layout.updates, merge.manifest.codec.kind
    for seat in bits(merge.seats(section)):
        for index in range(span.start, span.stop):
            place = place_of(layout, section, index)
            step, code = (merge.updates[seat][at : at + 1][0] for at in (place.step, place.code))
            if not is_canonical(kind, index, step, code):
                return True
    return False


# --- factored second moments ---


def _first_moment(merge: StruckMerge) -> StrikePlace | None:
    total, seats = merge.length(FACTORED), bits(merge.statement.merged)
    begin = place_of(merge.layout.updates, FACTORED, 0).code
    rows = np.stack([words_of(merge.updates[seat][begin : begin + 4 * total]) for seat in seats])
    at = merge.layout.sections[-2].start  # before the products
    claimed = words_of(merge.merged[at : at + 4 * total])
    wrong = wrong_moments(rows, claimed, merge.statement.f_prime)
    return StrikePlace(FACTORED, int(wrong[0])) if wrong.size else None


def wrong_moments(rows: Words, claimed: Words, f: int) -> npt.NDArray[np.intp]:
    """Where what is claimed is not between what any cutting off leaves of the seats' numbers, whose
    `rows` are put in order.
    """
    rows.sort(axis=0)
    n = len(rows)
    dropped = max(f, 1) if n > FEW_UPDATES else f
    most, least = rows[n - 1 - dropped], rows[(n - 1) // 2]
    least = np.where(least >> 23, least + _TIMES_16, least)
    most = np.minimum(most, _MOST)
    least = np.minimum(least, most)
    return np.flatnonzero((rows[-1] >= INFINITY) | (claimed < least) | (claimed > most))


def words_of(data: bytes) -> Words:
    """The bits of fp32 numbers, whose order is theirs."""
    words: Words = np.frombuffer(data, dtype="<u4").astype(np.int64)
    return words


# --- what is shown ---


def place_of(layout: UpdateLayout, section: int, index: int) -> Place:
    """Where any update of this layout has a coordinate."""
    start = sum(map(filled, layout.lengths[: min(section, len(layout.vectors))]))
    if section == FACTORED:
        return Place(start + HEADER + 4 * index, start + HEADER + 4 * index)
    place = place_in(layout.vectors[section], layout.codec.kind, index)
    return Place(start + place.step, start + place.code)


def pieces_at(file: ByteSlices, places: Sequence[int]) -> tuple[Piece, ...]:
    """The pieces of a file that have these bytes."""
    tree = tree_of(keccak_each(list(_pieces(file))))
    numbers = [place // PIECE_BYTES for place in places]
    return tuple(Piece(_piece(file, n), tuple(tree.path(n))) for n in numbers)


def _piece(file: ByteSlices, number: int) -> bytes:
    return file[number * PIECE_BYTES : min((number + 1) * PIECE_BYTES, len(file))]


def _pieces(file: ByteSlices) -> Iterator[bytes]:
    return (_piece(file, number) for number in range(-(-len(file) // PIECE_BYTES)))


def shown_of(merge: StruckMerge, place: StrikePlace, seat: int) -> ShownUpdate:
    """What a strike shows of a seat's update."""
    assert place.section is not None  # a statement is shown by itself
    update, layout = merge.updates[seat], merge.layout.updates
    at = place_of(layout, place.section, place.index)
    places = [at.step] if at.step == at.code else [at.step, at.code]
    if len(update) != layout.encoded_length:
        places = [0]
    return ShownUpdate(seat, len(update), pieces_at(update, places))


def merged_shown(merge: StruckMerge, place: StrikePlace) -> ShownUpdate:
    """What it shows of the merged update."""
    assert place.section is not None  # a statement is shown by itself
    is_whole = len(merge.merged) == merge.layout.encoded_length
    width = 4 if place.section == FACTORED else 1
    section = merge.layout.sections[-2 if place.section == FACTORED else place.section]
    at = section.start + width * place.index if is_whole else 0
    return ShownUpdate(0, len(merge.merged), pieces_at(merge.merged, [at]))
