"""Moves of games about rounds that nobody trained: both sides' runs are made up.

Rule of this file: a move follows from what the chain said before it, as a player's does; that it is
legal is for the contract to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.identities import digest
from tests.support.toys import TOY
from tests.unit.protocol.models import HEADER, LEAVES, PROGRAM, TEMPLATE

from atoll.protocol.game_records import GameRecord
from atoll.protocol.games.game_machine import Game, GamePhase, result_of
from atoll.protocol.games.moves import Claim, Move, ProgramPart
from atoll.protocol.games.players import NothingDiffers, answered, attack, defend
from atoll.protocol.games.trees import MemoryTree, piece_tree, top
from atoll.protocol.merkle import merkle_proof
from atoll.protocol.played import rebuilt
from atoll.protocol.types import Digest

_WORK = 8 + 4 * HEADER.micro_batches


def works_of(name: str) -> bytes:
    """A segment's norms and losses, all of them finite."""
    work = b"\x3f" + digest(f"norm {name}")[:7] + (b"\x3f" + digest(f"loss {name}")[:3])
    return work * HEADER.segment


@dataclass(frozen=True)
class Run:
    """A step that one side says it ran: nodes of `TEMPLATE.size` bytes, and the result."""

    name: str
    result: Digest

    def read(self, node: int, start: int, end: int) -> bytes:
        return digest(f"{self.name} {node}")[: TEMPLATE.size][start:end]

    def tensor(self, node: int) -> MemoryTree:
        return piece_tree(self.read(node, 0, TEMPLATE.size))

    @property
    def tree(self) -> MemoryTree:
        nodes = [top(self.tensor(node)) for node in range(HEADER.step_nodes - 1)]
        return MemoryTree([*nodes, self.result])


@dataclass(frozen=True)
class Side:
    """What one side knows of a claim.

    Attributes:
        name: what its run is made up from; another's is another run.
        works: as the holder's word says, where a key shows it.
    """

    name: str
    claim: Claim
    works: bytes

    @property
    def header(self) -> ProgramPart:
        return ProgramPart(HEADER.to_bytes(), 0, PROGRAM.leaves, PROGRAM.proof)

    def template(self, node: int) -> ProgramPart:
        proof = tuple(merkle_proof(LEAVES, 1))
        return ProgramPart(TEMPLATE.to_bytes(), 1, PROGRAM.leaves, proof)

    @property
    def states(self) -> list[Digest]:
        between = [digest(f"{self.name} {step}") for step in range(HEADER.segment - 1)]
        return [*between, self.claim.closing]

    def trace(self, step: int) -> Run:
        at = step % HEADER.segment
        work = self.works[at * _WORK : (at + 1) * _WORK]
        return Run(f"{self.name} {step}", result_of(self.states[at], work))


def move_of(record: GameRecord, works: Mapping[Digest, bytes]) -> tuple[bool, Move] | None:
    """A move of a game that has begun, and whether it is the holder's; None where there is none.

    Nobody proves anything: of a run that is made up nothing can be computed.

    Args:
        works: of segments, by their plain work tags.
    """
    claim = record.claim
    game: Game = rebuilt(claim, record.began_at, record.moves)
    if game.phase is GamePhase.PROVE or record.decided:
        return None
    said = works.get(claim.work_tag, works_of("another"))
    by_holder = game.phase.is_holders
    side = Side("holder" if by_holder else "challenger", claim, said)
    if by_holder:
        return True, defend(game, side)
    try:
        return False, answered(attack(game, side), TOY)
    except NothingDiffers:
        return None
