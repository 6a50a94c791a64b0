"""Whose updates make the next model: one function for naming, the merge and its certificate.

Rule of this file: SPEC-ROUNDS.md, "Merge inputs", step by step. It reads votes about which bytes
are there, who is accused, and the bytes; nothing that a verifier says of a seat's work keeps or
costs its weight, but an open accusation within the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from atoll.protocol.checks import Gram, Named, name_odd, other_directions
from atoll.protocol.manifest import Manifest
from atoll.protocol.method_spec import RobustSpec
from atoll.protocol.types import Bitmap, SeatIndex, bits, to_bitmap

PARTIAL: Final = (3, 4)
"""A seat that did less than this part of a round's segments is paid for them, and not merged."""
_NOBODY: Final = Bitmap(0)


@dataclass(frozen=True, slots=True)
class MergeRecord:
    """What the chain says about whose update may be merged.

    Attributes:
        revealed: bitmap of seats.
        slashed, accused: as of the start of MERGE, seats whose holder was slashed, or has an open
            *mismatch*.
        committee: members whose votes count, silent ones too.
        votes: of each that spoke, the seats whose update it has.
        segments: what each revealed seat did.
    """

    revealed: Bitmap
    committee: int
    votes: Sequence[Bitmap]
    segments: Mapping[SeatIndex, int] = field(hash=False)
    slashed: Bitmap = _NOBODY
    accused: Bitmap = _NOBODY


@dataclass(frozen=True, slots=True)
class MergeTerms:
    """What the manifest says about it: `segments` are a whole round's."""

    segments: int
    robust: RobustSpec

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """The terms of a job."""
        return cls(manifest.segments, manifest.robust)

    @property
    def minimum(self) -> int:
        """Updates that the rule needs to bear its f."""
        return self.robust.minimum


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """Who takes part in a round's merge, and how. Seats ascend but in `named` and `excluded`.

    Attributes:
        mergeable: whose update counts.
        named: findings of the checks, in their order.
        excluded: seats of weight 0, in the order in which they were found.
        merged: seats that the rule merges; nobody where there are too few updates.
        momentum_excluded: those of them whose first moments are not merged, in the order of their
            finding.
        f_prime: bad updates that the rule bears.
    """

    mergeable: tuple[SeatIndex, ...]
    named: tuple[Named, ...]
    excluded: tuple[SeatIndex, ...]
    merged: tuple[SeatIndex, ...]
    momentum_excluded: tuple[SeatIndex, ...]
    f_prime: int


def available_seats(votes: Iterable[Bitmap], committee: int, revealed: Bitmap) -> Bitmap:
    """Seats that more than half of the committee have, silent members counted as not having."""
    counts = _counts(votes)
    return to_bitmap(seat for seat in bits(revealed) if 2 * counts.get(seat, 0) > committee)


def is_availability_settled(votes: Sequence[Bitmap], committee: int, revealed: Bitmap) -> bool:
    """Whether no vote that is still to come can change `available_seats`."""
    counts, silent = _counts(votes), committee - len(votes)
    return all(
        2 * counts.get(seat, 0) > committee or 2 * (counts.get(seat, 0) + silent) <= committee
        for seat in bits(revealed)
    )


def _counts(votes: Iterable[Bitmap]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for vote in votes:
        for seat in bits(vote):
            counts[seat] = counts.get(seat, 0) + 1
    return counts


def is_whole_enough(done: int, segments: int) -> bool:
    """Whether an update of so many segments is merged."""
    part, whole = PARTIAL
    return done * whole >= segments * part


def candidates(record: MergeRecord, terms: MergeTerms) -> tuple[SeatIndex, ...]:
    """Seats whose update counts if its bytes are canonical."""
    there = available_seats(record.votes, record.committee, record.revealed) & ~record.slashed
    seats = map(SeatIndex, bits(there))
    return tuple(s for s in seats if is_whole_enough(record.segments[s], terms.segments))


def merge_inputs(
    record: MergeRecord, decoded: Sequence[SeatIndex], grams: Sequence[Gram], terms: MergeTerms
) -> MergeInputs:
    """The one answer to who is named, excluded and merged.

    Args:
        decoded: seats whose update's bytes are the revealed ones and canonical, ascending; those
            that are no candidates are passed over.
        grams: inner products of their integers, a row a seat, and those of their first moments,
            where updates have them; nothing for fp32 updates: nobody is named then.
    """
    possible = set(candidates(record, terms))
    rows = [row for row, seat in enumerate(decoded) if seat in possible]
    mergeable = tuple(decoded[row] for row in rows)
    f = terms.robust.f
    named: tuple[Named, ...] = ()
    if grams:
        parts = [[[gram[i][j] for j in rows] for i in rows] for gram in grams]
        done = [record.segments[seat] for seat in mergeable]
        named = name_odd(mergeable, parts, done, kappa=terms.robust.kappa, f=f)
    room = min(f, len(mergeable) - terms.minimum)
    if room < 0:
        return MergeInputs(mergeable, named, (), (), (), 0)
    accused = (seat for seat in mergeable if record.accused >> seat & 1)
    excluded = tuple(dict.fromkeys((*accused, *(found.seat for found in named))))[:room]
    merged = tuple(seat for seat in mergeable if seat not in excluded)
    spare = min(f, len(merged) - terms.minimum)
    momentum_excluded = _momentum_excluded(decoded, merged, grams[1:])[:spare]
    return MergeInputs(mergeable, named, excluded, merged, momentum_excluded, f)


def _momentum_excluded(
    decoded: Sequence[SeatIndex], merged: Sequence[SeatIndex], of_moments: Sequence[Gram]
) -> tuple[SeatIndex, ...]:
    """Merged seats whose first moments point elsewhere, by the inner products of merged ones."""
    rows = [row for row, seat in enumerate(decoded) if seat in merged]
    parts = ([[gram[i][j] for j in rows] for i in rows] for gram in of_moments)
    return tuple(seat for part in parts for seat in other_directions(merged, part))
