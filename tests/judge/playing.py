"""Whole games on a chain: each move from a player, sent, and followed by the pure machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from tests.judge.table import Bill, Table, bonded
from tests.support.game_events import events_of

from atoll.protocol import events as ev
from atoll.protocol.games.game_machine import Game, GamePhase, Outcome
from atoll.protocol.games.moves import Claim, Move
from atoll.protocol.games.players import Knowledge, answered, attack, defend
from atoll.protocol.played import rebuilt
from atoll.protocol.types import Address

NOW = 1_800_000_000


@dataclass(frozen=True, slots=True)
class Played:
    """A game that is over.

    Attributes:
        game: as the pure machine has it.
        proof_gas: of the last move's transaction.
    """

    game: Game
    outcome: Outcome
    bill: Bill
    proof_gas: int


@dataclass(frozen=True, slots=True)
class Turn:
    """Who is to move has decided on a move in a game."""

    id: int
    claim: Claim
    game: Game
    move: Move

    def tried(self, table: Table, move: Move) -> int:
        """Sends another move in its place, by the same side. Raises Refused."""
        return table.move(self.id, self.claim, move, by_holder=self.game.phase.is_holders)


Before: TypeAlias = Callable[[Turn], None]


def play(
    table: Table,
    number: int,
    claim: Claim,
    holder: Knowledge,
    rival: Knowledge,
    before: Before | None = None,
) -> Played:
    """A game on a set of its own; both players make every move that they can make.

    They know only what they ran, and what the chain says.

    Args:
        number: of the set.
        before: is called ahead of each move, and may try others.

    Raises:
        Refused: the chain refused a move.
        NothingDiffers: the challenger finds nothing that it computed otherwise.
    """
    claim = bonded(replace(claim, holder=Address(table.holder)), number)
    bill = Bill()
    id_, gas = table.challenge(claim)
    bill.add(gas, by_holder=False)
    game, said = Game.begin(claim, NOW), list[ev.ContractEvent]()
    while game.phase < GamePhase.DECIDED:
        by_holder, known = game.phase.is_holders, rebuilt(claim, NOW, said)
        if by_holder:
            move = defend(known, holder)
        else:
            move = answered(attack(known, rival), table.operations)
        if before is not None:
            before(Turn(id_, claim, game, move))
        gas = table.move(id_, claim, move, by_holder=by_holder)
        bill.add(gas, by_holder=by_holder)
        game = game.play(move, by_holder, NOW, table.operations)
        said += events_of(move, game)
    assert table.outcome(id_) == (game.phase, game.outcome)
    bill.add(table.conclude(id_), by_holder=False)
    return Played(game, table.outcome(id_)[1], bill, gas)
