"""What the contracts say, as data: one frozen dataclass per event, named and ordered as in the ABI.

Rule of this file: `atoll.chain.decode` builds these by name from logs, and a test proves that every
event of the ABI has its class here with the same fields in the same order; `from`, which Python
keeps for itself, is `start`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, get_args

from atoll.protocol.games.claims import Claim
from atoll.protocol.games.machine import Outcome as GameOutcome
from atoll.protocol.words import (
    Address,
    Bitmap,
    Digest,
    Facts,
    HolderId,
    JobId,
    JobStatus,
    Miss,
    Params,
    PlaceIndex,
    Reveal,
    Role,
    RoundIndex,
    SeatIndex,
    Terms,
    Verdict,
)

# --- Rounds ---


@dataclass(frozen=True, slots=True)
class RoundOpened:
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
    job_id: JobId
    account: Address
    seat: SeatIndex
    round: RoundIndex
    commitment: Digest


@dataclass(frozen=True, slots=True)
class RevealOpened:
    job_id: JobId
    round: RoundIndex
    committed: Bitmap
    deadline: int


@dataclass(frozen=True, slots=True)
class Revealed:
    job_id: JobId
    account: Address
    seat: SeatIndex
    round: RoundIndex
    reveal: Reveal


@dataclass(frozen=True, slots=True)
class MergeOpened:
    job_id: JobId
    round: RoundIndex
    revealed: Bitmap
    next_seed: Digest
    deadline: int


@dataclass(frozen=True, slots=True)
class AuditSeeded:
    job_id: JobId
    round: RoundIndex
    audit_seed: Digest


@dataclass(frozen=True, slots=True)
class Said:
    job_id: JobId
    account: Address
    place: PlaceIndex
    round: RoundIndex
    committee_draw: int
    has: Bitmap


@dataclass(frozen=True, slots=True)
class CommitteeDrawn:
    job_id: JobId
    round: RoundIndex
    committee_draw: int
    committee: Bitmap
    deadline: int


@dataclass(frozen=True, slots=True)
class Settled:
    job_id: JobId
    round: RoundIndex
    digest: Digest
    verdict: Verdict
    available: Bitmap
    signers: Bitmap
    facts: Facts


@dataclass(frozen=True, slots=True)
class Signed:
    job_id: JobId
    round: RoundIndex
    signers: Bitmap


@dataclass(frozen=True, slots=True)
class Stopped:
    job_id: JobId
    account: Address
    seat: SeatIndex
    round: RoundIndex
    root: Digest


@dataclass(frozen=True, slots=True)
class Waiting:
    job_id: JobId
    round: RoundIndex
    missed: Bitmap


@dataclass(frozen=True, slots=True)
class PayChanged:
    job_id: JobId
    round: RoundIndex
    pay: Bitmap


@dataclass(frozen=True, slots=True)
class Closed:
    job_id: JobId
    status: JobStatus
    rounds: int
    closed_at: int


# --- Members ---


@dataclass(frozen=True, slots=True)
class Seated:
    job_id: JobId
    account: Address
    seat: SeatIndex
    id: HolderId
    start: RoundIndex


@dataclass(frozen=True, slots=True)
class SeatLeaving:
    job_id: JobId
    account: Address
    seat: SeatIndex
    id: HolderId
    to: RoundIndex


@dataclass(frozen=True, slots=True)
class Enrolled:
    job_id: JobId
    account: Address
    place: PlaceIndex
    id: HolderId
    start: RoundIndex
    bond: int
    ready_until: int


@dataclass(frozen=True, slots=True)
class Ready:
    job_id: JobId
    account: Address
    place: PlaceIndex
    id: HolderId


@dataclass(frozen=True, slots=True)
class PlaceLeaving:
    job_id: JobId
    account: Address
    place: PlaceIndex
    id: HolderId
    to: RoundIndex


@dataclass(frozen=True, slots=True)
class Missed:
    job_id: JobId
    account: Address
    role: Role
    id: HolderId
    round: RoundIndex
    kind: Miss
    cut: int


@dataclass(frozen=True, slots=True)
class Fell:
    job_id: JobId
    account: Address
    winner: Address
    role: Role
    id: HolderId
    lost_from: RoundIndex
    slashed: int


@dataclass(frozen=True, slots=True)
class Released:
    job_id: JobId
    account: Address
    role: Role
    id: HolderId


@dataclass(frozen=True, slots=True)
class GatewayAnnounced:
    account: Address
    url: str


# --- Audits ---


@dataclass(frozen=True, slots=True)
class AuditReportSealed:
    job_id: JobId
    account: Address
    round: RoundIndex
    audit_report: Digest


@dataclass(frozen=True, slots=True)
class Opened:
    job_id: JobId
    account: Address
    id: HolderId
    round: RoundIndex
    body: bytes


@dataclass(frozen=True, slots=True)
class KeyShown:
    job_id: JobId
    account: Address
    round: RoundIndex
    key: Digest


@dataclass(frozen=True, slots=True)
class Leaked:
    job_id: JobId
    by: Address
    seat: SeatIndex
    round: RoundIndex
    key: Digest


@dataclass(frozen=True, slots=True)
class Contested:
    job_id: JobId
    by: Address
    id: HolderId
    round: RoundIndex
    seat: SeatIndex


@dataclass(frozen=True, slots=True)
class ContestSettled:
    job_id: JobId
    id: HolderId
    round: RoundIndex
    seat: SeatIndex
    wrong: bool


@dataclass(frozen=True, slots=True)
class Struck:
    job_id: JobId
    round: RoundIndex
    seat: SeatIndex


@dataclass(frozen=True, slots=True)
class Dropped:
    job_id: JobId
    id: HolderId
    round: RoundIndex
    seat: SeatIndex


@dataclass(frozen=True, slots=True)
class Proven:
    job_id: JobId
    id: HolderId
    round: RoundIndex
    seat: SeatIndex


@dataclass(frozen=True, slots=True)
class LateVote:
    job_id: JobId
    account: Address
    round: RoundIndex
    id: HolderId
    has: Bitmap


# --- Jobs ---


@dataclass(frozen=True, slots=True)
class JobCreated:
    job_id: JobId
    submitter: Address
    spec_digest: Digest
    spec_cid: bytes
    terms_hash: Digest
    terms: Terms
    params: Params
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
class Claimed:
    job_id: JobId
    account: Address
    role: Role
    id: HolderId
    to: RoundIndex
    amount: int
    burnt: int


@dataclass(frozen=True, slots=True)
class Credited:
    job_id: JobId
    account: Address
    amount: int


@dataclass(frozen=True, slots=True)
class CreditClaimed:
    job_id: JobId
    account: Address
    amount: int


@dataclass(frozen=True, slots=True)
class Burnt:
    job_id: JobId
    to: RoundIndex
    amount: int


@dataclass(frozen=True, slots=True)
class Refunded:
    job_id: JobId
    to: Address
    amount: int


@dataclass(frozen=True, slots=True)
class Kept:
    account: Address
    amount: int


@dataclass(frozen=True, slots=True)
class Collected:
    account: Address
    amount: int


# --- owners ---


@dataclass(frozen=True, slots=True)
class OwnerProposed:
    account: Address
    owner: Address


@dataclass(frozen=True, slots=True)
class OwnerAccepted:
    account: Address
    owner: Address


@dataclass(frozen=True, slots=True)
class PayeeSet:
    account: Address
    payee: Address


# --- Stakes ---


@dataclass(frozen=True, slots=True)
class Deposited:
    account: Address
    role: Role
    amount: int


@dataclass(frozen=True, slots=True)
class UnbondStarted:
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


# --- games ---


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
class CrowdedOut:
    challenger: Address
    claim: Claim


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
class TracePosted:
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
    | Committed
    | RevealOpened
    | Revealed
    | MergeOpened
    | AuditSeeded
    | Said
    | CommitteeDrawn
    | Settled
    | Signed
    | Stopped
    | Waiting
    | PayChanged
    | Closed
    | Seated
    | SeatLeaving
    | Enrolled
    | Ready
    | PlaceLeaving
    | Missed
    | Fell
    | Released
    | GatewayAnnounced
    | AuditReportSealed
    | Opened
    | KeyShown
    | Leaked
    | Contested
    | ContestSettled
    | Struck
    | Dropped
    | Proven
    | LateVote
    | JobCreated
    | JobFunded
    | CancelRequested
    | Claimed
    | Credited
    | CreditClaimed
    | Burnt
    | Refunded
    | Kept
    | Collected
    | OwnerProposed
    | OwnerAccepted
    | PayeeSet
    | Deposited
    | UnbondStarted
    | Withdrawn
    | Locked
    | Unlocked
    | Slashed
    | Challenged
    | Began
    | Decided
    | Ended
    | CrowdedOut
    | NotTold
    | BondReturned
    | StepsOpened
    | StepPicked
    | TracePosted
    | RowRevealed
    | Picked
    | NodePicked
    | LeafPosted
)
"""Any event of the contracts."""

EVENT_TYPES: Final[dict[str, type[ContractEvent]]] = {
    cls.__name__: cls for cls in get_args(ContractEvent)
}
