"""What an auditor commits to of its replays, and what shows that it did them.

Rule of this file: a ballot is one hash until everybody's is in; opened, it has for each of its
seats the hash of every plain word with the auditor's address, which only a replay tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from atoll.law.hashing import hash_fields, hash_in_slot, tag
from atoll.law.merkle import merkle_proof, merkle_root
from atoll.law.words import ZERO_DIGEST, Address, Digest, SeatIndex, Slot

FINE: Final = 0xFFFF
"""Where a seat's leaf names no segment: all of it is as it was revealed."""


def told(member: Address, word: Digest) -> Digest:
    """A word as this auditor's ballot has it, so that nobody can copy it from another's."""
    return hash_fields(("address", "bytes32"), (member, word))


@dataclass(frozen=True, slots=True)
class Finding:
    """What an auditor says of one seat's round.

    Attributes:
        words: `told` of each segment, in order.
        differs: the first segment that it computed otherwise, the number of segments for the
            update, or FINE.
        digest: its own, of what differs.
    """

    seat: SeatIndex
    words: tuple[Digest, ...]
    differs: int = FINE
    digest: Digest = ZERO_DIGEST

    @classmethod
    def fine(cls, seat: SeatIndex, member: Address, words: Sequence[Digest]) -> Self:
        """Everything as revealed, from the plain words of a replay."""
        return cls(seat, tuple(told(member, word) for word in words))

    @property
    def leaf(self) -> Digest:
        """Of the ballot's tree."""
        return hash_fields(
            ("bytes32", "uint16", "uint16", "bytes32", "bytes32[]"),
            (tag("atoll.duty.v1"), self.seat, self.differs, self.digest, list(self.words)),
        )

    def is_right(self, member: Address, words: Sequence[Digest]) -> bool:
        """Whether it tells the words that the seat's key has shown."""
        return self.words == tuple(told(member, word) for word in words)


@dataclass(frozen=True, slots=True)
class Ballot:
    """A member's findings of a round, seats ascending, one at least."""

    member: Address
    findings: tuple[Finding, ...]
    salt: Digest

    @property
    def root(self) -> Digest:
        """Over the findings."""
        return merkle_root([finding.leaf for finding in self.findings])

    def hash(self, slot: Slot, audit_seed: Digest) -> Digest:
        """What is said before AUDIT ends."""
        return hash_in_slot(
            "atoll.ballot.v1",
            slot,
            ("bytes32", "address", "bytes32", "bytes32"),
            (audit_seed, self.member, self.root, self.salt),
        )

    def proof(self, seat: SeatIndex) -> tuple[int, list[Digest]]:
        """Where a seat's finding stands, and its path. Raises KeyError where there is none."""
        for index, finding in enumerate(self.findings):
            if finding.seat == seat:
                return index, merkle_proof([each.leaf for each in self.findings], index)
        raise KeyError(seat)
