"""The names and numbers that every part of Atoll shares.

Rule of this file: no behaviour beyond construction; enum values equal those of
`contracts/src/types/Types.sol`, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NewType, TypeAlias

JobId = NewType("JobId", int)
RoundIndex = NewType("RoundIndex", int)
Attempt = NewType("Attempt", int)
SeatIndex = NewType("SeatIndex", int)
VerifierIndex = NewType("VerifierIndex", int)
SegmentIndex = NewType("SegmentIndex", int)
Address = NewType("Address", str)
"""EIP-55 checksummed."""
Digest = NewType("Digest", bytes)
"""32 bytes: SHA-256 for content, keccak-256 for what the contract checks."""
Bitmap = NewType("Bitmap", int)
"""256 bits; bit i speaks of seat, verifier or report i."""
Wei = NewType("Wei", int)
NumericsMode: TypeAlias = Literal["exact", "native", "tolerant"]
"""How a replay is compared with its trace."""

TOKEN = 10**18
"""One whole token, or one coin of the chain, in wei."""
ZERO_DIGEST = Digest(bytes(32))
NO_SEGMENT = SegmentIndex(0xFFFF)
"""The segment of a report that is not about one segment."""


class Role(IntEnum):
    PROVIDER = 0
    VERIFIER = 1


class JobStatus(IntEnum):
    NONE = 0
    OPEN = 1
    ACTIVE = 2
    HALTED = 3
    DONE = 4
    CANCELLED = 5
    EXPIRED = 6

    @property
    def is_closed(self) -> bool:
        """Whether no round will run any more: what is owed is still paid."""
        return self in {JobStatus.DONE, JobStatus.CANCELLED, JobStatus.EXPIRED}


class Phase(IntEnum):
    WAITING = 0
    SEEDING = 1
    TRAIN = 2
    REVEAL = 3
    DRAW = 4
    REPORT = 5
    CONFIRM = 6
    ATTEST = 7
    HALTED = 8
    CLOSED = 9


class Fault(IntEnum):
    NONE = 0
    NO_COMMIT = 1
    NO_REVEAL = 2
    WITHHELD = 3
    WRONG_REPLAY = 4
    WRONG_LINK = 5
    MALFORMED = 6
    OUT_OF_TOLERANCE = 7
    """A tolerant replay lies too far away: never confirmed, so nobody is slashed for it."""


class Outcome(IntEnum):
    OPEN = 0
    CONFIRMED = 1
    REFUTED = 2
    UNRESOLVED = 3
    UNFETCHABLE = 4
    ANSWERED = 5
    WITHDRAWN = 6


class Offence(IntEnum):
    SEAT_MISSED = 0
    REPORT = 1
    VERIFIER_MISSED = 2
    VERIFIER_CONTRADICTED = 3


@dataclass(frozen=True, slots=True)
class Domain:
    """Where a signature or commitment is valid: one rounds contract on one chain."""

    chain_id: int
    rounds: Address


@dataclass(frozen=True, slots=True)
class Slot:
    """(job, round) in a domain; the seed that a message was made for completes it."""

    domain: Domain
    job: JobId
    round: RoundIndex


@dataclass(frozen=True, slots=True)
class BlockRef:
    """One block of one fork; `timestamp` in unix seconds is the chain's clock."""

    number: int
    hash: Digest
    timestamp: int


@dataclass(frozen=True, slots=True)
class Terms:
    """What the contract enforces of a job; field order is the ABI's. Windows in seconds."""

    rounds: int
    seats: int
    min_providers: int
    min_verifiers: int
    max_verifiers: int
    quorum_numerator: int
    quorum_denominator: int
    attempts: int
    auditors: int
    beacon_delay: int
    train_seconds: int
    reveal_seconds: int
    report_seconds: int
    confirm_seconds: int
    attest_seconds: int
    dispute_seconds: int
    expiry: int
    steps: int
    tokens_per_step: int
    price_per_token: int
    verifier_fee: int
    provider_bond: int
    verifier_bond: int
    report_bond: int
    program: Digest
    """Root over a step's and its link's operations, which the judge decides by; zero: no judge."""


@dataclass(frozen=True, slots=True)
class Reveal:
    trace_root: Digest
    update_root: Digest
    optimiser_root: Digest
    steps: int
    reset: bool
    salt: bytes
    update_cid: bytes
    trace_cid: bytes


@dataclass(frozen=True, slots=True)
class Finding:
    """Segments (bitmap) of a seat whose replay gave every digest of the trace."""

    seat: SeatIndex
    segments: int


@dataclass(frozen=True, slots=True)
class Report:
    """`evidence`: SHA-256 of the missing block for WITHHELD, else what the verifier computed."""

    seat: SeatIndex
    segment: SegmentIndex
    fault: Fault
    evidence: Digest


@dataclass(frozen=True, slots=True)
class Verdict:
    evidence_root: Digest
    cut_block_hash: Digest
    merged_digest: Digest
    merged_cid: bytes
    claims_root: Digest
    cumulative_total: int
    tokens_root: Digest
    tokens_total: int
    parent: Digest


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the contract derived from ballots and votes: bitmaps of seats, and of verifiers."""

    revealed: Bitmap
    accepted: Bitmap
    rejected: Bitmap
    unresolved: Bitmap
    caught: Bitmap
    dutiful: Bitmap


def bits(bitmap: int) -> list[int]:
    """Indices of the set bits, ascending."""
    return [i for i in range(bitmap.bit_length()) if bitmap >> i & 1]


def to_bitmap(indices: Iterable[int]) -> Bitmap:
    """The bitmap with exactly these bits set."""
    result = 0
    for index in indices:
        result |= 1 << index
    return Bitmap(result)
