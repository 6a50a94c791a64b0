"""The names and numbers that every part of Atoll shares.

Rule of this file: no behaviour beyond construction; enum values equal those of
`contracts/src/types/Types.sol`, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NewType

JobId = NewType("JobId", int)
RoundIndex = NewType("RoundIndex", int)
SeatIndex = NewType("SeatIndex", int)
SlotIndex = NewType("SlotIndex", int)
"""A verifier's slot in a job's pool."""
HolderId = NewType("HolderId", int)
"""Who holds a seat or a slot: counted by job and role from 1, never used again."""
Address = NewType("Address", str)
"""EIP-55 checksummed."""
Digest = NewType("Digest", bytes)
"""32 bytes: SHA-256 for content, keccak-256 for what the contract checks."""
Bitmap = NewType("Bitmap", int)
"""256 bits; bit i speaks of seat or slot i."""
Wei = NewType("Wei", int)

TOKEN = 10**18
"""One coin of the chain in wei, and one token in the parts that a job file counts it in, whatever
its `decimals()` (`token_units`)."""
ZERO_DIGEST = Digest(bytes(32))
NO_BITS = Bitmap(0)
NO_HOLDER = HolderId(0)
"""What is credited to it, anybody may burn."""
NO_ROUND = RoundIndex(0xFFFFFFFF)
"""Of what has not happened, or has no end yet."""


class Role(IntEnum):
    PROVIDER = 0
    VERIFIER = 1


class JobStatus(IntEnum):
    NONE = 0
    OPEN = 1
    ACTIVE = 2
    DONE = 3
    CANCELLED = 4
    EXPIRED = 5

    @property
    def is_closed(self) -> bool:
        """Whether no round will run any more: what is owed is still paid."""
        return self in {JobStatus.DONE, JobStatus.CANCELLED, JobStatus.EXPIRED}


class Phase(IntEnum):
    WAITING = 0
    TRAIN = 1
    REVEAL = 2
    MERGE = 3
    CLOSED = 4


class MissedDuty(IntEnum):
    """What somebody did not do, and is penalised for."""

    SEAT = 0
    """No commit, no reveal, or short in two of three rounds running."""
    KEY = 1
    SILENCE = 2
    """No vote by the end of a committee draw's votes."""
    AUDIT = 3
    """No audit report, not opened, or a duty excluded."""
    DIGEST = 4
    """Of a duty said to be valid, which its seat's key does not bear out."""
    DROPPED = 5
    """An accusation that was not played."""
    EQUIVOCATED = 6
    MISMERGED = 7
    """A signature under a merge that is not what the updates give."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Where a signature or commitment is valid: one rounds contract on one chain."""

    chain_id: int
    rounds: Address


@dataclass(frozen=True, slots=True)
class RoundId:
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
    slots: int
    min_verifiers: int
    f: int
    """Bad updates that a round's merge bears."""
    audit_rate: int
    """Of the table of `audit_rates`: the chance of each seat to be audited."""
    last_rate: int
    """In the last round."""
    rate_steps: int
    """That a seat comes down by as pay is retained of it; 0: none is."""
    train_seconds: int
    reveal_seconds: int
    merge_seconds: int
    audit_seconds: int
    open_seconds: int
    key_seconds: int
    window_seconds: int
    ready_seconds: int
    game_seconds: int
    move_seconds: int
    claim_seconds: int
    expiry: int
    steps: int
    segment_steps: int
    tokens_per_step: int
    segment_pay: int
    """P, in units of the token: of each segment done."""
    sign_fee: int
    duty_fee: int
    provider_bond: int
    verifier_bond: int
    program: Digest
    """Root over a step's and its update proof's operations, which the judge decides by; zero: no
    judge."""

    @property
    def segments(self) -> int:
        """S: of a whole round."""
        return self.steps // self.segment_steps

    @property
    def segment_tokens(self) -> int:
        """Tokens of text that a segment trains on."""
        return self.segment_steps * self.tokens_per_step


@dataclass(frozen=True, slots=True)
class Params:
    """What a deployment adds to a job's terms when it is created. Shares in basis points."""

    penalty_bps: int
    winner_share_bps: int
    min_window: int
    min_move: int
    min_punishable: int
    """Seconds that the chain may take nobody's transaction: the floor of a game's allowances."""
    min_provider_bond: int
    min_verifier_bond: int


@dataclass(frozen=True, slots=True)
class Reveal:
    """What a seat shows of its round; its CID is a hint and not committed to."""

    update_root: Digest
    key_hash: Digest
    salt: Digest
    checkpoint_commitments: bytes
    update_cid: bytes


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """What the contract keeps of a settled round, as one hash. Slots in `ready` and `committee`."""

    seed: Digest
    """The data seed."""
    audit_seed: Digest
    reveals: Digest
    """The reveal accumulator."""
    votes: Digest
    """The votes' accumulator."""
    model: Digest
    """Of the global state that the round opened from; zero in round 0."""
    revealed: Bitmap
    available: Bitmap
    excluded: Bitmap
    ready: Bitmap
    committee: Bitmap
    drawn: Bitmap
    """Seats that are audited."""
    certificate: Digest = ZERO_DIGEST
    """What the committee signed; zero where nothing is certified."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a committee says of a round's merge.

    Attributes:
        excluded: seats of weight 0.
        merged: updates in the merge.
        state: digest of the global state that the next round opens with, found at `cid`.
        loss: held-out loss of the model that the round opened with, 8 bytes.
        statement: SHA-256 of the merge statement; zero where the merge has none.
    """

    excluded: Bitmap
    merged: int
    state: Digest
    cid: bytes
    loss: bytes
    statement: Digest = ZERO_DIGEST


def bits(bitmap: int) -> list[int]:
    """Indices of the set bits, ascending."""
    return [i for i in range(bitmap.bit_length()) if bitmap >> i & 1]


def to_bitmap(indices: Iterable[int]) -> Bitmap:
    """The bitmap with exactly these bits set."""
    result = 0
    for index in indices:
        result |= 1 << index
    return Bitmap(result)
