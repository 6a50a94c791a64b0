"""Structs that calls to the contracts take, named and ordered as in the ABI.

Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
    HolderId,
    JobId,
    Reveal,
    Role,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Certified:
    verdict: Verdict
    accounts: tuple[Address, ...]
    certificate: bytes


@dataclass(frozen=True, slots=True)
class Later:
    seat: SeatIndex
    commitment: Digest


@dataclass(frozen=True, slots=True)
class Shown:
    job_id: JobId
    round: RoundIndex
    seat: SeatIndex
    id: HolderId
    record: RoundRecord
    before: Digest
    later: tuple[Later, ...]
    reveal: Reveal


@dataclass(frozen=True, slots=True)
class Having:
    record: RoundRecord
    next: RoundRecord
    committee_seed: Digest
    slots: bytes
    has: tuple[Bitmap, ...]
    late: tuple[HolderId, ...]


@dataclass(frozen=True, slots=True)
class Case:
    job_id: JobId
    round: RoundIndex
    salt: Digest
    record: RoundRecord
    verdict: Verdict
    statement: bytes
    shape: bytes
    leaves: int
    path: tuple[Digest, ...]
    signers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Commitment:
    account: Address
    checkpoints: Digest
    update_root: Digest
    key_hash: Digest
    salt: Digest


@dataclass(frozen=True, slots=True)
class Piece:
    data: bytes
    path: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    seat: SeatIndex
    committed: Commitment
    size: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class ShownRows:
    job_id: JobId
    round: RoundIndex
    record: RoundRecord
    shape: bytes
    leaves: int
    path: tuple[Digest, ...]
    section: int
    index: int
    reveals: tuple[Later, ...]
    updates: tuple[Opened, ...]


@dataclass(frozen=True, slots=True)
class Coordinate:
    section: int
    index: int
    size: int
    merged: Piece


@dataclass(frozen=True, slots=True)
class RoundOpening:
    parts: bytes
    exponents: bytes
    header: bytes
    path: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Due:
    job_id: JobId
    role: Role
    id: HolderId
    to: RoundIndex
