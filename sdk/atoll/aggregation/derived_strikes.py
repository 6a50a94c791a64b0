"""Whether what a merge statement says follows from the rest of it, and from the round's opening.

Rule of this file: what `contracts/src/libraries/Derived.sol` computes. SPEC-ROUNDS.md, 7.
"""

from __future__ import annotations

from dataclasses import replace

from atoll.aggregation.rounding import LIMIT
from atoll.aggregation.stated_merge import MergedRows, groups_follow, is_gram, moved_by
from atoll.errors import MalformedUpdate
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.moments import Moments
from atoll.numerics.sections import UpdateLayout
from atoll.numerics.state import GlobalState
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_statement import MergeStatement, SectionStatement
from atoll.protocol.types import bits

_EXPONENTS = 2
"""Their digest's number among the parts of a state's."""


def are_groups(statement: MergeStatement, layout: UpdateLayout, manifest: Manifest) -> bool:
    """Whether these can be inner products of vectors, and groups are what follows from them."""
    sections, rows = _sections(statement), (statement.merged, statement.heard)
    mergeable = bits(statement.mergeable)
    return all(
        _is_within(section, vector)
        and is_gram(section.gram)
        and groups_follow(section, MergedRows(mergeable, merged, statement.f_prime), manifest)
        for section, vector, merged in zip(sections, layout.vectors, rows, strict=False)
    )


def are_exponents(statement: MergeStatement, state: GlobalState, manifest: Manifest) -> bool:
    """Whether a statement's exponents, and those of the next state's digest, are what its votes
    make of those of the state that its round opened with, whose tensors need not be here.
    """
    known = (state.sent_part(manifest.codec).exponents, state.moment_exponents)
    moves = list[dict[str, int]]()
    for section, exponents in zip(_sections(statement), known, strict=False):
        try:
            moved = moved_by(section, exponents, manifest)
        except MalformedUpdate:
            return False
        if moved != section.exponents:
            return False
        names = Layout.of(dict.fromkeys(exponents, ())).names
        moves.append(dict(zip(names, moved, strict=True)))
    after = replace(state, exponents=state.exponents | moves[0])
    if len(moves) > 1:
        moments = Moments(m_exponents=dict(state.moment_exponents))
        after = replace(after, moment_exponents=moves[1], moments=moments)
    return sha256(after.exponent_bytes()) == statement.parts[_EXPONENTS]


def _sections(statement: MergeStatement) -> tuple[SectionStatement, ...]:
    first = () if statement.first is None else (statement.first,)
    return (statement.delta, *first)


def _is_within(section: SectionStatement, vector: Layout) -> bool:
    """Whether no square is more than rows of that many values can have."""
    return all(row[i] <= LIMIT * LIMIT * vector.total for i, row in enumerate(section.gram))
