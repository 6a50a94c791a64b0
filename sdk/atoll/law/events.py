"""What the contracts say, as data: one frozen dataclass per event, named and ordered as in the ABI.

Rule of this file: `atoll.chain.decode` builds these by name from logs, and a test proves that every
event of the ABI has its class here with the same fields in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.law.games.claims import Claim
from atoll.law.games.machine import Outcome as GameOutcome
from atoll.law.words import (
    Address,
    Attempt,
    Bitmap,
    Digest,
    Finding,
    JobId,
    JobStatus,
    Offence,
    Outcome,
    Report,
    Reveal,
    Role,
    RoundIndex,
    SeatIndex,
    Terms,
    Verdict,
    VerifierIndex,
)


@dataclass(frozen=True, slots=True)
class RoundOpened:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    seated: Bitmap
    verifiers: Bitmap
    total_weight: int
    beacon_block: int


@dataclass(frozen=True, slots=True)
class BeaconRearmed:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    beacon_block: int


@dataclass(frozen=True, slots=True)
class TrainStarted:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    seated: Bitmap
    verifiers: Bitmap
    total_weight: int
    data_seed: Digest
    deadline: int


@dataclass(frozen=True, slots=True)
class Committed:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    seat: SeatIndex
    account: Address
    commitment: Digest


@dataclass(frozen=True, slots=True)
class RevealStarted:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    committed: Bitmap
    deadline: int


@dataclass(frozen=True, slots=True)
class Revealed:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    seat: SeatIndex
    account: Address
    reveal: Reveal


@dataclass(frozen=True, slots=True)
class AuditArmed:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    revealed: Bitmap
    audit_set: Bitmap
    beacon_block: int


@dataclass(frozen=True, slots=True)
class AuditStarted:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    audit_seed: Digest
    auditors: int
    audit_set: Bitmap
    half_time: int
    deadline: int


@dataclass(frozen=True, slots=True)
class Balloted:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    verifier: VerifierIndex
    account: Address
    findings: tuple[Finding, ...]
    replay_root: Digest


@dataclass(frozen=True, slots=True)
class Reported:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    index: int
    verifier: VerifierIndex
    report: Report
    assigned: bool


@dataclass(frozen=True, slots=True)
class ReportSeconded:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    index: int
    verifier: VerifierIndex


@dataclass(frozen=True, slots=True)
class ChallengeWithdrawn:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    index: int
    verifier: VerifierIndex


@dataclass(frozen=True, slots=True)
class ChallengeAnswered:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    index: int
    account: Address
    block: bytes


@dataclass(frozen=True, slots=True)
class ConfirmStarted:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    deadline: int


@dataclass(frozen=True, slots=True)
class Voted:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    verifier: VerifierIndex
    account: Address
    agree: Bitmap
    disagree: Bitmap
    cannot_fetch: Bitmap


@dataclass(frozen=True, slots=True)
class ReportResolved:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    index: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class AttestStarted:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    accepted: Bitmap
    rejected: Bitmap
    unresolved: Bitmap
    caught: Bitmap
    dutiful: Bitmap
    evidence_root: Digest
    cut_block: int
    deadline: int


@dataclass(frozen=True, slots=True)
class Attested:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    verifier: VerifierIndex
    account: Address
    verdict_hash: Digest
    weight: int


@dataclass(frozen=True, slots=True)
class RoundSettled:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    verdict_hash: Digest
    verdict: Verdict
    dispute_until: int


@dataclass(frozen=True, slots=True)
class RoundVoided:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    reason: str


@dataclass(frozen=True, slots=True)
class RoundFinalised:
    job_id: JobId
    round: RoundIndex
    claims_root: Digest
    cumulative_total: int


@dataclass(frozen=True, slots=True)
class CircuitBroken:
    job_id: JobId
    round: RoundIndex
    attempt: Attempt
    rejected: Bitmap


@dataclass(frozen=True, slots=True)
class Punished:
    job_id: JobId
    round: RoundIndex
    offence: Offence
    index: int
    account: Address
    fault_id: Digest
    amount: int


@dataclass(frozen=True, slots=True)
class Credited:
    job_id: JobId
    round: RoundIndex
    account: Address
    amount: int


@dataclass(frozen=True, slots=True)
class MembershipDropped:
    job_id: JobId
    round: RoundIndex
    seats: Bitmap
    verifiers: Bitmap


@dataclass(frozen=True, slots=True)
class ProviderSeated:
    job_id: JobId
    seat: SeatIndex
    account: Address


@dataclass(frozen=True, slots=True)
class ProviderQueued:
    job_id: JobId
    account: Address


@dataclass(frozen=True, slots=True)
class ProviderUnqueued:
    job_id: JobId
    account: Address


@dataclass(frozen=True, slots=True)
class ProviderLeaving:
    job_id: JobId
    seat: SeatIndex
    account: Address


@dataclass(frozen=True, slots=True)
class ProviderUnseated:
    job_id: JobId
    seat: SeatIndex
    account: Address
    reason: str


@dataclass(frozen=True, slots=True)
class VerifierJoined:
    job_id: JobId
    verifier: VerifierIndex
    account: Address
    weight: int


@dataclass(frozen=True, slots=True)
class VerifierReady:
    job_id: JobId
    verifier: VerifierIndex
    account: Address


@dataclass(frozen=True, slots=True)
class VerifierLeaving:
    job_id: JobId
    verifier: VerifierIndex
    account: Address


@dataclass(frozen=True, slots=True)
class VerifierLeft:
    job_id: JobId
    verifier: VerifierIndex
    account: Address
    reason: str


@dataclass(frozen=True, slots=True)
class GatewayAnnounced:
    account: Address
    url: str


@dataclass(frozen=True, slots=True)
class JobCreated:
    job_id: JobId
    submitter: Address
    spec_digest: Digest
    spec_cid: bytes
    terms_hash: Digest
    terms: Terms
    policy: Address
    funded: int


@dataclass(frozen=True, slots=True)
class JobFunded:
    job_id: JobId
    funder: Address
    amount: int


@dataclass(frozen=True, slots=True)
class CancelRequested:
    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobStatusChanged:
    job_id: JobId
    status: JobStatus
    reason: str


@dataclass(frozen=True, slots=True)
class Claimed:
    job_id: JobId
    account: Address
    amount: int
    cumulative: int


@dataclass(frozen=True, slots=True)
class PayWithheld:
    job_id: JobId
    account: Address
    amount: int


@dataclass(frozen=True, slots=True)
class PayReturned:
    job_id: JobId
    account: Address
    amount: int
    submitter: Address


@dataclass(frozen=True, slots=True)
class Refunded:
    job_id: JobId
    to: Address
    amount: int


@dataclass(frozen=True, slots=True)
class Deposited:
    account: Address
    role: Role
    amount: int


@dataclass(frozen=True, slots=True)
class ThawStarted:
    account: Address
    role: Role
    id: int
    amount: int
    available_at: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    account: Address
    role: Role
    id: int
    amount: int


@dataclass(frozen=True, slots=True)
class Locked:
    account: Address
    role: Role
    lock_id: Digest
    amount: int


@dataclass(frozen=True, slots=True)
class Unlocked:
    account: Address
    role: Role
    lock_id: Digest
    amount: int


@dataclass(frozen=True, slots=True)
class Slashed:
    account: Address
    role: Role
    fault_id: Digest
    amount: int
    beneficiary: Address
    beneficiary_amount: int
    burned: int


@dataclass(frozen=True, slots=True)
class Fell:
    job_id: JobId
    account: Address
    round: RoundIndex
    seat: SeatIndex
    challenger: Address
    slashed: int
    withheld: int


@dataclass(frozen=True, slots=True)
class Challenged:
    id: int
    holder: Address
    challenger: Address
    bond: int
    claim: Claim
    evidence: bytes


@dataclass(frozen=True, slots=True)
class Began:
    id: int
    holder: Address


@dataclass(frozen=True, slots=True)
class Decided:
    id: int
    outcome: GameOutcome


@dataclass(frozen=True, slots=True)
class Ended:
    id: int
    outcome: GameOutcome


@dataclass(frozen=True, slots=True)
class NotTold:
    id: int
    set: Digest


@dataclass(frozen=True, slots=True)
class BondReturned:
    account: Address
    amount: int


@dataclass(frozen=True, slots=True)
class StepsOpened:
    id: int
    states: tuple[Digest, ...]
    works: bytes


@dataclass(frozen=True, slots=True)
class StepPicked:
    id: int
    step: int


@dataclass(frozen=True, slots=True)
class TapePosted:
    id: int
    root: Digest
    nodes: int
    row: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class RowRevealed:
    id: int
    row: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Picked:
    id: int
    level: int
    index: int


@dataclass(frozen=True, slots=True)
class NodePicked:
    id: int
    node: int
    digest: Digest
    size: int


@dataclass(frozen=True, slots=True)
class LeafPosted:
    id: int
    leaf: bytes


ContractEvent = (
    RoundOpened
    | BeaconRearmed
    | TrainStarted
    | Committed
    | RevealStarted
    | Revealed
    | AuditArmed
    | AuditStarted
    | Balloted
    | Reported
    | ReportSeconded
    | ChallengeWithdrawn
    | ChallengeAnswered
    | ConfirmStarted
    | Voted
    | ReportResolved
    | AttestStarted
    | Attested
    | RoundSettled
    | RoundVoided
    | RoundFinalised
    | CircuitBroken
    | Punished
    | Credited
    | MembershipDropped
    | ProviderSeated
    | ProviderQueued
    | ProviderUnqueued
    | ProviderLeaving
    | ProviderUnseated
    | VerifierJoined
    | VerifierReady
    | VerifierLeaving
    | VerifierLeft
    | GatewayAnnounced
    | JobCreated
    | JobFunded
    | CancelRequested
    | JobStatusChanged
    | Claimed
    | Refunded
    | Deposited
    | ThawStarted
    | Withdrawn
    | Locked
    | Unlocked
    | Slashed
    | PayWithheld
    | PayReturned
    | Fell
    | Challenged
    | Began
    | Decided
    | Ended
    | NotTold
    | BondReturned
    | StepsOpened
    | StepPicked
    | TapePosted
    | RowRevealed
    | Picked
    | NodePicked
    | LeafPosted
)
"""Any event of the contracts."""

EVENT_TYPES: dict[str, type[ContractEvent]] = {
    cls.__name__: cls
    for cls in (
        RoundOpened,
        BeaconRearmed,
        TrainStarted,
        Committed,
        RevealStarted,
        Revealed,
        AuditArmed,
        AuditStarted,
        Balloted,
        Reported,
        ReportSeconded,
        ChallengeWithdrawn,
        ChallengeAnswered,
        ConfirmStarted,
        Voted,
        ReportResolved,
        AttestStarted,
        Attested,
        RoundSettled,
        RoundVoided,
        RoundFinalised,
        CircuitBroken,
        Punished,
        Credited,
        MembershipDropped,
        ProviderSeated,
        ProviderQueued,
        ProviderUnqueued,
        ProviderLeaving,
        ProviderUnseated,
        VerifierJoined,
        VerifierReady,
        VerifierLeaving,
        VerifierLeft,
        GatewayAnnounced,
        JobCreated,
        JobFunded,
        CancelRequested,
        JobStatusChanged,
        Claimed,
        Refunded,
        Deposited,
        ThawStarted,
        Withdrawn,
        Locked,
        Unlocked,
        Slashed,
        PayWithheld,
        PayReturned,
        Fell,
        Challenged,
        Began,
        Decided,
        Ended,
        NotTold,
        BondReturned,
        StepsOpened,
        StepPicked,
        TapePosted,
        RowRevealed,
        Picked,
        NodePicked,
        LeafPosted,
    )
}
