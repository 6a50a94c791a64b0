"""Attests that the manifest and every shard are here, which opens the job."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.chain.calls import Call, Calls
from atoll.law.views import JobView
from atoll.service.commands import ContractCall
from atoll.service.duties.material import has_material
from atoll.service.machine import Decision
from atoll_verifier.behaviour import VerifierState


@dataclass(frozen=True, slots=True)
class SendReady(ContractCall):
    """ "I hold the manifest and every shard." """

    verifier: int

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.attest_ready(view.job_id)


# --- decisions ---


def decide_ready(state: VerifierState) -> Decision:
    """Attests that the manifest and every shard are here, which opens the job."""
    verifier = state.view.verifier_of(state.me)
    if verifier is None or not has_material(state):
        return Decision("ready", "not a verifier, or the data is not here")
    if state.view.verifiers[verifier].ready:
        return Decision("ready", "attested that the data is here")
    if state.view.state.status.is_closed:
        return Decision("ready", "the job is closed")
    if not state.setup.behaviour.may_attest_ready(state.view):
        return Decision("ready", "waits, as its behaviour says")
    return Decision("ready", "the data is here", (SendReady(verifier),))
