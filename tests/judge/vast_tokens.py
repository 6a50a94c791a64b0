"""Disputes about a sampled token at the sizes of real models: `pickToken`, and the proofs
in the token's own trace.

Rule of this file: as `vast`. The token is of the last micro-batch's last sequence, and in its
answer, so that everything is read that a token may follow from.
"""

from __future__ import annotations

from dataclasses import replace

from tests.judge.set_games import at_proof, last_move_gas, rows_of
from tests.judge.table import Table, bonded
from tests.judge.vast import Vast, World

from atoll.numerics.trace.opcodes import Op
from atoll.protocol.games.judge import Operations
from atoll.protocol.games.moves import TOKEN_BYTES, PickToken
from atoll.protocol.games.players import answered, attack
from atoll.protocol.games.trees import top
from atoll.protocol.program import Part, TraceTemplate
from atoll.protocol.types import Address


def is_of_token(world: World, part: int) -> bool:
    """Whether a part of the program is the trace of a token."""
    header = world.program.header
    return header.is_sampled and part >= header.generation_part(Part.STEP)


def _template_of(world: World, op: Op) -> TraceTemplate:
    return next(t for t in world.program.templates if t.op == op)


class _Tokens(Vast):
    """A party to the dispute about a step's tokens, before one of them is picked.

    Attributes:
        picked: the token's number in the step's batch.
    """

    def __init__(self, world: World, operations: Operations, *, wrong: bool = False) -> None:
        template = _template_of(world, Op.GENERATED)
        _, _, _, place, *_ = _template_of(world, Op.TOKEN).words  # as many as may be sampled
        count = template.size // TOKEN_BYTES
        inside = count - (world.program.header.seq + 1) + place
        node = template.first + (template.count - 1) * template.stride
        element = inside * TOKEN_BYTES // template.width
        super().__init__(world, Part.STEP, node, element, operations, wrong=wrong)
        self.picked = (template.count - 1) * count + inside


class _OfToken(Vast):
    """A party to a dispute about an element of that token's trace."""

    def __init__(
        self,
        outer: _Tokens,
        part: int,
        node: int,
        element: int,
        operations: Operations,
        *,
        wrong: bool = False,
    ) -> None:
        super().__init__(outer.world, part, node, element, operations, wrong=wrong)
        self.outer, self.token = outer, outer.picked

    def trace(self, step: int) -> Vast:
        return self.outer

    def token_trace(self, step: int, token: int) -> Vast:
        assert token == self.token
        return self


def pick_gas(table: Table, world: World) -> int:
    """Gas of `pickToken`."""
    holder, honest = (_Tokens(world, table.operations, wrong=wrong) for wrong in (True, False))
    claim = bonded(holder.claim(Address(table.holder)), 0)
    game = at_proof(holder, claim)
    move = answered(attack(game, honest), table.operations)
    assert isinstance(move, PickToken)
    return last_move_gas(table, claim, game, move)


def token_proof_gas(table: Table, world: World, part: int, node: int, element: int) -> int:
    """Gas of the last move of a game about this element of a token's trace."""
    operations = table.operations
    holder, honest = (
        _OfToken(
            _Tokens(world, operations, wrong=wrong), part, node, element, operations, wrong=wrong
        )
        for wrong in (True, False)
    )
    claim = bonded(holder.claim(Address(table.holder)), 0)
    outer = at_proof(holder.outer, claim)
    tokens = holder.outer.tensor(holder.outer.node)
    outer = replace(outer, tensor_layers=rows_of(tokens, outer.index))
    found = at_proof(holder, claim)
    game = replace(found, part=part, token=holder.token, generated=top(tokens), outer=outer)
    return last_move_gas(table, claim, game, answered(attack(game, honest), operations))
