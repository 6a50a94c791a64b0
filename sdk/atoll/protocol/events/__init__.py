"""What the contracts say, as data: one frozen dataclass per event.

Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand.
"""

from __future__ import annotations

from typing import Final

from atoll.protocol.events.audit_events import (
    AuditReportSealed,
    Contested,
    ContestSettled,
    Dropped,
    Excused,
    KeyShown,
    LateVote,
    Leaked,
    Opened,
    Proven,
    Struck,
    Withheld,
)
from atoll.protocol.events.game_events import (
    Began,
    BondReturned,
    Challenged,
    CrowdedOut,
    Decided,
    Ended,
    LayerRevealed,
    LeafPosted,
    NodePicked,
    NotTold,
    Owed,
    Picked,
    StepPicked,
    StepsOpened,
    TokenPicked,
    TracePosted,
)
from atoll.protocol.events.job_events import (
    Burnt,
    CancelRequested,
    Claimed,
    Collected,
    CreditClaimed,
    Credited,
    JobCreated,
    JobFunded,
    Kept,
    OwnerAccepted,
    OwnerProposed,
    PayeeSet,
    Refunded,
)
from atoll.protocol.events.member_events import (
    Enrolled,
    GatewayAnnounced,
    HolderSlashed,
    Missed,
    Ready,
    Released,
    Retained,
    Seasoned,
    Seated,
    SeatLeaving,
    SlotLeaving,
)
from atoll.protocol.events.round_events import (
    AuditSeeded,
    Closed,
    Committed,
    CommitteeDrawn,
    MergeOpened,
    MergeStruck,
    PayChanged,
    PhaseRepeated,
    Revealed,
    RevealOpened,
    RoundOpened,
    Settled,
    Signed,
    Stopped,
    Voted,
    Waiting,
)
from atoll.protocol.events.stake_events import (
    Deposited,
    Locked,
    Slashed,
    UnbondStarted,
    Unlocked,
    Withdrawn,
)

__all__ = [
    "EVENT_TYPES",
    "AuditReportSealed",
    "AuditSeeded",
    "Began",
    "BondReturned",
    "Burnt",
    "CancelRequested",
    "Challenged",
    "Claimed",
    "Closed",
    "Collected",
    "Committed",
    "CommitteeDrawn",
    "ContestSettled",
    "Contested",
    "ContractEvent",
    "CreditClaimed",
    "Credited",
    "CrowdedOut",
    "Decided",
    "Deposited",
    "Dropped",
    "Ended",
    "Enrolled",
    "Excused",
    "GatewayAnnounced",
    "HolderSlashed",
    "JobCreated",
    "JobFunded",
    "Kept",
    "KeyShown",
    "LateVote",
    "LayerRevealed",
    "LeafPosted",
    "Leaked",
    "Locked",
    "MergeOpened",
    "MergeStruck",
    "Missed",
    "NodePicked",
    "NotTold",
    "Opened",
    "Owed",
    "OwnerAccepted",
    "OwnerProposed",
    "PayChanged",
    "PayeeSet",
    "PhaseRepeated",
    "Picked",
    "Proven",
    "Ready",
    "Refunded",
    "Released",
    "Retained",
    "RevealOpened",
    "Revealed",
    "RoundOpened",
    "Seasoned",
    "SeatLeaving",
    "Seated",
    "Settled",
    "Signed",
    "Slashed",
    "SlotLeaving",
    "StepPicked",
    "StepsOpened",
    "Stopped",
    "Struck",
    "TokenPicked",
    "TracePosted",
    "UnbondStarted",
    "Unlocked",
    "Voted",
    "Waiting",
    "Withdrawn",
    "Withheld",
]

ContractEvent = (
    RoundOpened
    | Committed
    | RevealOpened
    | PhaseRepeated
    | Revealed
    | MergeOpened
    | AuditSeeded
    | Voted
    | CommitteeDrawn
    | Settled
    | Signed
    | Stopped
    | Waiting
    | PayChanged
    | MergeStruck
    | Closed
    | Seated
    | Retained
    | Seasoned
    | SeatLeaving
    | Enrolled
    | Ready
    | SlotLeaving
    | Missed
    | HolderSlashed
    | Released
    | GatewayAnnounced
    | AuditReportSealed
    | Opened
    | KeyShown
    | Leaked
    | Contested
    | Withheld
    | ContestSettled
    | Struck
    | Excused
    | Dropped
    | Proven
    | LateVote
    | JobCreated
    | JobFunded
    | CancelRequested
    | Claimed
    | Credited
    | CreditClaimed
    | Kept
    | Collected
    | Burnt
    | Refunded
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
    | Owed
    | Began
    | Decided
    | Ended
    | CrowdedOut
    | NotTold
    | BondReturned
    | StepsOpened
    | StepPicked
    | TracePosted
    | LayerRevealed
    | Picked
    | NodePicked
    | TokenPicked
    | LeafPosted
)
"""Any event of the contracts."""

EVENT_TYPES: Final[dict[str, type[ContractEvent]]] = {
    "RoundOpened": RoundOpened,
    "Committed": Committed,
    "RevealOpened": RevealOpened,
    "PhaseRepeated": PhaseRepeated,
    "Revealed": Revealed,
    "MergeOpened": MergeOpened,
    "AuditSeeded": AuditSeeded,
    "Voted": Voted,
    "CommitteeDrawn": CommitteeDrawn,
    "Settled": Settled,
    "Signed": Signed,
    "Stopped": Stopped,
    "Waiting": Waiting,
    "PayChanged": PayChanged,
    "MergeStruck": MergeStruck,
    "Closed": Closed,
    "Seated": Seated,
    "Retained": Retained,
    "Seasoned": Seasoned,
    "SeatLeaving": SeatLeaving,
    "Enrolled": Enrolled,
    "Ready": Ready,
    "SlotLeaving": SlotLeaving,
    "Missed": Missed,
    "HolderSlashed": HolderSlashed,
    "Released": Released,
    "GatewayAnnounced": GatewayAnnounced,
    "AuditReportSealed": AuditReportSealed,
    "Opened": Opened,
    "KeyShown": KeyShown,
    "Leaked": Leaked,
    "Contested": Contested,
    "Withheld": Withheld,
    "ContestSettled": ContestSettled,
    "Struck": Struck,
    "Excused": Excused,
    "Dropped": Dropped,
    "Proven": Proven,
    "LateVote": LateVote,
    "JobCreated": JobCreated,
    "JobFunded": JobFunded,
    "CancelRequested": CancelRequested,
    "Claimed": Claimed,
    "Credited": Credited,
    "CreditClaimed": CreditClaimed,
    "Kept": Kept,
    "Collected": Collected,
    "Burnt": Burnt,
    "Refunded": Refunded,
    "OwnerProposed": OwnerProposed,
    "OwnerAccepted": OwnerAccepted,
    "PayeeSet": PayeeSet,
    "Deposited": Deposited,
    "UnbondStarted": UnbondStarted,
    "Withdrawn": Withdrawn,
    "Locked": Locked,
    "Unlocked": Unlocked,
    "Slashed": Slashed,
    "Challenged": Challenged,
    "Owed": Owed,
    "Began": Began,
    "Decided": Decided,
    "Ended": Ended,
    "CrowdedOut": CrowdedOut,
    "NotTold": NotTold,
    "BondReturned": BondReturned,
    "StepsOpened": StepsOpened,
    "StepPicked": StepPicked,
    "TracePosted": TracePosted,
    "LayerRevealed": LayerRevealed,
    "Picked": Picked,
    "NodePicked": NodePicked,
    "TokenPicked": TokenPicked,
    "LeafPosted": LeafPosted,
}
"""The decoding table, by the names of the ABI. `atoll.chain.decode` uses it."""
