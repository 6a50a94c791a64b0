"""The merge rules: what each needs and bears, by name (SPEC-MERGE.md, 4).

Rule of this file: who reads a rule's name asks here for a property of it. How it merges is in
`atoll.aggregation.rules`, which has a row for each of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import comb
from types import MappingProxyType
from typing import Final

MDA_SUBSETS: Final = 200_000
"""The most subsets that a minimum-diameter merge tries."""
_MIXING: Final = "nnm_"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a rule needs and bears.

    Attributes:
        base: its name without mixing, which `atoll.aggregation.rules` knows it by.
        mixes: whether nearest-neighbour mixing goes first.
        bears_faults: whether it bears any. If not, one seat can move the model at will: f is 0,
            nobody is named, and everybody is audited.
        more: updates that it needs beyond twice an f that is not 0.
        most_subsets: of n − f of n updates, where it tries each of them.
        is_plain_sum: whether it is the sum of all updates, which takes values of any size.
        compares: whether it reads the inner products of the updates, mixing apart.
        is_coordinatewise: whether a coordinate's result follows from the rows there, once it is
            known which of them are mixed: a merge by it is stated (SPEC-MERGE.md, 9).
        number: of a base that a contract applies at a coordinate, in a program's last leaf; 0 of
            others.
        is_sparse: whether it is for codecs whose updates have few senders a coordinate. These have
            no other rule, and it has no other codecs.
    """

    base: str
    mixes: bool = False
    bears_faults: bool = True
    more: int = 1
    most_subsets: int | None = None
    is_plain_sum: bool = False
    compares: bool = True
    is_coordinatewise: bool = False
    number: int = 0
    is_sparse: bool = False

    def minimum(self, f: int) -> int:
        """Updates that it needs to bear f faults."""
        return 2 * f + (self.more if f else 1)

    def tries_too_many(self, seats: int, f: int) -> bool:
        """Whether there would be more subsets of so many updates than it may try."""
        return self.most_subsets is not None and comb(seats, f) > self.most_subsets


_DENSE: Final = (
    Rule(
        "mean",
        bears_faults=False,
        is_plain_sum=True,
        compares=False,
        is_coordinatewise=True,
        number=1,
    ),
    Rule("median", compares=False, is_coordinatewise=True, number=2),
    Rule("trimmed_mean", compares=False, is_coordinatewise=True, number=3),
    Rule("geometric_median"),
    Rule("krum", more=3),
    Rule("multi_krum", more=3),
    Rule("centred_clip"),
    Rule("minimum_diameter", most_subsets=MDA_SUBSETS),
    Rule("norm_clip"),
)
_SPARSE: Final = (Rule("contributor_mean", bears_faults=False, compares=False, is_sparse=True),)
# Mixing replaces an update by the sum of its neighbours, so that behind it even a mean bears some.
_MIXED: Final = tuple(
    replace(rule, mixes=True, bears_faults=True, is_plain_sum=False) for rule in _DENSE
)

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {rule.base: rule for rule in (*_DENSE, *_SPARSE)}
    | {f"{_MIXING}{rule.base}": rule for rule in _MIXED}
)
"""By the name that a manifest has."""
