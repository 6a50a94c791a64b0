"""How games about a job's settled rounds change its view.

Rule of this file: one pure function an event. Events of a game name only its number; a view knows
those that were begun about its own job, by the bond that they are about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from atoll.protocol import events as ev
from atoll.protocol.game_records import GameRecord, accusation, parties
from atoll.protocol.games.game_machine import Game
from atoll.protocol.membership import Handler, put
from atoll.protocol.types import BlockRef
from atoll.protocol.views import JobView

GameMove = (
    ev.StepsOpened
    | ev.StepPicked
    | ev.TracePosted
    | ev.LayerRevealed
    | ev.Picked
    | ev.NodePicked
    | ev.LeafPosted
)
"""What one party of a game did."""


def _challenged(view: JobView, event: ev.Challenged, block: BlockRef) -> JobView:
    about = parties(event.claim)
    if about is None or about[0] != view.job_id:
        return view
    game = GameRecord(event.id, event.challenger, event.bond, event.claim, event.evidence)
    return replace(view, games=put(view.games, event.id, game))


def _began(view: JobView, event: ev.Began, block: BlockRef) -> JobView:
    game = view.games.get(event.id)
    if game is None:
        return view
    now = block.timestamp
    return _changed(view, event.id, began_at=now, clock=Game.begin(game.claim, now).clock)


def _moved(view: JobView, event: GameMove, block: BlockRef) -> JobView:
    game = view.games.get(event.id)
    if game is None or game.clock is None:
        return view
    clock = game.clock.moved(game.is_holders_turn, block.timestamp)
    return _changed(view, event.id, moves=(*game.moves, event), clock=clock)


def _testified(view: JobView, event: ev.Testified, block: BlockRef) -> JobView:
    game = view.games.get(event.id)
    if game is None:
        return view
    return _changed(view, event.id, testimonies=put(game.testimonies, event.member, event.is_right))


def _decided(view: JobView, event: ev.Decided, block: BlockRef) -> JobView:
    return _changed(view, event.id, decided=event.outcome)


def _crowded_out(view: JobView, event: ev.CrowdedOut, block: BlockRef) -> JobView:
    """It would challenge, and found the queue full: that counts as if it had."""
    about = parties(event.claim)
    if about is None or about[0] != view.job_id:
        return view
    accused = accusation(event.challenger, event.claim)
    return replace(view, crowded_out=view.crowded_out | {accused})


def _ended(view: JobView, event: ev.Ended, block: BlockRef) -> JobView:
    """What was said in a game that is over decides nothing any more."""
    return _changed(view, event.id, outcome=event.outcome, moves=(), evidence=b"")


def _changed(view: JobView, game: int, **fields: object) -> JobView:
    if game not in view.games:
        return view
    # its own fields
    return replace(view, games=put(view.games, game, replace(view.games[game], **fields)))  # type: ignore[arg-type]


DISPUTE_HANDLERS: Final[Mapping[type, Handler]] = {
    ev.Challenged: _challenged,
    ev.Began: _began,
    ev.StepsOpened: _moved,
    ev.StepPicked: _moved,
    ev.TracePosted: _moved,
    ev.LayerRevealed: _moved,
    ev.Picked: _moved,
    ev.NodePicked: _moved,
    ev.LeafPosted: _moved,
    ev.Testified: _testified,
    ev.Decided: _decided,
    ev.Ended: _ended,
    ev.CrowdedOut: _crowded_out,
}
