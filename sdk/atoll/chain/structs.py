"""Structs that views return.

Rule of this file: field order is that of `Types.sol` and `IJobs.sol`; tests compare.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.types import Bitmap, Digest, JobStatus, Phase, RoundIndex


@dataclass(frozen=True, slots=True)
class Escrow:
    """Wei; funded = claimed + refunded + burnt + balance."""

    funded: int
    claimed: int
    refunded: int
    burnt: int
    balance: int


@dataclass(frozen=True, slots=True)
class RoundState:
    """What the rounds contract says of a job now; field order is `Types.sol`'s.

    Attributes:
        round: that runs or opens next, and how many are settled.
        seed, next_seed, audit_seed: zero until they are known.
        held: seats that the next round may count on.
        seated: seats that count; committed ones from REVEAL on, revealed ones from MERGE on.
        waiting: seats that have still to commit or to reveal; `owing` those whose penalty is due.
        votes: 28 bytes of the accumulator, and who of the committee has spoken.
        digest: of the last certificate that not all of its committee had signed.
    """

    status: JobStatus
    phase: Phase
    round: RoundIndex
    committee_draw: int
    deadline: int
    seed: Digest
    next_seed: Digest
    audit_seed: Digest
    held: Bitmap
    seated: Bitmap
    waiting: Bitmap
    owing: Bitmap
    ready: Bitmap
    committee: Bitmap
    reveals: Digest
    votes: Digest
    model: Digest
    digest: Digest
