"""What an operator is told of a job: numbers, and the next command."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.identities import digest
from tests.support.manifests import make_terms
from tests.unit.protocol.models import MODEL, PROGRAM
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script
from tests.unit.service.held import state_of

from atoll.protocol import events as ev
from atoll.protocol.claims import SeatStatements
from atoll.protocol.types import Role, SeatIndex
from atoll.service.alerts import alerts, missed_duties, plain_obligations, waits_for
from atoll.service.duties.disagreement import Disagreed, NoteDisagreement
from atoll.service.duties.game import NoMove, SendMove
from atoll.service.health_status import Failing, HealthStatus, KnownOfService, blocking
from atoll.service.machine import State
from atoll_node.behaviour import ProviderBehaviour

ME = PROVIDERS[0]


@pytest.fixture
def script() -> Script:
    made = Script.ready(make_terms(program=PROGRAM.root))
    made.net.advance()
    return made


def state(script: Script) -> State[Any]:
    return state_of(script.net, ME, ProviderBehaviour())


def test_a_duty_is_told_in_the_last_part_of_its_time(script: Script) -> None:
    assert list(alerts(state(script))) == []
    assert plain_obligations(state(script)) == [
        {"duty": "commit", "round": 0, "seconds_left": 60, "seats": [0]}
    ]
    script.net.wait_until(script.net.deadline - 9)
    (late,) = alerts(state(script))
    assert (late.name, late.is_fault) == ("late", False)
    assert late.text == "job 7: its commit of round 0 is due in 9 s"
    script.commit(0)
    assert list(alerts(state(script))) == []
    assert plain_obligations(state(script)) == []


def test_a_job_that_waits_for_members_says_how_many_are_there() -> None:
    script = Script.ready(seats=2, slots=2)
    told = waits_for(state(script))
    left = script.net.terms.expiry - script.net.now
    assert told == (
        "waits for members: 2 of 3 seats are held, 2 of 3 verifiers are ready; "
        f"it ends in {left} s without them"
    )
    outside = state_of(script.net, PROVIDERS[3], ProviderBehaviour())
    assert waits_for(outside) == ""
    script.net.join(PROVIDERS[2], 2)
    assert "3 of 3 seats" in waits_for(state(script))
    script.net.enrol(VERIFIERS[2], 2, script.net.terms.verifier_bond)
    assert "2 of 3 verifiers" in waits_for(state(script))
    script.net.say_ready(VERIFIERS[2])
    assert waits_for(state(script)) == ""  # anybody may open the round
    script.net.wait(1)
    script.net.advance()
    assert waits_for(state(script)) == ""


def test_a_disagreement_blocks_and_names_what_to_compare(script: Script) -> None:
    script.honest_round()
    settled_round = script.net.view.settled[0]
    found = Disagreed(0, digest("own"), settled_round.verdict.state)
    seen = state(script)
    noted = replace(seen, entries=seen.entries.plus(NoteDisagreement(found).key, found))
    (told,) = [one for one in alerts(noted) if one.is_fault]
    assert told.name == "disagrees"
    assert digest("own").hex()[:16] in told.text
    assert told.next_step == "atoll job audit 7 --round 0"


def test_a_slash_and_a_game_without_a_move_are_told(script: Script) -> None:
    script.honest_round()
    script.net.wait_until(script.net.settled[0].ends["audit"])
    claim = SeatStatements(
        script.net.view, script.net.view.settled[0], SeatIndex(0), MODEL, PROGRAM
    ).claim(1)
    script.net.emit(ev.Challenged(1, ME, WATCHER, 10**20, claim, b""))
    script.net.emit(ev.Began(1, ME))
    seen = state(script)
    assert [one.name for one in alerts(seen) if one.is_fault] == []
    entries = seen.entries.plus(f"{SendMove.kind}:1:0", NoMove("no state"))
    (told,) = [one for one in alerts(replace(seen, entries=entries)) if one.is_fault]
    left = script.net.view.games[1].deadline - script.net.now
    assert (told.name, told.next_step) == ("game", "atoll judge games 7")
    assert told.text == f"job 7, game 1: no move, {left} s left: no state"
    script.net.slash(Role.PROVIDER, script.net.settled[0].holders[0], WATCHER)
    (slashed,) = [one for one in alerts(state(script)) if one.name == "slashed"]
    assert "provider 1 was slashed, 0 tokens" in slashed.text


def test_cuts_are_listed(script: Script) -> None:
    for seat in (1, 2, 3):
        script.commit(seat)
    script.net.wait_until(script.net.deadline)
    script.net.advance()
    assert missed_duties(state(script)) == []
    script.net.penalise_seat(0)
    assert missed_duties(state(script)) == [{"role": "provider", "round": 0, "missed_duty": "seat"}]


def test_what_only_warns_gives_way_to_what_blocks() -> None:
    grave = HealthStatus("slashed", "slashed", "look")
    late = HealthStatus("late", "late", "doctor", is_fault=False)
    assert blocking(KnownOfService(silent_seconds=0.0, alerts=(late, grave))) == grave
    assert blocking(KnownOfService(silent_seconds=0.0, alerts=(late,))) == late
    failing = {(1, "train.v1"): Failing("NotFound", "nobody has it", times=3)}
    found = blocking(KnownOfService(silent_seconds=0.0, alerts=(late,), failing=failing))
    assert found is not None
    assert found.name == "failing"
