"""Settles once a quorum stands behind our verdict; others wait their turn in blocks."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.chain.calls import Call, Calls
from atoll.law.terms import is_quorum
from atoll.law.views import JobView
from atoll.law.words import Digest, Phase, Slot, Verdict
from atoll.service.commands import ContractCall
from atoll.service.machine import Decision
from atoll_verifier.audit import Audit
from atoll_verifier.duties.attest import own_verdict


@dataclass(frozen=True, slots=True)
class SendSettle(ContractCall):
    slot: Slot
    verdict: Verdict
    verdict_hash: Digest

    @property
    def about(self) -> tuple[object, ...]:
        return (self.slot, self.verdict_hash)

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.settle(self.slot.job, self.verdict)


# --- decisions ---


def decide_settle(audit: Audit, line: int) -> Decision:
    """Settles once a quorum stands behind our verdict; others wait their turn in blocks."""
    view, terms = audit.view, audit.manifest.terms
    verdict = own_verdict(audit) if view.state.phase is Phase.ATTEST else None
    if verdict is None:
        return Decision("settle", "no verdict of ours")
    weight = view.attested_weight(verdict.verdict_hash)
    if not is_quorum(weight, view.state.total_weight, terms):
        return Decision("settle", f"{weight} of {view.state.total_weight} wei stand behind it")
    turn = view.block.number + line * audit.state.setup.keeper.stagger_blocks
    if audit.state.head.number < turn:
        return Decision("settle", f"leaves it to others until block {turn}")
    command = SendSettle(view.slot, verdict.verdict, verdict.verdict_hash)
    return Decision("settle", "a quorum stands behind it", (command,))
