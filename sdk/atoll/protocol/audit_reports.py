"""What an auditor commits to of its replays, and what shows that it did them.

Rule of this file: an audit report is one hash until everybody's is in. Opened, it has for each of
its seats one hash of all its plain work_tags, behind the auditor's address, which only a replay
tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

from atoll.protocol.hashing import hash_in_round, keccak256
from atoll.protocol.typed_data import TypedField, TypedMessage, in_round
from atoll.protocol.types import Address, Digest, HolderId, RoundId, SeatIndex

VALID: Final = 0xFFFF
"""Where an entry names no segment: all of the seat's round is as it was revealed."""
ENTRY_BYTES: Final = 35


def valid_digest(account: Address, work_tags: Sequence[Digest]) -> Digest:
    """What an account says of a seat with these plain work_tags; another's says something else."""
    return keccak256(bytes.fromhex(account[2:]) + b"".join(work_tags))


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What an auditor says of one seat's round.

    Attributes:
        at: VALID, or the first segment that it computed otherwise; of the update proof, their
            number.
        digest: `valid_digest`, or the auditor's own closing digest (of the update proof: its update
            root).
    """

    seat: SeatIndex
    at: int
    digest: Digest

    @classmethod
    def valid(cls, seat: SeatIndex, account: Address, work_tags: Sequence[Digest]) -> Self:
        """Everything as revealed, from the plain work_tags of a replay."""
        return cls(seat, VALID, valid_digest(account, work_tags))

    @property
    def is_valid(self) -> bool:
        """Whether it accuses nobody."""
        return self.at == VALID


@dataclass(frozen=True, slots=True)
class AuditReport:
    """An audit report's entries, seats ascending, one at least."""

    entries: tuple[AuditEntry, ...]

    def to_bytes(self) -> bytes:
        """As the contract reads it."""
        return b"".join(
            bytes([entry.seat]) + entry.at.to_bytes(2, "big") + entry.digest
            for entry in self.entries
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises ValueError on what the contract would refuse to open."""
        if not data or len(data) % ENTRY_BYTES:
            raise ValueError(f"{len(data)} bytes are no entries")
        parts = [data[at : at + ENTRY_BYTES] for at in range(0, len(data), ENTRY_BYTES)]
        entries = tuple(
            AuditEntry(SeatIndex(part[0]), int.from_bytes(part[1:3], "big"), Digest(part[3:]))
            for part in parts
        )
        if any(after.seat <= before.seat for before, after in pairwise(entries)):
            raise ValueError("the seats do not ascend")
        return cls(entries)

    @property
    def hash(self) -> Digest:
        """What an audit report commits to."""
        return keccak256(self.to_bytes())

    def of(self, seat: SeatIndex) -> AuditEntry | None:
        """What it says of a seat."""
        return next((entry for entry in self.entries if entry.seat == seat), None)


def salt_message(round_id: RoundId, audit_seed: Digest, auditor: HolderId) -> TypedMessage:
    """What an auditor's account signs for an audit report's salt
    (`checkpoint_commitments.key_of`); nobody else may see that."""
    return in_round(
        round_id,
        "SecretOfAuditReport",
        TypedField("bytes32", "seed", audit_seed),
        TypedField("uint32", "id", auditor),
    )


def audit_report_hash(
    round_id: RoundId,
    audit_seed: Digest,
    auditor: HolderId,
    account: Address,
    *,
    body: Digest,
    salt: Digest,
) -> Digest:
    """What is said before AUDIT ends; `body` is the hash of its bytes."""
    types = ("bytes32", "uint32", "address", "bytes32", "bytes32")
    return hash_in_round(
        "atoll.audit-report.v1", round_id, types, (audit_seed, auditor, account, body, salt)
    )
