"""The verifier's machine: what a verifier does now, from the chain's mirror and its journal.

Rule of this file: pure, and only a list: the duties of VERIFIER.md, the urgent ones first.
"""

from __future__ import annotations

from atoll.law.words import Phase, Role
from atoll.service.duties.claim import decide_claim
from atoll.service.duties.material import decide_material
from atoll.service.duties.membership import decide_announce, decide_release
from atoll.service.duties.opening import decide_opening
from atoll.service.duties.unpin import decide_unpin
from atoll.service.duties.upkeep import (
    decide_finalise,
    decide_poke,
    decide_punish,
    place_in_line,
)
from atoll.service.machine import Decision, Event, Order, advance
from atoll_verifier.audit import Audit
from atoll_verifier.behaviour import VerifierState
from atoll_verifier.duties.attest import decide_attest
from atoll_verifier.duties.ballot import decide_ballot, decide_supplement
from atoll_verifier.duties.challenge import decide_challenges, helping
from atoll_verifier.duties.check import decide_checks
from atoll_verifier.duties.note import decide_notes
from atoll_verifier.duties.place import decide_membership
from atoll_verifier.duties.ready import decide_ready
from atoll_verifier.duties.replay import decide_replays
from atoll_verifier.duties.settle import decide_settle
from atoll_verifier.duties.take import decide_take
from atoll_verifier.duties.vote import decide_vote


def step(state: VerifierState, event: Event) -> tuple[VerifierState, list[Order]]:
    """Folds an event and says what to start now."""
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
        decide_challenges(audit),
        decide_notes(audit),
        decide_ballot(audit),
        decide_supplement(audit),
        decide_vote(audit),
        decide_checks(audit),
        decide_replays(audit, helping),
    ]


def _decide_joining(state: VerifierState) -> list[Decision]:
    return [
        decide_material(state),
        decide_announce(state, state.setup.gateway_url),
        decide_membership(state),
        decide_ready(state),
    ]
