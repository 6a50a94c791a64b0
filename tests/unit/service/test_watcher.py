"""What an outsider with a bond does, and what a provider does when it is challenged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.law.factories import address, digest
from tests.unit.law.test_disputes import CHALLENGER, ROUND, SEAT, challenge, said_by, settled

from atoll.law import events as ev
from atoll.law.games.machine import Outcome
from atoll.law.words import ZERO_DIGEST, Address, SeatIndex
from atoll.service.commands import Fact, key_of
from atoll.service.duties.game import (
    BondCollected,
    NoMove,
    SendCollect,
    SendConclude,
    SendMove,
    SendTimeOut,
)
from atoll.service.duties.material import DataReady, DoFetchData, DoFetchSpec, SpecReady
from atoll.service.duties.unpin import decide_unpin
from atoll.service.duties.watch import (
    DoReplayRound,
    NotChallenged,
    RoundReplayed,
    SendChallenge,
)
from atoll.service.machine import AnyCommand, Head, Setup
from atoll.service.watcher import Player, PlayerState, decide

Left = tuple[str, Fact]
HOLDER = address("provider 2")
INITIAL = digest("initial")
WRONG = RoundReplayed(1, False, b"state")
FINE = RoundReplayed(-1, False, b"")
JOB, DOCUMENT = settled()
CLAIM = said_by(JOB, DOCUMENT).claim(1)


def player(*left: Left, me: Address = CHALLENGER, watches: bool = True) -> PlayerState:
    """With manifest and data, at the moment of the settlement."""
    job, _ = settled()
    setup = Setup("", Player(watches=watches))
    state = PlayerState(me, setup, job.view, Head(job.number, job.now), job.number)
    spec = (key_of(DoFetchSpec), SpecReady(job.manifest.to_bytes()))
    for key, fact in (spec, (key_of(DoFetchData), DataReady(b"data", INITIAL)), *left):
        state = replace(state, facts=state.facts.plus(key, fact))
    return state


def replayed(found: RoundReplayed, seat: int = SEAT) -> Left:
    told = JOB.view.settled[0].reveals[SeatIndex(seat)]
    return key_of(DoReplayRound, ROUND, seat, told.reveal.trace_root), found


def after(state: PlayerState, *events: ev.ContractEvent) -> PlayerState:
    """The player that saw a game begin about the claim, and what came of it."""
    job, _ = settled()
    challenge(job, CLAIM)
    for event in events:
        job.emit(event)
    return replace(state, view=job.view, head=Head(job.number, job.now))


def later(state: PlayerState, seconds: int) -> PlayerState:
    return replace(state, head=Head(state.head.number, state.head.time + seconds))


def wanted(state: PlayerState) -> list[AnyCommand]:
    return [command for decision in decide(state) for command in decision.commands]


def kinds(state: PlayerState) -> list[type]:
    return [type(command) for command in wanted(state)]


OPENED = ev.StepsOpened(1, (digest("state"),), b"works")


def test_every_accepted_seat_is_replayed_while_it_can_be_disputed() -> None:
    commands = wanted(player())
    assert [c.seat for c in commands if isinstance(c, DoReplayRound)] == [0, 1, 2, 3]
    over = later(player(), JOB.terms.dispute_seconds)
    assert kinds(over) == []


def test_its_own_seat_is_left_to_others() -> None:
    commands = wanted(player(me=HOLDER))
    assert [c.seat for c in commands if isinstance(c, DoReplayRound)] == [0, 1, 3]


def test_a_job_without_a_judge_is_not_watched() -> None:
    state = player()
    terms = replace(state.view.require_terms(), program=ZERO_DIGEST)
    assert kinds(replace(state, view=replace(state.view, terms=terms))) == []


def test_only_what_differs_is_challenged_and_only_once() -> None:
    left = [replayed(WRONG), *(replayed(FINE, seat) for seat in (0, 1, 3))]
    (command,) = wanted(player(*left))
    assert isinstance(command, SendChallenge)
    assert (command.round, command.seat, command.segment, command.is_link) == (0, SEAT, 1, False)
    refused = (key_of(SendChallenge, ROUND, SEAT), NotChallenged("it cannot be"))
    assert kinds(player(*left, refused)) == []
    assert SendChallenge not in kinds(after(player(*left)))


@pytest.mark.parametrize(
    ("outcome", "again"), [(Outcome.SENT_HOME, True), (Outcome.CHALLENGER_FELL, False)]
)
def test_what_was_sent_home_is_challenged_again_and_what_was_lost_is_not(
    outcome: Outcome, again: bool
) -> None:
    state = after(player(replayed(WRONG)), ev.Ended(1, outcome))
    assert (SendChallenge in kinds(state)) == again


def test_each_side_moves_when_it_is_its_turn() -> None:
    challenger, holder = player(replayed(WRONG)), player(me=HOLDER, watches=False)
    assert SendMove not in kinds(after(challenger))
    (move,) = [c for c in wanted(after(holder)) if isinstance(c, SendMove)]
    assert (move.game, move.moves, move.is_holder) == (1, 0, True)
    assert SendMove not in kinds(after(holder, OPENED))
    (move,) = [c for c in wanted(after(challenger, OPENED)) if isinstance(c, SendMove)]
    assert (move.moves, move.is_holder, move.state) == (1, False, WRONG.state)


def test_a_move_that_nobody_can_make_is_not_asked_for_again() -> None:
    nothing = (key_of(SendMove, 1, 0), NoMove("nothing differs"))
    assert SendMove not in kinds(after(player(nothing, me=HOLDER)))


def test_a_challenger_without_a_replay_of_its_own_has_no_move() -> None:
    assert SendMove not in kinds(after(player(), OPENED))


@pytest.mark.parametrize(("late", "expected"), [(-1, False), (0, True)])
def test_who_lets_its_time_run_out_is_timed_out_by_the_other(late: int, expected: bool) -> None:
    begun = after(player(replayed(WRONG)))
    there = later(begun, begun.view.games[1].deadline - begun.now + late)
    assert (SendTimeOut in kinds(there)) == expected
    mine = after(player(me=HOLDER))
    assert (
        SendMove in kinds(later(mine, mine.view.games[1].deadline - mine.now + late))
    ) != expected


@pytest.mark.parametrize("fell", [Outcome.HOLDER_FELL, Outcome.CHALLENGER_FELL])
def test_who_won_has_the_game_pay(fell: Outcome) -> None:
    winner = CHALLENGER if fell is Outcome.HOLDER_FELL else HOLDER
    for me in (CHALLENGER, HOLDER):
        state = after(player(replayed(WRONG), me=me), OPENED, ev.Decided(1, fell))
        assert (SendConclude in kinds(state)) == (me == winner)
        assert SendMove not in kinds(state)


def test_what_a_game_left_is_collected_once() -> None:
    ended = after(player(), OPENED, ev.Ended(1, Outcome.HOLDER_FELL))
    assert SendCollect in kinds(ended)
    collected = (key_of(SendCollect, 1), BondCollected())
    assert SendCollect not in kinds(after(player(collected), ev.Ended(1, Outcome.HOLDER_FELL)))


def test_nobody_who_fell_is_looked_at_again() -> None:
    state = after(player(), ev.Fell(JOB.view.job_id, HOLDER, ROUND, SEAT, CHALLENGER, 1, 1))
    commands = wanted(state)
    assert [c.seat for c in commands if isinstance(c, DoReplayRound)] == [0, 1, 3]


def test_rounds_of_open_games_keep_their_blocks() -> None:
    job, _ = settled()
    for _ in range(3):
        job.honest_round()
    for _ in range(4):
        job.finalise()
    state = replace(player(), view=job.view, head=Head(job.number, job.now))
    assert decide_unpin(state).commands != ()
    challenge(job, CLAIM)
    assert decide_unpin(replace(state, view=job.view)).commands == ()
