"""What the provider's finished work leaves in the journal."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.law.words import Digest, Reveal
from atoll.service.facts import SHARED_KINDS
from atoll.service.journal import Fact


@dataclass(frozen=True, slots=True)
class Trained(Fact):
    """A trained round: what will be committed and revealed, salt included.

    Attributes:
        attempt: the attempt that trained.
        opening: digest of the global state it started from; zero names round 0's.
        carried_state: CID of the SeatState whose optimiser opens the seat's next round.
    """

    round: int
    attempt: int
    seat: int
    data_seed: Digest
    opening: Digest
    reveal: Reveal
    carried_state: bytes
    loss: float
    seconds: float

    @property
    def key(self) -> str:
        return trained_key(self.round, self.attempt, self.seat, self.data_seed, self.opening)


@dataclass(frozen=True, slots=True)
class TrainedAhead(Fact):
    """The first segments of a round, trained while the state that it starts from was on its way.

    Attributes:
        training: where the `Trained` will be found that goes on from here.
        trace: the trace document so far.
    """

    training: str
    trace: bytes

    @property
    def key(self) -> str:
        return ahead_key(self.training)


@dataclass(frozen=True, slots=True)
class Unanswerable(Fact):
    """A challenged block that is not here, or larger than the chain takes."""

    digest: Digest
    reason: str

    @property
    def key(self) -> str:
        return unanswerable_key(self.digest)


def unanswerable_key(digest: Digest) -> str:
    """Where `Unanswerable` is found."""
    return f"unanswerable:{digest.hex()}"


def trained_key(round_: int, attempt: int, seat: int, data_seed: Digest, opening: Digest) -> str:
    """Everything that decides what is trained, so a reorg that changes any of it trains anew."""
    what = f"{data_seed.hex()[:16]}:{opening.hex()[:16]}"
    return f"train:{round_}:{attempt}:{seat}:{what}"


def ahead_key(training: str) -> str:
    """Where `TrainedAhead` is found."""
    return f"ahead:{training}"


KINDS: tuple[type[Fact], ...] = (*SHARED_KINDS, Trained, TrainedAhead, Unanswerable)
