"""Effects that only a provider asks for."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.law.words import Digest, Reveal, Slot
from atoll.service.commands import Transaction, Work
from atoll_node.facts import ahead_key


@dataclass(frozen=True, slots=True)
class DoTrain(Work):
    """Train one round in the worker.

    Attributes:
        slot: carries the attempt that trains.
        opening: CID of the round's global state, `opening_digest` its digest.
        optimiser: CID of the seat state whose moments are used; None opens with zero moments.
        function: the worker function that trains.
        extra: CIDs to have in the store beforehand.
        begun: the trace of segments that were trained ahead; empty for none.
    """

    slot: Slot
    seat: int
    data_seed: Digest
    manifest: bytes
    opening: bytes
    opening_digest: Digest
    optimiser: bytes | None
    function: str
    extra: tuple[bytes, ...]
    key: str
    begun: bytes = b""


@dataclass(frozen=True, slots=True)
class DoTrainAhead(Work):
    """Train the segments of a round that need nothing of the global state it starts from."""

    training: DoTrain

    @property
    def key(self) -> str:
        return ahead_key(self.training.key)


@dataclass(frozen=True, slots=True)
class SendCommit(Transaction):
    """`guard` is the slot that this commitment claims in the journal before it is sent."""

    round: int
    attempt: int
    commitment: Digest
    guard: str

    @property
    def key(self) -> str:
        return f"commit:{self.round}:{self.attempt}:{self.commitment.hex()[:16]}"


@dataclass(frozen=True, slots=True)
class SendAnswer(Transaction):
    """Put the block with this SHA-256 on the chain, as the answer to a challenge."""

    slot: Slot
    index: int
    digest: Digest

    @property
    def key(self) -> str:
        return f"answer:{self.slot.round}:{self.slot.attempt}:{self.index}"


@dataclass(frozen=True, slots=True)
class SendReveal(Transaction):
    round: int
    attempt: int
    reveal: Reveal

    @property
    def key(self) -> str:
        return f"reveal:{self.round}:{self.attempt}:{self.reveal.trace_root.hex()[:16]}"
