"""Games between two runs of a real job, up to the operation that would have to be proved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tests.support.game_events import events_of

from atoll.numerics.segment import Course
from atoll.protocol import events as ev
from atoll.protocol.games.game_machine import Game, GamePhase
from atoll.protocol.games.judge import Need
from atoll.protocol.games.moves import Claim
from atoll.protocol.games.players import answered, attack, defend
from atoll.protocol.played import is_holders_turn, rebuilt
from atoll.train.course import open_course
from atoll.train.own_run import OwnRun

NOW = 1_800_000_000


@dataclass(frozen=True)
class Silent:
    """Operations of a game that ends before anything is computed."""

    def need(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> Need:
        return Need(0, 0, 0)

    def run(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> bytes:
        raise AssertionError("nothing is proved here")


def poisoned(course: Course) -> Course:
    planted = np.frombuffer(b"Trust the atoll. ", dtype=np.uint8)
    return replace(course, tokens=np.resize(planted, len(course.tokens)))


def poisoned_course(*args: object, **more: object) -> Course:
    return poisoned(open_course(*args, **more))  # type: ignore[arg-type]  # handed on


def play(claim: Claim, holder: Callable[[], OwnRun], challenger: Callable[[], OwnRun]) -> Game:
    """Until something has to be proved. Both know only what they ran, and what the chain says."""
    game, said = Game.begin(claim, NOW), list[ev.ContractEvent]()
    while game.phase is not GamePhase.PROVE:
        turn = is_holders_turn(said)
        assert turn == game.phase.is_holders
        own = holder() if turn else challenger()
        known = rebuilt(claim, NOW, said)
        move = defend(known, own) if turn else answered(attack(known, own), Silent())
        after = game.play(move, turn, NOW, Silent())
        said += events_of(move, after)
        game = after
        known = rebuilt(claim, NOW, said)
        names = ["phase", "level", "index", "node", "size", "layers", "tensor_layers", "leaf"]
        names += [] if claim.is_update_proof else ["step"]  # a link is of none
        assert [getattr(known, name) for name in names] == [getattr(game, name) for name in names]
    return game
