"""What a certificate's statement contradicts by itself, and how a strike is announced.

Rule of this file: what `contracts/src/libraries/Statements.sol` says of a statement, and
`Strikes.sol` of announcements; SPEC-ROUNDS.md, 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from atoll.errors import MalformedUpdate
from atoll.protocol.call_structs import Piece, RoundOpening
from atoll.protocol.hashing import hash_fields, sha256
from atoll.protocol.merge_statement import MAX_STATEMENT, MergeStatement, StatementShape
from atoll.protocol.types import (
    NO_BITS,
    Address,
    Bitmap,
    Digest,
    JobId,
    RoundIndex,
    SeatIndex,
    Verdict,
    bits,
)

_STATE: Final = b"atoll.global-state.v2"
_ANNOUNCED: Final = "atoll.strike.v1"
AHEAD: Final = 16
"""Blocks from an announcement to its strike: whoever copies one at a coordinate announces later.

At a statement, a seat, what is derived or nothing merged, anybody may have announced one for every
round beforehand, and copies it in time.
"""
ROWS_BYTES: Final = 100_000
"""That rows take in one call: with the rest of it a transaction is within what nodes take."""
_OPENED: Final = 10 * 32
_PIECE: Final = 7 * 32
"""Bytes of an ABI beside a piece's data and path."""


@dataclass(frozen=True, slots=True)
class CertifiedMerge:
    """What chain, certificate and manifest say of a round's merge.

    Attributes:
        f: that the rule bears.
        available: seats whose updates a majority of the committee had.
        owed: those of them that did enough and were not slashed: each is merged or excluded.
    """

    round: int
    f: int
    available: Bitmap
    verdict: Verdict
    shape: StatementShape
    owed: Bitmap = NO_BITS


def sound_statement(data: bytes, about: CertifiedMerge) -> MergeStatement | None:
    """The statement of these bytes; None where no merge of this round has it."""
    try:
        statement = MergeStatement.from_bytes(data, about.shape)
    except MalformedUpdate:
        return None
    seats, f, verdict = statement, about.f, about.verdict
    is_of_round = (seats.round, seats.f_prime) == (about.round, f)
    is_nested = seats.merged == seats.mergeable & ~seats.excluded
    is_certified = (
        not seats.mergeable & ~about.available
        and seats.excluded == verdict.excluded
        and seats.merged.bit_count() == verdict.merged
        and state_digest(seats.round + 1, seats.parts) == verdict.state
    )
    left_out = max(seats.excluded.bit_count(), seats.momentum_excluded.bit_count())
    is_borne = left_out <= f and seats.heard.bit_count() >= 2 * f + 1
    return statement if is_of_round and is_nested and is_certified and is_borne else None


def missing_seat(statement: MergeStatement, about: CertifiedMerge) -> StrikePlace | None:
    """A seat whose update had to be merged or excluded, and is neither."""
    missing = bits(Bitmap(about.owed & ~statement.mergeable))
    return StrikePlace(seat=SeatIndex(missing[0])) if missing else None


def is_contradiction(about: CertifiedMerge) -> bool:
    """Whether a certificate of a merge of nobody says what no such merge has."""
    return any(about.verdict.statement) or about.verdict.excluded != NO_BITS


def had_to_merge(about: CertifiedMerge) -> bool:
    """Whether so many updates are owed that some are merged."""
    return about.owed.bit_count() >= 2 * about.f + 1


def owes_statement(about: CertifiedMerge) -> bool:
    """Whether a merge of a job whose merges are stated must have a statement.

    One of more than a block has none, and nobody can be blamed where seats could make it one.
    """
    shape, seats = about.shape, about.available.bit_count()
    sections = (shape.tensors, *([shape.moments] if shape.moments else []))
    sizes = (4 * seats * (seats + 1) + (32 + n) * seats + 2 * n for n in sections)
    return about.verdict.merged > 0 and _FIXED + sum(sizes) <= MAX_STATEMENT


_FIXED: Final = 158 + 5 * 32 + 32 + 36
"""Bytes of a statement beside what it says of sections."""


def state_digest(round: int, parts: Sequence[bytes]) -> Digest:
    """A round's global state's, of its five parts."""
    return sha256(b"".join([_STATE, round.to_bytes(8, "big"), *parts]))


@dataclass(frozen=True, slots=True)
class StrikePlace:
    """Where a merge is wrong: a coordinate of a section (0 of Δ, 1 of first moments, 2 of factored
    second moments), a seat that is missing, what is derived in its statement, or that nothing was
    merged, or the state of such a round. Of a statement that is not sound, none of these.
    """

    section: int | None = None
    index: int = 0
    seat: SeatIndex | None = None
    is_nothing: bool = False
    is_derived: bool = False

    @property
    def number(self) -> int:
        """What a commitment has of it."""
        if self.section is not None:
            return ((self.section + 1) << 64) + self.index
        # A round that merged nothing has no statement in which something could be derived.
        if self.seat is None:
            return int(self.is_nothing or self.is_derived)
        return 2 + self.seat


@dataclass(frozen=True, slots=True)
class ShownUpdate:
    """The pieces of a seat's update that have a coordinate; of no seat, of the merged update."""

    seat: int
    size: int
    pieces: tuple[Piece, ...]


def parts_of(updates: Sequence[ShownUpdate]) -> Iterator[tuple[ShownUpdate, ...]]:
    """Rows in their order, in each part as many as one call shows: of the same rows the same."""
    part: list[ShownUpdate] = []
    room = ROWS_BYTES
    for update in updates:
        pieces = (_PIECE + len(each.data) + 32 * len(each.path) for each in update.pieces)
        size = _OPENED + sum(pieces)
        if part and size > room:
            yield tuple(part)
            part, room = [], ROWS_BYTES
        part.append(update)
        room -= size
    if part:
        yield tuple(part)


@dataclass(frozen=True, slots=True)
class CarriedState:
    """What shows which state a round opened from.

    Attributes:
        parts: of its digest.
        header, path: of the job's program, which names round 0's; empty of later rounds.
    """

    parts: bytes
    header: bytes = b""
    path: tuple[Digest, ...] = ()


@dataclass(frozen=True, slots=True)
class StrikeProof:
    """What a merge is struck by, beside what the chain says of its round.

    Attributes:
        statement: its bytes; empty where there is none.
        shape, leaves, path: the last leaf of the job's program, of how many, and its path.
        updates: of the rows that are merged, which are shown before; none where the statement
            itself is wrong.
        merged: the merged update's; None likewise.
        owed: of a round that falsely merged nothing, seats that had to be merged.
        carried: of one that merged nothing, and has another state than it opened from; None else.
        opening: of the state that the round opened with, where next exponents are wrong.
    """

    place: StrikePlace
    statement: bytes
    shape: bytes
    leaves: int
    path: tuple[Digest, ...]
    updates: tuple[ShownUpdate, ...] = ()
    merged: ShownUpdate | None = None
    owed: Bitmap = NO_BITS
    carried: CarriedState | None = None
    opening: RoundOpening | None = None


@dataclass(frozen=True, slots=True)
class Strikes:
    """The contract that takes them."""

    chain_id: int
    contract: Address

    def commitment(
        self, by: Address, job: JobId, round: RoundIndex, place: StrikePlace, salt: Digest
    ) -> Digest:
        """What the account announces of a strike: nobody else strikes by this announcement."""
        types = ("string", "uint256", "address", "address", "uint256", "uint32", "uint256")
        values = (_ANNOUNCED, self.chain_id, self.contract, by, job, round, place.number, salt)
        return hash_fields((*types, "bytes32"), values)
