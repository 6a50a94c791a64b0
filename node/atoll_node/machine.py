"""The provider's machine: what a provider does now, from the chain's mirror and its journal.

Rule of this file: pure, and only a list: the duties of PROVIDER.md, in the order in which they
matter when several want the same minute.
"""

from __future__ import annotations

from atoll.law.words import Role
from atoll.service.duties.claim import decide_claim
from atoll.service.duties.game import decide_games
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
from atoll_node.behaviour import ProviderState
from atoll_node.duties.answer import decide_answers
from atoll_node.duties.commit import decide_commit
from atoll_node.duties.reveal import decide_reveal
from atoll_node.duties.seat import decide_membership
from atoll_node.duties.train import decide_ahead, decide_train, moments_round


def step(state: ProviderState, event: Event) -> tuple[ProviderState, list[Order]]:
    """Folds an event and says what to start now."""
    return advance(state, event, decide)


def decide(state: ProviderState) -> list[Decision]:
    """Every duty's wish, the urgent ones first."""
    view, setup = state.view, state.setup
    seat = view.active_seat_of(state.me)
    line = place_in_line(view, Role.PROVIDER, seat)
    # Verifiers look after final rounds; a provider does it where none of them does.
    after_verifiers = line + len(view.verifiers)
    return [
        decide_reveal(state, seat),
        decide_commit(state, seat),
        decide_answers(state),
        decide_games(state, setup.behaviour.judge_function),
        decide_poke(state, line, setup.keeper),
        decide_material(state),
        decide_announce(state, setup.gateway_url),
        decide_membership(state),
        decide_opening(state) if seat is not None else Decision("opening", "no seat to train for"),
        decide_ahead(state, seat),
        decide_train(state, seat),
        decide_finalise(state, after_verifiers, setup.keeper),
        decide_punish(state, after_verifiers, setup.keeper),
        decide_claim(state, setup.auto_claim),
        decide_release(state, Role.PROVIDER),
        decide_unpin(state, moments_round(state)),
    ]
