"""What players of games and their worker processes tell each other. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.games.judge import Need
from atoll.protocol.games.moves import Claim
from atoll.protocol.types import Digest, JobId, RoundIndex, SeatIndex
from atoll.train.earlier import EarlierRound


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """One segment of a settled round, or its update proof. The model's CID is binary.

    Attributes:
        job: by whose number the store keeps what was run again.
        initial: digest of round 0's global state, which the program names.
        model: the GlobalState that the round began with.
        segment: of an update proof, the last one.
        earlier: the rounds that the seat's state comes from, the oldest first.
    """

    job: JobId
    manifest: bytes
    initial: Digest
    round: RoundIndex
    seat: SeatIndex
    data_seed: Digest
    model: bytes
    segment: int
    is_update_proof: bool = False
    earlier: tuple[EarlierRound, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """A game as the chain tells it, and what was answered so far about the proof.

    Attributes:
        moves: the parties' events, in the chain's order.
        answers: to the last move's questions, in their order.
    """

    claim: Claim
    began_at: int
    is_holder: bool
    moves: tuple[object, ...]
    answers: tuple[Need, ...] = ()
