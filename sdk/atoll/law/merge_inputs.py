"""Whose updates make the next model: one function for naming, for duties and for the merge.

Rule of this file: SPEC.md section 12, "Merge inputs", step by step. Nothing a verifier says keeps a
seat's weight: a seat that stands out loses the round's weight whether or not it was replayed, so
that nobody gains by a replay that is not done, or only said to be done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from atoll.law.checks import (
    GRAVE_ALIGNMENT,
    GRAVE_ALIGNMENT_SPARSE,
    Gram,
    Named,
    name_odd,
)
from atoll.law.manifest import CONTRIBUTOR_MEAN, Manifest, RobustSpec
from atoll.law.words import Bitmap, SeatIndex, bits

FEW_UPDATES: Final = 2
"""With this many updates or fewer no rule can outvote anyone: each is audited in full."""
_KRUM: Final = frozenset({"krum", "multi_krum"})


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """What the chain says, as of some block, about whose update may be merged.

    Attributes:
        revealed, rejected, unresolved: bitmaps of seats; nobody is unresolved before the cut.
        caught: how many seats are caught.
        steps: what each revealed seat did.
    """

    revealed: Bitmap
    rejected: Bitmap
    unresolved: Bitmap
    caught: int
    steps: Mapping[SeatIndex, int] = field(hash=False)


@dataclass(frozen=True, slots=True)
class MergeTerms:
    """What the manifest says about it: `steps` are a whole round's."""

    steps: int
    min_providers: int
    robust: RobustSpec

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """The terms of a job."""
        return cls(manifest.inner.steps, manifest.terms.min_providers, manifest.robust)


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """Who takes part in a round's merge, and how. Seats ascend but in `named` and `left_out`.

    Attributes:
        available: whose update counts.
        named: findings of the checks, in their order.
        in_full: seats of which every segment is audited.
        left_out: seats of weight 0 for standing out, in the order in which they were found.
        merged: seats that the rule merges; nobody where there are too few updates.
        f_prime: bad updates that the rule bears.
    """

    available: tuple[SeatIndex, ...]
    named: tuple[Named, ...]
    in_full: tuple[SeatIndex, ...]
    left_out: tuple[SeatIndex, ...]
    merged: tuple[SeatIndex, ...]
    f_prime: int


def candidates(facts: MergeFacts, terms: MergeTerms) -> tuple[SeatIndex, ...]:
    """Seats whose update counts if its bytes are there and canonical."""
    standing = facts.revealed & ~facts.rejected & ~facts.unresolved
    return tuple(seat for s in bits(standing) if facts.steps[seat := SeatIndex(s)] == terms.steps)


def merge_inputs(
    facts: MergeFacts,
    decoded: Sequence[SeatIndex],
    gram: Gram | None,
    terms: MergeTerms,
    moment_gram: Gram | None = None,
) -> MergeInputs:
    """The one answer to who is named, audited in full, left out and merged.

    Args:
        decoded: seats whose update's bytes are the revealed ones and canonical, ascending; those
            that are no candidates are passed over.
        gram: inner products of their integers, a row a seat; None for fp32 updates, which have
            none: nobody is named then.
        moment_gram: the same of their first moments, where updates have them.
    """
    possible = set(candidates(facts, terms))
    rows = [row for row, seat in enumerate(decoded) if seat in possible]
    available = tuple(decoded[row] for row in rows)
    named: tuple[Named, ...] = ()
    if gram is not None:
        parts = [_part(each, rows) for each in (gram, moment_gram) if each is not None]
        named = _names(available, parts, terms.robust)
    odd = {found.seat for found in named}
    everyone = len(available) <= FEW_UPDATES
    in_full = tuple(seat for seat in available if everyone or seat in odd)
    if len(available) < terms.min_providers:
        return MergeInputs(available, named, in_full, (), (), 0)
    to_bear, spare = max(terms.robust.f - facts.caught, 1), _spare(terms.robust)
    room = max(0, min(to_bear, len(available) - 2 * to_bear - spare))
    grave = dict.fromkeys(found.seat for found in named if found.grave)
    left_out = tuple(grave)[:room]
    merged = tuple(seat for seat in available if seat not in left_out)
    borne = min(to_bear, max(0, (len(merged) - spare) // 2)) if len(merged) > FEW_UPDATES else 0
    return MergeInputs(available, named, in_full, left_out, merged, borne)


def _part(gram: Gram, rows: Sequence[int]) -> Gram:
    return [[gram[i][j] for j in rows] for i in rows]


def _names(
    seats: Sequence[SeatIndex], grams: Sequence[Gram], robust: RobustSpec
) -> tuple[Named, ...]:
    sparse = robust.rule == CONTRIBUTOR_MEAN
    grave = GRAVE_ALIGNMENT_SPARSE if sparse else GRAVE_ALIGNMENT
    return name_odd(seats, grams, kappa=robust.kappa, f=robust.f, grave_alignment=grave)


def _spare(robust: RobustSpec) -> int:
    """Updates that a rule needs beyond two for each bad one."""
    return 3 if robust.base in _KRUM else 1
