"""The provider's machine: what a provider does now, from the chain's mirror and its journal.

Rule of this file: pure, and only a list: the duties of PROVIDER.md, in the order in which they
matter when several want the same minute.
"""

from __future__ import annotations

from atoll.protocol.obligations import obligations_of
from atoll.protocol.types import Role
from atoll.service.duties.disagreement import (
    decide_disagreement,
    decide_model,
    disagreement,
    may_disagree,
)
from atoll.service.duties.equivocation import decide_equivocation
from atoll.service.duties.game import decide_games
from atoll.service.duties.join_and_leave import decide_announce, decide_membership
from atoll.service.duties.material import decide_material
from atoll.service.duties.send_keeper_calls import decide_keeper_calls, decide_pay, position_in_line
from atoll.service.duties.send_late_votes import decide_grants
from atoll.service.duties.strike import decide_strike
from atoll.service.duties.unpin import decide_unpin
from atoll.service.machine import Decision, Event, Order, advance, begun_ahead
from atoll.service.orders import why_out
from atoll_node.behaviour import ProviderState
from atoll_node.duties.commit import decide_owed
from atoll_node.duties.push import decide_push
from atoll_node.duties.serve import decide_serve
from atoll_node.duties.train import (
    decide_fetching,
    decide_merge,
    decide_train,
    is_hopeless,
    owes_reveal,
    seat_of,
)


def step(state: ProviderState, *events: Event) -> tuple[ProviderState, list[Order]]:
    """Folds events and says what to start now."""
    return advance(state, events, decide)


def decide(state: ProviderState) -> list[Decision]:
    """Every duty's wish, the urgent ones first."""
    view, setup, seat = state.view, state.setup, seat_of(state)
    if view.terms is None:
        return [Decision("job", "is not known yet")]
    line = position_in_line(view, state.me)
    behaviour, stopped = setup.behaviour, disagreement(state) is not None
    may_join, pick = behaviour.may_join(view), behaviour.pick_index
    out = why_out(state)
    looks = not out or view.is_bound(state.me)
    stops = out or ("its own merge is another" if stopped and not may_disagree(state) else "")
    stops = stops or ("its training diverges" if is_hopeless(state) else "")
    model = [] if stopped and not owes_reveal(state, seat) else [decide_model(state)]
    has_seat = [*model, decide_fetching(state), decide_merge(state)]
    return [
        decide_disagreement(state),
        decide_owed(state, obligations_of(view, state.me, state.now)),
        decide_serve(state),
        decide_push(state),
        decide_grants(state),
        decide_games(state, behaviour.judge_function, setup.keeper),
        decide_keeper_calls(state, line, setup.keeper),
        *([decide_material(state)] if looks else []),
        decide_announce(state, setup.gateway_url),
        decide_membership(state, Role.PROVIDER, may_join, pick, stops=stops),
        *(has_seat if seat is not None else ()),
        decide_train(state),
        *begun_ahead(state, _train_on),
        decide_equivocation(state),
        decide_strike(state),
        decide_pay(state, setup.auto_claim),
        decide_unpin(state, looks=looks),
    ]


def _train_on(state: ProviderState) -> list[Decision]:
    """What brings the next round's training, unconfirmed as it is.

    Updates are not among it: they are brought to who needs them once their reveals are confirmed.
    """
    if state.view.terms is None or seat_of(state) is None:
        return []
    return [
        decide_serve(state),
        decide_merge(state),
        decide_train(state),
    ]
