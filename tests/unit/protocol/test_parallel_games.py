"""Whose clock runs where several games are about one bond: what `Game.deadlineOf` says.

The same games as in contracts/test/unit/ParallelGames.t.sol, by the events alone.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.identities import address, digest
from tests.unit.protocol.script import PROVIDERS, Script
from tests.unit.protocol.test_claims import SEAT, TERMS, played, said_of

from atoll.protocol import events as ev
from atoll.protocol.games.game_machine import Outcome

MOVE, ALLOWANCE = TERMS.move_seconds, TERMS.game_seconds
OPENED, PICKED_STEP, TRACE = (
    lambda id: ev.StepsOpened(id, (), b""),
    lambda id: ev.StepPicked(id, 0),
    lambda id: ev.TracePosted(id, digest("trace"), 1, ()),
)


@pytest.fixture
def script() -> Script:
    return played()


def challenge(script: Script, id: int, *, begins: bool = False, segment: int = 0) -> None:
    claim = said_of(script).claim(segment)
    script.net.emit(ev.Challenged(id, claim.holder, address(f"a{id}"), 10**18, claim, b"evidence"))
    if begins:
        begin(script, id)


def begin(script: Script, id: int) -> None:
    script.net.emit(ev.Began(id, PROVIDERS[SEAT]))


def deadlines(script: Script, *ids: int) -> list[int]:
    return [script.net.view.games[id].deadline for id in ids]


def test_a_holders_clock_runs_in_one_game_at_a_time(script: Script) -> None:
    net = script.net
    challenge(script, 1, begins=True)
    challenge(script, 2)
    whole = MOVE + ALLOWANCE
    assert deadlines(script, 1, 2) == [net.now + whole, 0]
    begin(script, 2)  # the contract says so before the move that has it begin
    net.emit(OPENED(1))
    net.emit(PICKED_STEP(1))
    assert deadlines(script, 1, 2) == [0, net.now + whole]
    assert net.view.games[1].is_held_up
    net.wait(whole - 1)
    net.emit(OPENED(2))
    assert deadlines(script, 1) == [net.now + whole]
    net.emit(PICKED_STEP(2))
    assert deadlines(script, 2) == [0]
    net.emit(TRACE(1))
    assert deadlines(script, 2) == [net.now + MOVE + 1]


def test_the_oldest_of_the_clocks_that_stand_is_next(script: Script) -> None:
    net = script.net
    for id in (1, 2, 3):
        challenge(script, id, begins=True)
        net.emit(OPENED(id))
    net.emit(PICKED_STEP(3))
    net.emit(PICKED_STEP(2))
    net.emit(PICKED_STEP(1))
    whole = MOVE + ALLOWANCE
    assert deadlines(script, 1, 2, 3) == [0, 0, net.now + whole]
    net.wait(5)
    net.emit(ev.Ended(3, Outcome.CHALLENGER_LOST))
    assert deadlines(script, 1, 2, 3) == [net.now + whole, 0, 0]


def test_a_move_where_the_clock_stands_is_free(script: Script) -> None:
    net = script.net
    for id in (1, 2):
        challenge(script, id, begins=True)
        net.emit(OPENED(id))
    net.emit(PICKED_STEP(2))
    net.emit(PICKED_STEP(1))
    net.wait(MOVE + 7)
    net.emit(TRACE(1))
    clock = net.view.games[1].clock
    assert clock is not None and clock.holder == ALLOWANCE
    assert deadlines(script, 2) == [net.now - MOVE - 7 + MOVE + ALLOWANCE], "it ran on"


def test_what_a_proof_decided_holds_up_no_clock(script: Script) -> None:
    """An update proof may be decided by the holder's first move."""
    net = script.net
    challenge(script, 2, begins=True)
    net.emit(OPENED(2))
    challenge(script, 3, begins=True)
    net.emit(PICKED_STEP(2))
    assert deadlines(script, 2) == [0]
    net.emit(ev.Decided(3, Outcome.CHALLENGER_LOST))
    assert deadlines(script, 2, 3) == [net.now + MOVE + ALLOWANCE, 0]


def test_games_about_other_bonds_have_their_own_clocks(script: Script) -> None:
    net = script.net
    challenge(script, 1, begins=True)
    net.emit(OPENED(1))
    other = said_of(script).claim(0)
    other = replace(other, set=digest("another"), position=digest("another"))
    another = replace(net.view.games[1], id=9, claim=other, moves=())
    net.view = replace(net.view, games={**net.view.games, 9: another})
    net.emit(PICKED_STEP(1))
    assert all(deadlines(script, 1, 9))


def test_a_challenge_that_is_owed_is_known_as_one(script: Script) -> None:
    challenge(script, 1)
    assert not script.net.view.games[1].is_owed
    script.net.emit(ev.Owed(1))
    assert script.net.view.games[1].is_owed
    before = script.net.view
    script.net.emit(ev.Owed(77))
    assert script.net.view.games == before.games
