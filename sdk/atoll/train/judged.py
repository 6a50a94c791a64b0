"""What players of games and their worker processes tell each other. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.law.games.claims import Claim
from atoll.law.games.judge import Need
from atoll.law.words import Digest, RoundIndex, SeatIndex


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """One segment of a settled round, or its link. CIDs are binary, of states in the store.

    Attributes:
        initial: digest of round 0's global state, which the program names.
        state: the SeatState that the segment begins with; of a link the last one.
        model: the GlobalState that the round began with.
        segment: of a link, the last one.
    """

    manifest: bytes
    initial: Digest
    round: RoundIndex
    seat: SeatIndex
    data_seed: Digest
    state: bytes
    model: bytes
    segment: int
    is_link: bool = False


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


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """The first thing of a seat's round that a replay from public inputs gives otherwise.

    Attributes:
        segment: its number, of a link the last one's; None where nothing differs.
        state: the state that it begins with, in the store; empty where nothing differs.
    """

    segment: int | None
    is_link: bool
    state: bytes
