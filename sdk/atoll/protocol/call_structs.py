"""Structs that calls to the contracts take, named and ordered as in the ABI.

Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.words import (
    Address,
    Bitmap,
    Digest,
    Facts,
    HolderId,
    JobId,
    Reveal,
    Role,
    RoundIndex,
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
    facts: Facts
    before: Digest
    later: tuple[Later, ...]
    reveal: Reveal


@dataclass(frozen=True, slots=True)
class Having:
    facts: Facts
    next: Facts
    committee_seed: Digest
    places: bytes
    has: tuple[Bitmap, ...]
    late: tuple[HolderId, ...]


@dataclass(frozen=True, slots=True)
class Due:
    job_id: JobId
    role: Role
    id: HolderId
    to: RoundIndex
