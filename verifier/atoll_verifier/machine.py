"""The verifier's machine: what a verifier does now, from the chain's mirror and its journal.

Rule of this file: pure. The duties of a round are in `rounds`, what is known about seats is in
`audit`; here they meet those outside of rounds. VERIFIER.md says what is expected.
"""

from __future__ import annotations

from atoll.law.views import SPARE_CHALLENGES
from atoll.law.words import JobStatus, Phase, Role
from atoll.service.commands import SendJoin, SendLeave
from atoll.service.facts import manifest_of
from atoll.service.machine import Command, Decision, Event, advance
from atoll.service.membership import (
    decide_announce,
    decide_material,
    decide_opening,
    has_material,
)
from atoll.service.upkeep import (
    awaits_release,
    decide_claim,
    decide_finalise,
    decide_poke,
    decide_punish,
    decide_release,
    decide_unpin,
    place_in_line,
)
from atoll_verifier.audit import Audit, VerifierSetup, VerifierState
from atoll_verifier.challenges import decide_challenges, decide_notes, decide_take
from atoll_verifier.commands import SendReady
from atoll_verifier.rounds import (
    all_duties,
    decide_attest,
    decide_ballot,
    decide_checks,
    decide_replays,
    decide_settle,
    decide_supplement,
    decide_vote,
)

__all__ = ["VerifierSetup", "VerifierState", "decide", "step"]


def step(state: VerifierState, event: Event) -> tuple[VerifierState, list[Command]]:
    """Takes an event in and says what to start now."""
    return advance(state, event, decide)


def decide(state: VerifierState) -> list[Decision]:
    """Every duty's wish, the urgent ones first."""
    view, setup = state.view, state.setup
    verifier = view.active_verifier_of(state.me)
    line = place_in_line(view, Role.VERIFIER, verifier)
    if setup.behaviour.is_offline(view):
        return [Decision("round", "the behaviour is offline"), *_decide_joining(state)]
    return [
        *_decide_round(state, line),
        decide_poke(state, line, setup.keeper),
        *_decide_joining(state),
        decide_opening(state) if verifier is not None else Decision("opening", "not in the round"),
        decide_finalise(state, line, setup.keeper),
        decide_punish(state, line, setup.keeper),
        decide_claim(state, setup.auto_claim),
        decide_release(state, Role.VERIFIER),
        decide_unpin(state),
    ]


def _decide_round(state: VerifierState, line: int) -> list[Decision]:
    audit = Audit.of(state)
    if audit is None or audit.view.state.phase in {Phase.WAITING, Phase.HALTED, Phase.CLOSED}:
        return [Decision("round", "no part in a running round")]
    return [
        decide_settle(audit, line),
        decide_attest(audit),
        decide_take(audit),
        decide_challenges(audit, all_duties(audit)),
        decide_notes(audit),
        decide_ballot(audit),
        decide_supplement(audit),
        decide_vote(audit),
        decide_checks(audit),
        decide_replays(audit),
    ]


def _decide_joining(state: VerifierState) -> list[Decision]:
    return [
        decide_material(state),
        decide_announce(state, state.setup.gateway_url),
        _decide_membership(state),
        _decide_ready(state),
    ]


def _decide_membership(state: VerifierState) -> Decision:
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


def _decide_ready(state: VerifierState) -> Decision:
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
