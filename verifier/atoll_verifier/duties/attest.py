"""Merges what was accepted, signs the verdict that follows, and attests it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from atoll.chain.calls import Call, Calls
from atoll.errors import ProtocolError
from atoll.law.hashing import verdict_hash
from atoll.law.settlement import build_verdict
from atoll.law.views import JobView
from atoll.law.words import Digest, Phase, Slot, Verdict
from atoll.service.commands import ContractCall, Fact
from atoll.service.machine import Decision
from atoll_verifier.audit import Audit
from atoll_verifier.duties.merge import DoMerge, merging
from atoll_verifier.duties.signing import Signing


@dataclass(frozen=True, slots=True)
class VerdictSigned(Fact):
    """The verdict attested in a slot after one cut, with the preimage that settling needs."""

    verdict: Verdict
    verdict_hash: Digest


@dataclass(frozen=True, slots=True)
class SignVerdict(Signing[VerdictSigned]):
    """Two verdicts for one cut would be equivocation."""

    slot: Slot
    cut: bytes
    said: VerdictSigned

    @property
    def about(self) -> tuple[object, ...]:
        return (self.slot, self.cut)

    @property
    def content(self) -> bytes:
        return self.said.verdict_hash


@dataclass(frozen=True, slots=True)
class SendAttest(ContractCall):
    once: ClassVar[bool] = True
    slot: Slot
    verdict_hash: Digest

    def call(self, calls: Calls, view: JobView) -> Call:
        slot = self.slot
        return calls.attest(slot.job, slot.round, slot.attempt, self.verdict_hash)


# --- decisions ---


def decide_attest(audit: Audit) -> Decision:
    """Merges what was accepted, signs the verdict that follows, and attests it."""
    view = audit.view
    if view.state.phase is not Phase.ATTEST:
        return Decision("attest", "nothing to attest")
    verdict = own_verdict(audit)
    if verdict is None:
        return _decide_verdict(audit)
    if audit.me in view.work.attestations:
        return Decision("attest", f"attested {verdict.verdict_hash.hex()[:16]}")
    if audit.state.now >= view.state.deadline:
        return Decision("attest", "the window to attest is over")
    if audit.state.head.number <= view.state.cut_block:
        return Decision("attest", f"waits for a block after {view.state.cut_block}")
    return Decision("attest", "signed", (SendAttest(view.slot, verdict.verdict_hash),))


def own_verdict(audit: Audit) -> VerdictSigned | None:
    """What we signed for the running cut."""
    return audit.state.facts.of(SignVerdict, *_about(audit))


def _decide_verdict(audit: Audit) -> Decision:
    command = merging(audit)
    merged = audit.state.facts.of(DoMerge, *command.about)
    if merged is None:
        return Decision("attest", "merges the accepted updates", (command,))
    try:
        verdict = build_verdict(audit.view, audit.manifest, merged.digest, merged.cid)
    except ProtocolError as error:
        return Decision("attest", f"no verdict: {error}")
    said = VerdictSigned(verdict, verdict_hash(audit.view.slot, verdict))
    return Decision("attest", "signs the verdict", (SignVerdict(*_about(audit), said),))


def _about(audit: Audit) -> tuple[Slot, bytes]:
    cut = audit.view.work.cut
    return audit.view.slot, b"" if cut is None else cut.hash
