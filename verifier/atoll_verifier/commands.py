"""Effects that only a verifier asks for."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.law.merge_inputs import MergeFacts
from atoll.law.words import Address, Digest, Finding, Report, Reveal, Slot, Verdict
from atoll.service.commands import Transaction, Work
from atoll.service.journal import Fact
from atoll_verifier.facts import Signed


@dataclass(frozen=True, slots=True)
class SeatWork:
    """A seat's revealed work and what it is held against; the argument of every check.

    Attributes:
        what: its name in the journal.
        slot: carries the attempt that trained.
        account: the provider's.
        gateway: where it serves; asked first.
        opening: CID of the round's global state, `params_root` of its parameters.
        optimiser_root: what the seat must have opened with.
    """

    what: str
    slot: Slot
    seat: int
    reveal: Reveal
    account: Address
    gateway: str
    data_seed: Digest
    manifest: bytes
    opening: bytes
    params_root: Digest
    optimiser_root: Digest


@dataclass(frozen=True, slots=True)
class DoCheck(Work):
    """Fetch a seat's update and trace document, and check what is cheap to check."""

    work: SeatWork

    @property
    def key(self) -> str:
        return f"check:{self.work.what}"


@dataclass(frozen=True, slots=True)
class DoReplay(Work):
    """Fetch a segment's opening state (in a tolerant job the closing one too), train it again."""

    work: SeatWork
    segment: int

    @property
    def key(self) -> str:
        return f"replay:{self.work.what}:{self.segment}"


@dataclass(frozen=True, slots=True)
class DoLink(Work):
    """Fetch a seat's last state and hold the update against it."""

    work: SeatWork

    @property
    def key(self) -> str:
        return f"link:{self.work.what}"


@dataclass(frozen=True, slots=True)
class RevealedUpdate:
    """Where a candidate's update is, and what its bytes must hash to."""

    seat: int
    cid: bytes
    root: Digest


@dataclass(frozen=True, slots=True)
class DoScore(Work):
    """Find who is audited in full, of the updates at hand."""

    what: str
    round: int
    manifest: bytes
    opening: bytes
    facts: MergeFacts
    data_seed: Digest
    updates: tuple[RevealedUpdate, ...]

    @property
    def key(self) -> str:
        return f"score:{self.what}"


@dataclass(frozen=True, slots=True)
class DoMerge(Work):
    """Merge what the evidence prescribes; `updates` are those of every candidate."""

    what: str
    round: int
    manifest: bytes
    opening: bytes
    facts: MergeFacts
    data_seed: Digest
    updates: tuple[RevealedUpdate, ...]

    @property
    def key(self) -> str:
        return f"merge:{self.what}"


@dataclass(frozen=True, slots=True)
class DoTake(Work):
    """Store a block that answers a challenge."""

    digest: Digest
    block: bytes

    @property
    def key(self) -> str:
        return f"take:{self.digest.hex()}"


@dataclass(frozen=True, slots=True)
class DoNote(Work):
    """Write down what is seen now and could not be told later."""

    fact: Fact

    @property
    def key(self) -> str:
        return f"note:{self.fact.key}"


@dataclass(frozen=True, slots=True)
class DoSign(Work):
    """Claim the slot in the journal for this content; nothing is sent that was not signed so."""

    signed: Signed

    @property
    def key(self) -> str:
        return f"sign:{self.signed.key}"


@dataclass(frozen=True, slots=True)
class SendReady(Transaction):
    """ "I hold the manifest and every shard." """

    verifier: int

    @property
    def key(self) -> str:
        return f"ready:{self.verifier}"


@dataclass(frozen=True, slots=True)
class SendChallenge(Transaction):
    """Say that nobody serves the block that the report's evidence names."""

    slot: Slot
    report: Report

    @property
    def key(self) -> str:
        report, at = self.report, f"{self.slot.round}:{self.slot.attempt}"
        return f"challenge:{at}:{report.seat}:{report.segment}:{report.evidence.hex()[:16]}"


@dataclass(frozen=True, slots=True)
class SendWithdraw(Transaction):
    """Take our part in a challenge back."""

    slot: Slot
    index: int

    @property
    def key(self) -> str:
        return f"withdraw:{self.slot.round}:{self.slot.attempt}:{self.index}"


@dataclass(frozen=True, slots=True)
class SendBallot(Transaction):
    slot: Slot
    what: str
    findings: tuple[Finding, ...]
    reports: tuple[Report, ...]
    replay_root: Digest

    @property
    def key(self) -> str:
        return f"ballot:{self.what}"


@dataclass(frozen=True, slots=True)
class SendVote(Transaction):
    slot: Slot
    what: str
    agree: int
    disagree: int
    cannot_fetch: int

    @property
    def key(self) -> str:
        return f"vote:{self.what}"


@dataclass(frozen=True, slots=True)
class SendAttest(Transaction):
    slot: Slot
    verdict_hash: Digest

    @property
    def key(self) -> str:
        return f"attest:{self.slot.round}:{self.slot.attempt}:{self.verdict_hash.hex()[:16]}"


@dataclass(frozen=True, slots=True)
class SendSettle(Transaction):
    slot: Slot
    verdict: Verdict
    verdict_hash: Digest

    @property
    def key(self) -> str:
        return f"settle:{self.slot.round}:{self.slot.attempt}:{self.verdict_hash.hex()[:16]}"
