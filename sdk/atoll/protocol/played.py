"""A game as the chain tells it: the chain is a player's only memory.

Rule of this file: pure; nothing but the chain's events is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from atoll.protocol import events as ev
from atoll.protocol.games.game_machine import Game, GamePhase
from atoll.protocol.games.moves import Claim
from atoll.protocol.games.trees import MerkleLayer, height, layer_levels, pieces_of
from atoll.protocol.types import Digest

_CHALLENGERS: Final = ev.StepPicked | ev.Picked | ev.NodePicked | ev.TokenPicked


def is_holders_turn(moves: Sequence[object]) -> bool:
    """Whose turn it is in a game that has begun and is not over: the holder's or the other's."""
    return not moves or isinstance(moves[-1], _CHALLENGERS)


def rebuilt(claim: Claim, began_at: int, moves: Sequence[object]) -> Game:
    """The game after these moves, as far as a player needs it.

    What only a proof is checked against (`Game.disputed`) is not in it: a player has its own run's.
    Its clocks are those of the beginning: `Game.deadlineOf` tells how much time is left.

    Raises:
        ValueError: the moves are not of one game in the chain's order.
    """
    game = Game.begin(claim, began_at)
    for move in moves:
        game = _after(game, move)
    return game


def _after(game: Game, move: object) -> Game:
    match move:
        case ev.StepsOpened(_, states, works):
            first = game.claim.segment * len(states)
            return replace(game, phase=GamePhase.PICK_STEP, states=states, works=works, step=first)
        case ev.TracePosted(_, root, nodes, layer):
            game = replace(game, trace=root, tree=root, nodes=nodes, level=height(nodes), index=0)
            return replace(_with_layer(game, layer), phase=GamePhase.PICK)
        case ev.LayerRevealed(_, layer):
            return replace(_with_layer(game, layer), phase=GamePhase.PICK)
        case ev.LeafPosted(_, leaf):
            return replace(game, phase=GamePhase.PROVE, leaf=leaf)
    return _picked(game, move)


def _picked(game: Game, move: object) -> Game:
    match move:
        case ev.StepPicked(_, step):
            return replace(game, phase=GamePhase.POST_TRACE, step=step)
        case ev.Picked(_, level, index):
            phase = GamePhase.REVEAL if level else GamePhase.POST_LEAF
            return replace(game, level=level, index=index, phase=phase)
        case ev.NodePicked(_, node, _, size):
            level = height(pieces_of(size))
            phase = GamePhase.REVEAL if level else GamePhase.POST_LEAF
            return replace(game, node=node, size=size, level=level, index=0, phase=phase)
        case ev.TokenPicked(_, token):
            nested = replace(game, token=token, outer=game, node=None, layers=(), tensor_layers=())
            return replace(nested, phase=GamePhase.POST_TRACE, leaf=b"")
    raise ValueError(f"{move} is no move of a game")


def _with_layer(game: Game, nodes: tuple[Digest, ...]) -> Game:
    levels = layer_levels(game.level)
    layer = MerkleLayer(game.level - levels, game.index << levels, nodes)
    if game.node is None:
        return replace(game, layers=(*game.layers, layer))
    return replace(game, tensor_layers=(*game.tensor_layers, layer))
