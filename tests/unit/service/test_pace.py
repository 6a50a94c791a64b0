"""How many games an outsider or an auditor begins, where it found many liars at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.identities import digest
from tests.support.manifests import make_terms
from tests.unit.protocol.models import MODEL, PROGRAM
from tests.unit.protocol.script import WATCHER, Script
from tests.unit.service.held import state_of

from atoll.protocol import events as ev
from atoll.protocol.audit_reports import AuditEntry
from atoll.protocol.claims import SeatStatements
from atoll.protocol.types import Digest, RoundIndex, SeatIndex
from atoll.service.duties.challenge import SendChallenge, one_at_a_time
from atoll.service.duties.game import NoMove
from atoll.service.duties.replay_seat import SeatReplayed
from atoll.service.machine import AnyCommand, Hold, State
from atoll.service.watcher import Player, decide

GAME = 1
OPENED = ev.StepsOpened(GAME, (digest("state"),), b"works")
STEP = ev.StepPicked(GAME, 0)
TRACE = ev.TracePosted(GAME, digest("trace"), 100, (digest("a"), digest("b")))
PICKED = ev.Picked(GAME, 1, 0)
LIARS = (SeatIndex(0), SeatIndex(1), SeatIndex(2))


@pytest.fixture
def script() -> Script:
    """Round 0 of a job with a judge can be disputed."""
    made = Script.ready(make_terms(program=PROGRAM.root))
    made.net.advance()
    made.honest_round()
    made.net.wait_until(made.net.settled[0].ends["audit"])
    return made


def watcher(script: Script) -> State[Any]:
    """Its replays gave that each of the liars is one."""
    state = state_of(script.net, WATCHER, Player())
    for seat in LIARS:
        told = script.net.view.settled[0].reveals[seat]
        key = f"replay.v1:0:{seat}:{told.commitment.hex()}"
        entry = SeatReplayed(AuditEntry(seat, 1, digest("own")), (), 1.0)
        state = replace(state, entries=state.entries.plus(key, entry))
    return state


def challenged(state: State[Any]) -> list[SeatIndex]:
    commands: list[AnyCommand] = [c for d in decide(state) for c in d.commands]
    return [c.seat for c in commands if isinstance(c, SendChallenge)]


def play(script: Script, *moves: ev.ContractEvent) -> State[Any]:
    """The game about the first liar is so far."""
    settled_round = script.net.view.settled[0]
    said = SeatStatements(script.net.view, settled_round, LIARS[0], MODEL, PROGRAM).claim(1)
    script.net.emit(ev.Challenged(GAME, said.holder, WATCHER, 10**20, said, b"evidence"))
    script.net.emit(ev.Began(GAME, said.holder))
    for move in moves:
        script.net.emit(move)
    return watcher(script)


def later(state: State[Any], by: int) -> State[Any]:
    """When the free time of the move that is due is over, and so many seconds."""
    clock = state.view.games[GAME].clock
    assert clock is not None
    return replace(state, head=replace(state.head, time=clock.since + clock.move + by))


def test_one_game_is_begun_until_our_trace_of_it_is_made(script: Script) -> None:
    assert challenged(watcher(script)) == [LIARS[0]]
    begun = play(script)
    for move in (OPENED, STEP, TRACE):
        assert challenged(begun) == []
        script.net.emit(move)
        begun = watcher(script)
    assert challenged(begun) == []
    script.net.emit(PICKED)
    assert challenged(watcher(script)) == [LIARS[1]]


def test_who_lets_its_own_time_run_shields_no_other(script: Script) -> None:
    begun = play(script)
    assert challenged(later(begun, -1)) == []
    assert challenged(later(begun, 0)) == [LIARS[1]]


def test_who_is_late_with_a_move_begins_no_game(script: Script) -> None:
    ours = play(script, OPENED, STEP, TRACE, PICKED, ev.LayerRevealed(GAME, (digest("a"),)))
    assert challenged(later(ours, -1)) == [LIARS[1]]
    assert challenged(later(ours, 0)) == []
    silent = ours.entries.plus(f"game-move.v1:{GAME}:5", NoMove("nothing differs"))
    assert challenged(replace(later(ours, 0), entries=silent)) == [LIARS[1]]


def test_one_that_is_being_sent_is_seen_before_the_next(script: Script) -> None:
    state = watcher(script)
    (first,) = [c for d in decide(state) for c in d.commands if isinstance(c, SendChallenge)]
    assert challenged(replace(state, in_flight={first.key: first})) == []
    sent = Hold(until_time=0, until_block=state.block + 1, failures=0)
    assert challenged(replace(state, holds={first.key: sent})) == []
    failed = Hold(until_time=state.now + 60, until_block=0, failures=5)
    assert challenged(replace(state, holds={first.key: failed})) == [LIARS[1]]


def test_what_our_audit_report_accuses_does_not_wait_for_ever(script: Script) -> None:
    state = play(script)
    clock = state.view.settled[0].clock
    owed: list[AnyCommand] = [
        SendChallenge(RoundIndex(0), seat, 1, b"", Digest(bytes(32)), owed=True) for seat in LIARS
    ]
    assert one_at_a_time(later(state, -1), owed) == ()
    last = clock.half - (clock.half - clock.audit_end) // 4
    assert len(one_at_a_time(replace(state, head=replace(state.head, time=last - 1)), owed)) == 1
    due = replace(state, head=replace(state.head, time=last))
    assert one_at_a_time(due, owed) == tuple(owed)
