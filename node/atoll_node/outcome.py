"""What training leaves; apart from the training itself, so that the service needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.law.words import Digest


@dataclass(frozen=True, slots=True)
class AheadOutcome:
    """The trace of a round's first segments, and the wall time in their steps."""

    trace: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class TrainOutcome:
    """What training left in the store, and what is committed to. CIDs are binary.

    Attributes:
        carried_state: the SeatState whose optimiser opens the seat's next round once accepted.
        loss: mean of the last step trained, nats a token; 0.0 where no step was run.
        seconds: wall time in training steps.
    """

    trace_root: Digest
    trace_cid: bytes
    update_root: Digest
    update_cid: bytes
    optimiser_root: Digest
    carried_state: bytes
    steps: int
    reset: bool
    loss: float
    seconds: float
