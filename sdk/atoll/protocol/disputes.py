"""How games about a job's settled rounds change its view.

Rule of this file: one pure function an event. Events of a game name only its number; a view knows
those that were begun about its own job, by the bond that they are about. Which of a holder's clocks
runs follows from the moves, as the contract has it: SPEC-GAME.md, 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from atoll.protocol import events as ev
from atoll.protocol.game_records import GameRecord, accusation, parties
from atoll.protocol.games.game_machine import Clock, Game
from atoll.protocol.membership import Handler, put
from atoll.protocol.types import BlockRef, Digest
from atoll.protocol.views import JobView

GameMove = (
    ev.StepsOpened
    | ev.StepPicked
    | ev.TracePosted
    | ev.LayerRevealed
    | ev.Picked
    | ev.NodePicked
    | ev.TokenPicked
    | ev.LeafPosted
)
"""What one party of a game did."""


def _challenged(view: JobView, event: ev.Challenged, block: BlockRef) -> JobView:
    about = parties(event.claim)
    if about is None or about[0] != view.job_id:
        return view
    game = GameRecord(event.id, event.challenger, event.bond, event.claim, event.evidence)
    return replace(view, games=put(view.games, event.id, game))


def _owed(view: JobView, event: ev.Owed, block: BlockRef) -> JobView:
    return _changed(view, event.id, is_owed=True)


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
    view = _changed(view, event.id, moves=(*game.moves, event), clock=clock)
    owing = _owing(view, game.claim.set)
    asks = any(each.id == event.id for each in owing)
    if asks and any(not _clock(each).stands for each in owing if each.id != event.id):
        return _changed(view, event.id, clock=replace(clock, stands=True))
    return _advanced(view, game.claim.set, block.timestamp)


def _owing(view: JobView, set: Digest) -> list[GameRecord]:
    """Games about a bond in which its holder owes a move."""
    return [g for g in view.games.values() if g.claim.set == set and g.owes_holder]


def _clock(game: GameRecord) -> Clock:
    assert game.clock is not None  # it is played
    return game.clock


def _advanced(view: JobView, set: Digest, now: int) -> JobView:
    """Where none of the holder's clocks runs, the oldest of those that stand begins to."""
    owing = _owing(view, set)
    if not owing or any(not _clock(game).stands for game in owing):
        return view
    oldest = min(owing, key=lambda game: game.id)
    return _changed(view, oldest.id, clock=replace(_clock(oldest), since=now, stands=False))


def _decided(view: JobView, event: ev.Decided, block: BlockRef) -> JobView:
    return _gone(_changed(view, event.id, decided=event.outcome), event.id, block)


def _gone(view: JobView, game: int, block: BlockRef) -> JobView:
    """Nobody is to move in it any more."""
    if game not in view.games:
        return view
    return _advanced(view, view.games[game].claim.set, block.timestamp)


def _crowded_out(view: JobView, event: ev.CrowdedOut, block: BlockRef) -> JobView:
    """It would challenge, and found the queue full: that counts as if it had."""
    about = parties(event.claim)
    if about is None or about[0] != view.job_id:
        return view
    accused = accusation(event.challenger, event.claim)
    return replace(view, crowded_out=view.crowded_out | {accused})


def _ended(view: JobView, event: ev.Ended, block: BlockRef) -> JobView:
    """What was said in a game that is over decides nothing any more."""
    view = _changed(view, event.id, outcome=event.outcome, moves=(), evidence=b"")
    return _gone(view, event.id, block)


def _changed(view: JobView, game: int, **fields: object) -> JobView:
    if game not in view.games:
        return view
    # its own fields
    return replace(view, games=put(view.games, game, replace(view.games[game], **fields)))  # type: ignore[arg-type]


DISPUTE_HANDLERS: Final[Mapping[type, Handler]] = {
    ev.Challenged: _challenged,
    ev.Owed: _owed,
    ev.Began: _began,
    ev.StepsOpened: _moved,
    ev.StepPicked: _moved,
    ev.TracePosted: _moved,
    ev.LayerRevealed: _moved,
    ev.Picked: _moved,
    ev.NodePicked: _moved,
    ev.TokenPicked: _moved,
    ev.LeafPosted: _moved,
    ev.Decided: _decided,
    ev.Ended: _ended,
    ev.CrowdedOut: _crowded_out,
}
