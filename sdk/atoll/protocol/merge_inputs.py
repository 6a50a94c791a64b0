"""Whose updates make the next model: one function for naming, the merge and its certificate.

Rule of this file: SPEC-ROUNDS.md, "Merge inputs", step by step. It reads words about which bytes
are there, who is accused, and the bytes; nothing that a verifier says of a seat's work keeps or
costs its weight, but an open accusation within the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from atoll.protocol.checks import Gram, Named, name_odd, other_directions
from atoll.protocol.manifest import Manifest, RobustSpec
from atoll.protocol.words import Bitmap, SeatIndex, bits, to_bitmap

PARTIAL: Final = (3, 4)
"""A seat that did less than this part of a round's segments is paid for them, and not merged."""
_NOBODY: Final = Bitmap(0)


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """What the chain says about whose update may be merged.

    Attributes:
        revealed: bitmap of seats.
        fallen, accused: as of MERGE's opening, seats whose holder fell, or has an open *differs*.
        committee: members whose words count, silent ones too.
        words: of each that spoke, the seats whose update it has.
        segments: what each revealed seat did.
    """

    revealed: Bitmap
    committee: int
    words: Sequence[Bitmap]
    segments: Mapping[SeatIndex, int] = field(hash=False)
    fallen: Bitmap = _NOBODY
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
        available: whose update counts.
        named: findings of the checks, in their order.
        excluded: seats of weight 0, in the order in which they were found.
        merged: seats that the rule merges; nobody where there are too few updates.
        set_aside: those of them whose first moments are not merged, in the order of their finding.
        f_prime: bad updates that the rule bears.
    """

    available: tuple[SeatIndex, ...]
    named: tuple[Named, ...]
    excluded: tuple[SeatIndex, ...]
    merged: tuple[SeatIndex, ...]
    set_aside: tuple[SeatIndex, ...]
    f_prime: int


def had(words: Iterable[Bitmap], committee: int, revealed: Bitmap) -> Bitmap:
    """Seats that more than half of the committee have, silent members counted as not having."""
    votes = _votes(words)
    return to_bitmap(seat for seat in bits(revealed) if 2 * votes.get(seat, 0) > committee)


def is_settled_who_is_had(words: Sequence[Bitmap], committee: int, revealed: Bitmap) -> bool:
    """Whether no word that is still to come can change `had`."""
    votes, silent = _votes(words), committee - len(words)
    return all(
        2 * votes.get(seat, 0) > committee or 2 * (votes.get(seat, 0) + silent) <= committee
        for seat in bits(revealed)
    )


def _votes(words: Iterable[Bitmap]) -> dict[int, int]:
    votes: dict[int, int] = {}
    for word in words:
        for seat in bits(word):
            votes[seat] = votes.get(seat, 0) + 1
    return votes


def is_whole_enough(done: int, segments: int) -> bool:
    """Whether an update of so many segments is merged."""
    part, whole = PARTIAL
    return done * whole >= segments * part


def candidates(facts: MergeFacts, terms: MergeTerms) -> tuple[SeatIndex, ...]:
    """Seats whose update counts if its bytes are canonical."""
    there = had(facts.words, facts.committee, facts.revealed) & ~facts.fallen
    seats = map(SeatIndex, bits(there))
    return tuple(s for s in seats if is_whole_enough(facts.segments[s], terms.segments))


def merge_inputs(
    facts: MergeFacts, decoded: Sequence[SeatIndex], grams: Sequence[Gram], terms: MergeTerms
) -> MergeInputs:
    """The one answer to who is named, excluded and merged.

    Args:
        decoded: seats whose update's bytes are the revealed ones and canonical, ascending; those
            that are no candidates are passed over.
        grams: inner products of their integers, a row a seat, and those of their first moments,
            where updates have them; nothing for fp32 updates: nobody is named then.
    """
    possible = set(candidates(facts, terms))
    rows = [row for row, seat in enumerate(decoded) if seat in possible]
    available = tuple(decoded[row] for row in rows)
    f = terms.robust.f
    named: tuple[Named, ...] = ()
    if grams:
        parts = [[[gram[i][j] for j in rows] for i in rows] for gram in grams]
        done = [facts.segments[seat] for seat in available]
        named = name_odd(available, parts, done, kappa=terms.robust.kappa, f=f)
    room = min(f, len(available) - terms.minimum)
    if room < 0:
        return MergeInputs(available, named, (), (), (), 0)
    accused = (seat for seat in available if facts.accused >> seat & 1)
    excluded = tuple(dict.fromkeys((*accused, *(found.seat for found in named))))[:room]
    merged = tuple(seat for seat in available if seat not in excluded)
    spare = min(f, len(merged) - terms.minimum)
    set_aside = _set_aside(decoded, merged, grams[1:])[:spare]
    return MergeInputs(available, named, excluded, merged, set_aside, f)


def _set_aside(
    decoded: Sequence[SeatIndex], merged: Sequence[SeatIndex], of_moments: Sequence[Gram]
) -> tuple[SeatIndex, ...]:
    """Merged seats whose first moments point elsewhere, by the inner products of merged ones."""
    rows = [row for row, seat in enumerate(decoded) if seat in merged]
    parts = ([[gram[i][j] for j in rows] for i in rows] for gram in of_moments)
    return tuple(seat for part in parts for seat in other_directions(merged, part))
