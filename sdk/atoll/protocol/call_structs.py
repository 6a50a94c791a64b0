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
class Due:
    job_id: JobId
    role: Role
    id: HolderId
    to: RoundIndex
