"""Events of Rounds, named and ordered as in the ABI.

Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
    JobId,
    JobStatus,
    Reveal,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    SlotIndex,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class RoundOpened:
    """A round begins: its seats train.

    Attributes:
        seed: data seed of the round.
        seated: seats that train.
        ready: slots of the pool that audits the round.
        committee: slots of the committee that is to settle it.
        model: digest of the global state that it opens from.
        deadline: unix seconds at which training ends.
    """

    job_id: JobId
    round: RoundIndex
    seed: Digest
    seated: Bitmap
    ready: Bitmap
    committee: Bitmap
    model: Digest
    deadline: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A seat is bound to its work."""

    job_id: JobId
    account: Address
    seat: SeatIndex
    round: RoundIndex
    commitment: Digest


@dataclass(frozen=True, slots=True)
class RevealOpened:
    """Training is over.

    Attributes:
        committed: seats that committed, which reveal now.
        deadline: unix seconds at which revealing ends.
    """

    job_id: JobId
    round: RoundIndex
    committed: Bitmap
    deadline: int


@dataclass(frozen=True, slots=True)
class PhaseRepeated:
    """Fewer than half of the seats did in time what TRAIN or REVEAL asks of them: it goes on.

    Attributes:
        deadline: unix seconds at which it ends.
    """

    job_id: JobId
    round: RoundIndex
    deadline: int


@dataclass(frozen=True, slots=True)
class Revealed:
    """A seat shows what its commitment binds."""

    job_id: JobId
    account: Address
    seat: SeatIndex
    round: RoundIndex
    reveal: Reveal


@dataclass(frozen=True, slots=True)
class MergeOpened:
    """Revealing is over.

    Attributes:
        revealed: seats that revealed, whose updates are merged.
        next_seed: data seed of the next round.
        deadline: unix seconds until which the committee may settle it.
    """

    job_id: JobId
    round: RoundIndex
    revealed: Bitmap
    next_seed: Digest
    deadline: int


@dataclass(frozen=True, slots=True)
class AuditSeeded:
    """Who is audited, and by whom, is drawn."""

    job_id: JobId
    round: RoundIndex
    audit_seed: Digest


@dataclass(frozen=True, slots=True)
class Voted:
    """A committee member's vote.

    Attributes:
        committee_draw: whose member it is, from 0.
        has: seats whose updates it has.
    """

    job_id: JobId
    account: Address
    slot: SlotIndex
    round: RoundIndex
    committee_draw: int
    has: Bitmap


@dataclass(frozen=True, slots=True)
class CommitteeDrawn:
    """Nobody settled in time, and another committee is to.

    Attributes:
        committee_draw: its number, from 1.
        committee: its slots.
        deadline: unix seconds until which it may settle the round.
    """

    job_id: JobId
    round: RoundIndex
    committee_draw: int
    committee: Bitmap
    deadline: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A round is over: what its committee says of the merge.

    Attributes:
        digest: that the certificate signs; zero where there is none.
        available: seats whose updates a majority of the committee had.
        signers: slots that signed.
    """

    job_id: JobId
    round: RoundIndex
    digest: Digest
    verdict: Verdict
    available: Bitmap
    signers: Bitmap
    record: RoundRecord


@dataclass(frozen=True, slots=True)
class Signed:
    """More of a committee signed the last certificate.

    Attributes:
        signers: slots that have signed so far.
    """

    job_id: JobId
    round: RoundIndex
    signers: Bitmap


@dataclass(frozen=True, slots=True)
class Stopped:
    """A seat counts no more, before its commit.

    Attributes:
        root: digest of the model that its holder computed instead; zero of one that was slashed.
    """

    job_id: JobId
    account: Address
    seat: SeatIndex
    round: RoundIndex
    root: Digest


@dataclass(frozen=True, slots=True)
class Waiting:
    """The round that ran is void, members are too few, or a pool is noted that a committee will be
    drawn from.

    Attributes:
        missed: seats that missed the void round.
    """

    job_id: JobId
    round: RoundIndex
    missed: Bitmap


@dataclass(frozen=True, slots=True)
class PayChanged:
    """The row of a settled round's pay as it stands.

    Attributes:
        pay: seats that are paid.
    """

    job_id: JobId
    round: RoundIndex
    pay: Bitmap


@dataclass(frozen=True, slots=True)
class MergeStruck:
    """What a committee certified of a round is not what its updates give: nobody is paid for having
    signed it, and the job ends as if cancelled.

    Attributes:
        by: the account that showed it.
        signers: slots that had signed.
    """

    job_id: JobId
    round: RoundIndex
    by: Address
    signers: Bitmap


@dataclass(frozen=True, slots=True)
class Closed:
    """No round will run any more.

    Attributes:
        rounds: how many are settled.
        closed_at: unix seconds.
    """

    job_id: JobId
    status: JobStatus
    rounds: int
    closed_at: int
