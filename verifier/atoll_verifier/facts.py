"""What the verifier's finished work, and what it signed, leave in the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from atoll.law.views import SeatReveal
from atoll.law.words import Address, Digest, Finding, Report, Slot, Verdict
from atoll.service.facts import SHARED_KINDS
from atoll.service.journal import Fact


@dataclass(frozen=True, slots=True)
class SeatChecked(Fact):
    """The cheap checks of a seat's update and trace; `fault` is empty where they passed."""

    what: str
    fault: str

    @property
    def key(self) -> str:
        return f"check:{self.what}"


@dataclass(frozen=True, slots=True)
class SegmentReplayed(Fact):
    """A segment was trained again.

    Attributes:
        differs: what it disproves of the trace, empty where nothing.
        excess: in a tolerant job, how far the trace lies away: above 1 is out of tolerance.
    """

    what: str
    segment: int
    differs: str
    computed: Digest
    work_word: Digest
    steps: int
    seconds: float
    excess: float = 0.0

    @property
    def key(self) -> str:
        return f"replay:{self.what}:{self.segment}"

    @property
    def matches(self) -> bool:
        return not self.differs and self.excess <= 1.0


@dataclass(frozen=True, slots=True)
class ResidualSeen(Fact):
    """In a tolerant job: how a provider's segment was off, as a sketch of fp32 (`coherence`)."""

    account: Address
    what: str
    segment: int
    sketch: bytes

    @property
    def key(self) -> str:
        return f"residual:{self.account}:{self.what}:{self.segment}"


@dataclass(frozen=True, slots=True)
class LinkChecked(Fact):
    """The update was held against the last state; `fault` is empty where it follows from it."""

    what: str
    fault: str

    @property
    def key(self) -> str:
        return f"link:{self.what}"


@dataclass(frozen=True, slots=True)
class RoundScored(Fact):
    """Which seats are audited in full, as far as the updates at hand tell."""

    what: str
    in_full: tuple[int, ...]

    @property
    def key(self) -> str:
        return f"score:{self.what}"


@dataclass(frozen=True, slots=True)
class RoundMerged(Fact):
    """The next global state, from the accepted updates; it is in the store."""

    what: str
    cid: bytes
    digest: Digest

    @property
    def key(self) -> str:
        return f"merge:{self.what}"


@dataclass(frozen=True, slots=True)
class BlockTaken(Fact):
    """A challenged block was taken from the chain; `was_here` if nobody needed that."""

    unblocks: ClassVar[bool] = True
    digest: Digest
    was_here: bool

    @property
    def key(self) -> str:
        return taken_key(self.digest)


@dataclass(frozen=True, slots=True)
class OutOfReach(Fact):
    """A challenged block could not be fetched when the time to serve it was over."""

    what: str

    @property
    def key(self) -> str:
        return f"reach:{self.what}"


def challenge_name(slot: Slot, report: Report) -> str:
    """Names a challenge by what it says: after a reorg its index may be another's."""
    about = f"{report.seat}:{report.segment}:{report.evidence.hex()}"
    return f"{slot_text(slot)}:{about}"


def taken_key(digest: Digest) -> str:
    """Where `BlockTaken` is found."""
    return f"block:{digest.hex()}"


class Signed(Fact):
    """What was decided to be said on chain: after a restart it is said again, and nothing else."""

    __slots__ = ()

    def content(self) -> bytes:
        """What the journal's guard compares: equal iff the same thing is said."""
        return repr(self).encode()


@dataclass(frozen=True, slots=True)
class BallotSigned(Signed):
    what: str
    findings: tuple[Finding, ...]
    reports: tuple[Report, ...]
    replay_root: Digest

    @property
    def key(self) -> str:
        return f"ballot:{self.what}"


@dataclass(frozen=True, slots=True)
class VoteSigned(Signed):
    what: str
    agree: int
    disagree: int
    cannot_fetch: int

    @property
    def key(self) -> str:
        return f"vote:{self.what}"


@dataclass(frozen=True, slots=True)
class VerdictSigned(Signed):
    """The verdict attested in a slot after one cut, with the preimage that settling needs."""

    what: str
    verdict: Verdict
    verdict_hash: Digest

    @property
    def key(self) -> str:
        return f"verdict:{self.what}"

    def content(self) -> bytes:
        return self.verdict_hash


KINDS: tuple[type[Fact], ...] = (
    *SHARED_KINDS,
    SeatChecked,
    SegmentReplayed,
    ResidualSeen,
    LinkChecked,
    RoundScored,
    RoundMerged,
    BlockTaken,
    OutOfReach,
    BallotSigned,
    VoteSigned,
    VerdictSigned,
)


def seat_work(train_slot: Slot, seat: int, revealed: SeatReveal) -> str:
    """Names a seat's revealed work; another reveal after a reorg is other work."""
    reveal = revealed.reveal
    digests = f"{reveal.trace_root.hex()[:12]}{reveal.update_root.hex()[:12]}"
    return f"{train_slot.round}:{train_slot.attempt}:{seat}:{digests}"


def slot_text(slot: Slot) -> str:
    """Round and attempt; the job is the journal's own column."""
    return f"{slot.round}:{slot.attempt}"
