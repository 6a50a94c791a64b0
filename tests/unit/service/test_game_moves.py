"""Moves of several games by one worker: which is made next, and which is not made any more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.protocol.script import PROVIDERS, WATCHER, Script
from tests.unit.protocol.test_obligations import claim_about

from atoll.errors import ProtocolError
from atoll.protocol.game_records import GameRecord
from atoll.protocol.games.game_machine import Clock
from atoll.protocol.games.judge import Need
from atoll.protocol.games.moves import Pick
from atoll.protocol.games.players import Question
from atoll.protocol.types import ZERO_DIGEST, Address, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.duties.challenge import NotChallenged
from atoll.service.duties.game import PLAY, NoMove, SendMove
from atoll.service.effects import Effects
from atoll.service.entries import Done, Entries
from atoll.service.task import TaskCall
from atoll.train.judge_task import Position

MOVE = Pick(0, ZERO_DIGEST, ())
QUESTION = Question(0x0101, b"", 0, ())


@dataclass
class Here:
    """A worker that says whose moves it makes, each after so many questions.

    Attributes:
        sent: the moves, each with what is at stake.
        begun: set once the first one is under way; it ends when `go_on` is set.
    """

    view: JobView
    now: int = 100
    questions: int = 2
    played: list[int] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, call: TaskCall[Any], **_: Any) -> Any:
        position: Position = call.args[1]
        self.played.append(position.began_at)
        self.begun.set()
        await self.go_on.wait()
        await asyncio.sleep(0)
        return QUESTION if len(position.answers) < self.questions else MOVE

    async def head(self) -> Any:
        return SimpleNamespace(timestamp=self.now)

    async def read(self, *_: Any, **__: Any) -> Any:
        await asyncio.sleep(0)
        return (Need(0, 0, 0),)

    def effects(self) -> Effects:
        chain = SimpleNamespace(head=self.head, read=self.read, calls=SimpleNamespace())
        chain.calls.play = lambda game, claim, move, stake: (move, stake)
        follower = SimpleNamespace(views={self.view.job_id: self.view})
        config = SimpleNamespace(store_dir="", role=None)
        found = SimpleNamespace(chain=chain, game_worker=self, follower=follower, config=config)
        effects = Effects(cast(Any, found))

        async def transact(_: JobView, __: SendMove, call: Any) -> Done[Any]:
            self.sent.append(call)
            return Done(block=7)

        effects.transact = transact  # type: ignore[method-assign]
        return effects

    async def play(self, *games: int) -> list[Any]:
        """The moves are asked for in this order, the others while the first is made."""
        effects = self.effects()
        first = asyncio.create_task(move(games[0]).perform(effects, self.view))
        await self.begun.wait()
        others = [asyncio.create_task(move(g).perform(effects, self.view)) for g in games[1:]]
        for _ in range(5):  # each waits for its turn
            await asyncio.sleep(0)
        self.go_on.set()
        return await asyncio.gather(first, *others, return_exceptions=True)


def move(game: int) -> SendMove:
    return SendMove(game, 0, b"", ZERO_DIGEST, is_holder=False, function=PLAY)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """Games 1 to 4, of which 1 and 4 are about one run; the clock of 3 ends first, of 4 last."""
    script = Script.ready()
    script.honest_round()
    view = script.net.view
    games = {}
    for game, left in ((1, 900), (2, 600), (3, 300), (4, 990)):
        claim = claim_about(view, SeatIndex(game % 3), 1, is_update_proof=False)
        clock = Clock(0, 5, left, left)
        games[game] = GameRecord(game, WATCHER, 1, claim, b"", began_at=game, clock=clock)

    async def task(_: SendMove, effects: Any, view: JobView, record: GameRecord) -> Any:
        return record.claim.seat

    monkeypatch.setattr(SendMove, "_task", task)
    return Here(replace(view, games=games))


async def test_a_proofs_questions_are_one_move(here: Here) -> None:
    """Between two of them another game's run would take the place of this one's."""
    await here.play(1, 2)
    assert here.played == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("is_named", [True, False])
async def test_another_holders_move_is_made_by_whom_it_named(here: Here, is_named: bool) -> None:
    """Nobody computes a move that the contract refuses."""
    here.questions = 0
    here.go_on.set()
    effects = here.effects()
    me, asked = WATCHER if is_named else PROVIDERS[0], []

    async def delegate_of(holder: Address) -> Address:
        asked.append(holder)
        return WATCHER

    chain: Any = effects.context.chain
    chain.delegate_of = delegate_of
    effects.context.me = me  # type: ignore[misc]
    ours = replace(move(1), is_holder=True)
    done = await ours.perform(effects, here.view)
    assert asked == [here.view.games[1].claim.holder]
    assert (len(here.sent), isinstance(done.entry, NoMove)) == (is_named, not is_named)


async def test_what_the_run_at_hand_serves_is_next_and_then_the_nearest_deadline(
    here: Here,
) -> None:
    here.questions = 0
    await here.play(1, 2, 3, 4)
    assert here.played == [1, 4, 3, 2]


async def test_a_clock_that_ran_out_meanwhile_takes_no_time_of_the_others(here: Here) -> None:
    here.questions, here.now = 0, 305
    found = await here.play(1, 2, 3)
    assert here.played == [1, 2]
    assert [type(one) for one in found] == [Done, Done, ProtocolError]
    assert "the clock of game 3 ran out" in str(found[2])


async def test_a_game_that_ended_meanwhile_takes_no_time_of_the_others(here: Here) -> None:
    here.questions = 0
    seen = here.view
    here.view = replace(seen, games={g: one for g, one in seen.games.items() if g != 3})
    effects = here.effects()
    here.go_on.set()
    assert await move(3).perform(effects, seen) == Done()
    assert here.played == []


def test_who_found_no_move_or_no_challenge_looks_again_after_a_start() -> None:
    """Both cost a bond, and may have been this machine's fault, or its version's."""
    found = {
        "game-move.v1:1:2": NoMove("nothing differs"),
        "challenge.v1:1": NotChallenged("another"),
    }
    assert len(Entries(found).after_restart()) == 0


@pytest.mark.parametrize("is_holder", [True, False])
async def test_a_move_says_which_bond_it_keeps(here: Here, is_holder: bool) -> None:
    """What it may cost follows from that."""
    here.questions = 0
    here.go_on.set()
    effects = here.effects()
    effects.context.me = here.view.games[2].claim.holder  # type: ignore[misc]
    await replace(move(2), is_holder=is_holder).perform(effects, here.view)
    theirs = here.view.games[2].bond
    assert theirs != here.view.require_terms().provider_bond
    wanted = here.view.require_terms().provider_bond if is_holder else theirs
    assert here.sent == [(MOVE, wanted)]
