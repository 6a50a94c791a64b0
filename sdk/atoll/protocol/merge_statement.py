"""What a committee says of a merge in one file, the hash of which its certificate has.

Rule of this file: SPEC-MERGE.md, 9. Every length follows from the layout and the bitmaps, so that a
contract is shown one place of it, and nothing that a sender wrote is parsed into a size.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from atoll.errors import MalformedUpdate
from atoll.protocol.checks import Gram
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Bitmap, Digest, bits

TAG: Final = b"atoll.merge-statement.v1"
CID_BYTES: Final = 36
"""Of a CIDv1 of SHA-256, as every file of more than a block or of one has it."""
MAX_STATEMENT: Final = 1 << 20
"""One block, whose name follows from its hash; a merge of more to say has no statement."""
_WORD: Final = 32
_PARTS: Final = 5


def is_stated(manifest: Manifest) -> bool:
    """Whether merges have a statement: those that are rounded, and by a rule whose result at a
    coordinate follows from the rows there and their groups.
    """
    is_rounded = manifest.codec.properties.fineness is not None
    return is_rounded and manifest.robust.properties.is_coordinatewise


def update_cid_of(statement: bytes) -> bytes:
    """Where the merged update of a statement that we made lies."""
    return statement[-CID_BYTES:]


def stated_parts(statement: bytes) -> tuple[Digest, ...]:
    """Those of the next state's digest, of a statement that is one."""
    tail = statement[-(_PARTS * _WORD + _WORD + CID_BYTES) :]
    return tuple(Digest(tail[at : at + _WORD]) for at in range(0, _PARTS * _WORD, _WORD))


@dataclass(frozen=True, slots=True)
class StatementShape:
    """What a statement's lengths follow from, beside its seats: how many tensors are sent, and how
    many first moments.
    """

    tensors: int
    moments: int


@dataclass(frozen=True, slots=True)
class SectionStatement:
    """What is said of one of the two sections that the rule merges.

    Attributes:
        gram: inner products of the mergeable seats' rows.
        groups: of each row that is merged, the seats that are mixed in its place.
        votes: of each such row, about every tensor's exponent.
        exponents: the next round's, of these tensors.
    """

    gram: Gram
    groups: tuple[Bitmap, ...]
    votes: tuple[tuple[int, ...], ...]
    exponents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MergeStatement:
    """All that decided a merge beside the updates, and where its result lies.

    Attributes:
        round, f_prime: as `MergeInputs` and the state that the round opened with have them.
        mergeable, excluded, merged, momentum_excluded: seats, as `MergeInputs` names them.
        delta: of what moves the model.
        first: of the first moments; None where updates have none.
        parts: of the next state's digest, in the order of `GlobalState.roots`.
        update_root, update_cid: of the merged update.
    """

    round: int
    f_prime: int
    mergeable: Bitmap
    excluded: Bitmap
    merged: Bitmap
    momentum_excluded: Bitmap
    delta: SectionStatement
    first: SectionStatement | None
    parts: tuple[Digest, ...]
    update_root: Digest
    update_cid: bytes

    @property
    def heard(self) -> Bitmap:
        """Merged seats whose first moments are."""
        return Bitmap(self.merged & ~self.momentum_excluded)

    @property
    def digest(self) -> Digest:
        """What the verdict has of it, and the name of its block."""
        return sha256(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The canonical bytes."""
        maps = (self.mergeable, self.excluded, self.merged, self.momentum_excluded)
        sections = [self.delta, *([] if self.first is None else [self.first])]
        return b"".join(
            [
                TAG,
                struct.pack(">IH", self.round, self.f_prime),
                *(each.to_bytes(_WORD, "big") for each in maps),
                *(_section_bytes(each) for each in sections),
                *self.parts,
                self.update_root,
                self.update_cid,
            ]
        )

    @classmethod
    def from_bytes(cls, data: bytes, shape: StatementShape) -> Self:
        """Parses canonical bytes.

        Raises:
            MalformedUpdate: they are not canonical, or not of this shape.
        """
        reader = _Reader(data)
        if reader.take(len(TAG)) != TAG:
            raise MalformedUpdate("these bytes are no merge statement")
        round, f_prime = struct.unpack(">IH", reader.take(6))
        mergeable, excluded, merged, other = (reader.bitmap() for _ in range(4))
        if excluded & ~mergeable or merged & ~mergeable or other & ~merged or not merged:
            raise MalformedUpdate("a merge statement's seats are not within one another")
        n, first = mergeable.bit_count(), None
        delta = reader.section(n, merged, shape.tensors)
        if shape.moments:
            first = reader.section(n, Bitmap(merged & ~other), shape.moments)
        parts = tuple(Digest(reader.take(_WORD)) for _ in range(_PARTS))
        root, cid = Digest(reader.take(_WORD)), reader.take(CID_BYTES)
        if reader.left:
            raise MalformedUpdate(f"{reader.left} bytes follow a merge statement")
        seats = (mergeable, excluded, merged, other)
        return cls(round, f_prime, *seats, delta, first, parts, root, cid)


def triangle(gram: Gram) -> bytes:
    """The rows of a symmetric matrix up to its diagonal, each number a big-endian int64."""
    return b"".join(struct.pack(f">{i + 1}q", *row[: i + 1]) for i, row in enumerate(gram))


def square(data: bytes, n: int) -> list[list[int]]:
    """The matrix of which `triangle` made n·(n + 1)/2 numbers."""
    numbers = iter(struct.unpack(f">{n * (n + 1) // 2}q", data))
    lower = [[next(numbers) for _ in range(i + 1)] for i in range(n)]
    return [[lower[max(i, j)][min(i, j)] for j in range(n)] for i in range(n)]


def triangle_bytes(n: int) -> int:
    """Of `triangle`, for n rows."""
    return 4 * n * (n + 1)


def _section_bytes(section: SectionStatement) -> bytes:
    groups = (each.to_bytes(_WORD, "big") for each in section.groups)
    votes = (struct.pack(f">{len(each)}b", *each) for each in section.votes)
    exponents = struct.pack(f">{len(section.exponents)}h", *section.exponents)
    return b"".join([triangle(section.gram), *groups, *votes, exponents])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise MalformedUpdate(f"a merge statement ends {size - self.left} bytes too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def bitmap(self) -> Bitmap:
        return Bitmap(int.from_bytes(self.take(_WORD), "big"))

    def section(self, n: int, rows: Bitmap, tensors: int) -> SectionStatement:
        merged: Sequence[int] = bits(rows)
        gram = square(self.take(triangle_bytes(n)), n)
        groups = tuple(self.bitmap() for _ in merged)
        votes = tuple(struct.unpack(f">{tensors}b", self.take(tensors)) for _ in merged)
        exponents = struct.unpack(f">{tensors}h", self.take(2 * tensors))
        return SectionStatement(gram, groups, votes, exponents)
