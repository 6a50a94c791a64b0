"""The verifier's machine: what a verifier does now, from the chain's mirror and its journal.

Rule of this file: pure, and only a list: the duties of VERIFIER.md, the urgent ones first.
"""

from __future__ import annotations

from atoll.protocol.obligations import obligations_of
from atoll.protocol.types import Role
from atoll.service.duties.disagreement import decide_disagreement, decide_model, disagreement
from atoll.service.duties.equivocation import decide_equivocation
from atoll.service.duties.evaluation import decide_evaluation
from atoll.service.duties.game import decide_games
from atoll.service.duties.join_and_leave import decide_announce, decide_membership
from atoll.service.duties.material import decide_material
from atoll.service.duties.send_keeper_calls import decide_keeper_calls, decide_pay, position_in_line
from atoll.service.duties.send_late_votes import decide_late_votes
from atoll.service.duties.strike import decide_strike
from atoll.service.duties.unpin import decide_unpin
from atoll.service.duties.updates import decide_updates
from atoll.service.machine import Decision, Event, Order, advance
from atoll.service.orders import why_out
from atoll_verifier.behaviour import VerifierState
from atoll_verifier.duties.audit import decide_audit
from atoll_verifier.duties.committee import decide_committee


def step(state: VerifierState, *events: Event) -> tuple[VerifierState, list[Order]]:
    """Folds events and says what to start now."""
    return advance(state, events, decide)


def decide(state: VerifierState) -> list[Decision]:
    """Every duty's wish, the urgent ones first."""
    view, setup = state.view, state.setup
    if view.terms is None:
        return [Decision("job", "is not known yet")]
    behaviour, held = setup.behaviour, view.standing(state.me)
    may_join, pick = behaviour.may_join(view), behaviour.pick_index
    out = why_out(state)
    looks = not out or view.is_bound(state.me)
    stops = out or ("its own merge is another" if disagreement(state) is not None else "")
    joining = [
        *([decide_material(state)] if looks else []),
        decide_announce(state, setup.gateway_url),
        decide_membership(state, Role.VERIFIER, may_join, pick, stops=stops),
    ]
    if behaviour.is_offline(view):
        return [Decision("round", "the behaviour is offline"), *joining]
    owed = obligations_of(view, state.me, state.now)
    line = position_in_line(view, state.me)
    return [
        *decide_committee(state, owed, line),
        decide_disagreement(state),
        decide_audit(state, owed),
        decide_late_votes(state),
        decide_games(state, behaviour.judge_function, setup.keeper),
        decide_keeper_calls(state, line, setup.keeper),
        *joining,
        *([] if held is None else [decide_model(state), decide_updates(state)]),
        *([] if held is None else [decide_evaluation(state)]),
        decide_equivocation(state),
        decide_strike(state),
        decide_pay(state, setup.auto_claim),
        decide_unpin(state, looks=looks),
    ]
