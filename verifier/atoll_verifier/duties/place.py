"""Joins with a bond once the data is here; leaves when asked to."""

from __future__ import annotations

from atoll.law.views import SPARE_CHALLENGES
from atoll.law.words import JobStatus, Role
from atoll.service.duties.material import has_material, manifest_of
from atoll.service.duties.membership import SendJoin, SendLeave, awaits_release
from atoll.service.machine import Decision
from atoll_verifier.behaviour import VerifierState


def decide_membership(state: VerifierState) -> Decision:
    """Joins with a bond once the data is here; leaves when asked to."""
    view, verifier = state.view, state.view.verifier_of(state.me)
    if view.state.status.is_closed or view.state.status is JobStatus.NONE:
        return Decision("membership", f"the job is {view.state.status.name}")
    if state.draining and verifier is not None and not view.verifiers[verifier].leaving:
        return Decision("membership", "asked to leave", (SendLeave(Role.VERIFIER),))
    if state.draining or verifier is not None:
        return Decision("membership", f"is verifier {verifier}, draining: {state.draining}")
    obstacle = _obstacle(state)
    if obstacle:
        return Decision("membership", obstacle)
    return Decision("membership", "joins", (SendJoin(Role.VERIFIER, _stake(state)),))


def _obstacle(state: VerifierState) -> str:
    """Why we do not join now; empty where we do."""
    if not has_material(state):
        return "joins once manifest and data are here"
    if awaits_release(state, Role.VERIFIER):
        return "joins again once the earlier bond is released"
    if not state.setup.behaviour.may_join(state.view):
        return "waits with joining, as its behaviour says"
    return ""


def _stake(state: VerifierState) -> int:
    """Wei: the bond, and what one audit's reports and challenges may lock.

    In a tolerant job a seat may be reported again in each attempt.
    """
    terms, manifest = state.view.require_terms(), manifest_of(state.facts)
    again = manifest is not None and manifest.numerics.mode == "tolerant"
    reports = terms.seats * (terms.attempts if again else 1)
    challenges = terms.seats + SPARE_CHALLENGES
    return terms.verifier_bond + (reports + challenges) * terms.report_bond
