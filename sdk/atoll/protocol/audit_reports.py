"""What an auditor commits to of its replays, and what shows that it did them.

Rule of this file: an audit report is one hash until everybody's is in. Opened, it has for each of
its seats one hash of all its plain words, behind the auditor's address, which only a replay tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

from atoll.protocol.hashing import hash_in_slot, keccak256
from atoll.protocol.words import Address, Digest, HolderId, SeatIndex, Slot

FINE: Final = 0xFFFF
"""Where a duty names no segment: all of the seat's round is as it was revealed."""
DUTY_BYTES: Final = 35


def fine_word(account: Address, words: Sequence[Digest]) -> Digest:
    """What an account says of a seat with these plain words; another's says something else."""
    return keccak256(bytes.fromhex(account[2:]) + b"".join(words))


@dataclass(frozen=True, slots=True)
class Duty:
    """What an auditor says of one seat's round.

    Attributes:
        at: FINE, or the first segment that it computed otherwise; of the link, their number.
        word: `fine_word`, or the auditor's own closing digest (of the link: its update root).
    """

    seat: SeatIndex
    at: int
    word: Digest

    @classmethod
    def fine(cls, seat: SeatIndex, account: Address, words: Sequence[Digest]) -> Self:
        """Everything as revealed, from the plain words of a replay."""
        return cls(seat, FINE, fine_word(account, words))

    @property
    def is_fine(self) -> bool:
        """Whether it accuses nobody."""
        return self.at == FINE


@dataclass(frozen=True, slots=True)
class Body:
    """An audit report's duties, seats ascending, one at least."""

    duties: tuple[Duty, ...]

    def to_bytes(self) -> bytes:
        """As the contract reads it."""
        return b"".join(
            bytes([duty.seat]) + duty.at.to_bytes(2, "big") + duty.word for duty in self.duties
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises ValueError on what the contract would refuse to open."""
        if not data or len(data) % DUTY_BYTES:
            raise ValueError(f"{len(data)} bytes are no duties")
        parts = [data[at : at + DUTY_BYTES] for at in range(0, len(data), DUTY_BYTES)]
        duties = tuple(
            Duty(SeatIndex(part[0]), int.from_bytes(part[1:3], "big"), Digest(part[3:]))
            for part in parts
        )
        if any(after.seat <= before.seat for before, after in pairwise(duties)):
            raise ValueError("the seats do not ascend")
        return cls(duties)

    @property
    def hash(self) -> Digest:
        """What an audit report commits to."""
        return keccak256(self.to_bytes())

    def of(self, seat: SeatIndex) -> Duty | None:
        """What it says of a seat."""
        return next((duty for duty in self.duties if duty.seat == seat), None)


def salt_message(slot: Slot, audit_seed: Digest, auditor: HolderId) -> Digest:
    """What an auditor's account signs, as it is, for an audit report's salt: `leaves.key_of`."""
    types = ("bytes32", "uint32")
    return hash_in_slot("atoll.audit-report-salt.v1", slot, types, (audit_seed, auditor))


def audit_report_hash(
    slot: Slot, audit_seed: Digest, auditor: tuple[HolderId, Address], body: Digest, salt: Digest
) -> Digest:
    """What is said before AUDIT ends; `body` is the hash of its bytes."""
    types = ("bytes32", "uint32", "address", "bytes32", "bytes32")
    return hash_in_slot("atoll.audit-report.v1", slot, types, (audit_seed, *auditor, body, salt))
