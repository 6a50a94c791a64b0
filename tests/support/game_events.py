"""What the contract of games says of a move."""

from __future__ import annotations

from atoll.protocol import events as ev
from atoll.protocol.games.game_machine import Game, GamePhase
from atoll.protocol.games.moves import (
    Move,
    OpenSteps,
    Pick,
    PickNode,
    PickStep,
    PickToken,
    PostLeaf,
    PostTrace,
    PostUpdateProof,
    Reveal,
)


def events_of(move: Move, after: Game) -> list[ev.ContractEvent]:
    """What the contract says of a move: of the last one, only how the game ended."""
    match move:
        case OpenSteps():
            return [ev.StepsOpened(1, move.states, move.works)]
        case PickStep():
            return [ev.StepPicked(1, after.step)]
        case PostTrace() | PostUpdateProof() if after.phase is GamePhase.PICK:
            return [ev.TracePosted(1, after.trace, after.nodes, move.layer)]
        case Pick():
            return [ev.Picked(1, after.level, after.index)]
        case PickNode():
            return [ev.NodePicked(1, after.node or 0, move.digest, after.size)]
        case PickToken():
            assert after.token is not None
            return [ev.TokenPicked(1, after.token)]
        case Reveal():
            return [ev.LayerRevealed(1, move.layer)]
        case PostLeaf():
            return [ev.LeafPosted(1, move.leaf)]
    return []
