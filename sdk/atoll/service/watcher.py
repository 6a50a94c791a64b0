"""An outsider with a bond: follows jobs, replays settled rounds, disputes what is wrong, plays.

It is no member of any job and nobody's verifier. Rule of this file: pure but for `serve`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from atoll.protocol.types import Address, Digest
from atoll.service.config import ServiceConfig
from atoll.service.duties.game import PLAY, Play, decide_games
from atoll.service.duties.material import decide_material
from atoll.service.duties.replay_seat import REPLAY, Replay
from atoll.service.duties.send_keeper_calls import (
    WATCHED,
    decide_keeper_calls,
    position_in_line,
)
from atoll.service.duties.strike import decide_strikes
from atoll.service.duties.unpin import decide_unpin
from atoll.service.duties.watch import Looks, decide_watch
from atoll.service.machine import Decision, Event, Order, Setup, State, advance
from atoll.service.role import run_role


@dataclass(frozen=True, slots=True)
class Player:
    """What a player that is no member does.

    Attributes:
        watches: whether it looks for what is wrong; else it only plays the games that it is in,
            as a provider does whose own service is down.
        function: the worker's function that makes moves; replay: that replays rounds.
        share: of every round's seats, which it replays; keys: that it was told.
        defends: a holder that named this account its delegate, whose games it plays, too.
    """

    watches: bool = True
    function: Play = PLAY
    replay: Replay = REPLAY
    share: float = 1.0
    keys: tuple[Digest, ...] = ()
    defends: Address | None = None


PlayerState: TypeAlias = State[Setup[Player]]


def step(state: PlayerState, *events: Event) -> tuple[PlayerState, list[Order]]:
    """Folds events and says what to start now."""
    return advance(state, events, decide)


def decide(state: PlayerState) -> list[Decision]:
    """Every duty's wish, the urgent ones first."""
    player = state.setup.behaviour
    has_part = player.defends is not None and state.view.holder_of(player.defends) is not None
    material = decide_material(state, looks_on=player.watches or has_part)
    games = decide_games(state, player.function, state.setup.keeper, defends=player.defends)
    decisions = [games, material]
    if player.watches and state.view.terms is not None:
        looks = Looks(player.share, player.keys, player.replay)
        decisions += [decide_watch(state, looks), decide_strikes(state)]
        line = position_in_line(state.view, state.me)
        decisions.append(decide_keeper_calls(state, line, state.setup.keeper, WATCHED))
    return [*decisions, decide_unpin(state)]


async def serve(config: ServiceConfig, player: Player | None = None) -> None:
    """Plays until cancelled.

    Raises:
        ConfigError, KeystoreError, ChainError: it cannot start; nothing was sent.
    """
    await run_role("player", config, player or Player(), step)
