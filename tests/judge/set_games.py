"""Games that are set to be as far as their last move, about steps of `vast`, and its gas."""

from __future__ import annotations

from typing import Any, Final

from tests.judge.table import Table, bonded
from tests.judge.vast import NOW, Vast, World

from atoll.protocol.games.game_machine import Game, GamePhase
from atoll.protocol.games.moves import Claim, Move
from atoll.protocol.games.players import answered, attack
from atoll.protocol.games.trees import (
    PIECE,
    MerkleLayer,
    Tree,
    height,
    layer_levels,
    layer_of,
    top,
    words_tree,
)
from atoll.protocol.hashing import keccak256
from atoll.protocol.program import Part
from atoll.protocol.types import Address

MEASURED: Final = 1 << 32
"""The number of the game that is set. The contract's queues take 0 for no game: what is set there
would be an open game in every one of them."""


def at_proof(party: Vast, claim: Claim) -> Game:
    """The game before its last move, whose holder this party is."""
    program, part = party.world.program, party.part
    template = party.world.template(part, party.node)
    index = party.element * template.width // PIECE
    leaf = party.read(party.node, index * PIECE, min((index + 1) * PIECE, template.size))
    is_update_proof = part == Part.UPDATE_PROOF
    return Game(
        claim=claim,
        clock=Game.begin(claim, NOW).clock,
        phase=GamePhase.PROVE,
        start=claim.initial_state,
        result=party.tree.leaf(party.tree.count - 1),
        step=program.header.steps if is_update_proof else 0,
        header=party.header.data,
        template=template.to_bytes(),
        nodes=party.tree.count,
        trace=top(party.tree),
        tree=top(words_tree(leaf)),
        index=index,
        node=party.node,
        size=template.size,
        layers=rows_of(party.tree, party.node),
        leaf=leaf,
    )


def rows_of(tree: Tree, node: int) -> tuple[MerkleLayer, ...]:
    """Those that lead to a leaf of a tree: a node of a trace, or a piece of one."""
    layers, level = [], height(tree.count)
    while True:
        below = level - layer_levels(level)
        first = node >> level << (level - below)
        layers.append(MerkleLayer(below, first, layer_of(tree, level, node >> level)))
        if below == 0:
            return tuple(layers)
        level = below


def fields_of(game: Game, table: Table, now: int) -> dict[str, Any]:
    """What the contract keeps of a game before its last move."""
    claim = game.claim
    return {
        "challenger": table.challenger,
        "since": now,
        "moveSeconds": claim.move_seconds,
        "isOwed": False,
        "holder": claim.holder,
        "holderLeft": claim.holder_seconds,
        "challengerLeft": claim.challenger_seconds,
        "phase": game.phase,
        "outcome": 0,
        "isUpdateProof": claim.is_update_proof,
        "inTensor": True,
        "bond": claim.lowest_bond,
        "latestStart": claim.window_end,
        "step": game.step,
        "level": 0,
        "takes": 0,
        "claim": claim.hash,
        "set": claim.set,
        "position": claim.position,
        "header": keccak256(game.header),
        "from": game.start,
        "result": game.result,
        "trace": game.trace,
        "tree": game.tree,
        "template": keccak256(game.template),
        "nodes": game.nodes,
        "node": game.node,
        "index": game.index,
        "size": game.size,
        "part": game.part,
        "takingNodes": 0,
        "token": game.token or 0,
        "generated": game.generated,
    }


def proof_gas(table: Table, world: World, part: int, node: int, element: int) -> int:
    """Gas of the last move of a game about this element, on a chain with `SetGame`."""
    party = Vast(world, part, node, element, table.operations, wrong=True)
    honest = Vast(world, part, node, element, table.operations)
    claim = bonded(party.claim(Address(table.holder)), 0)
    game = at_proof(party, claim)
    move = answered(attack(game, honest), table.operations)
    return last_move_gas(table, claim, game, move)


def last_move_gas(table: Table, claim: Claim, game: Game, move: Move) -> int:
    """Of a game that is set to be as far as that, on a chain with `SetGame`."""
    now = int(table.node.ask("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
    table.set(MEASURED, fields_of(game, table, now))
    return table.move(MEASURED, claim, move, by_holder=False)
