"""Steps that anyone may take: one member takes them, the others when it does not; and our pay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.identities import digest
from tests.support.manifests import make_terms
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script
from tests.unit.protocol.test_obligations import claim_about

from atoll.chain.contract_calls import Calls
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.protocol import events as ev
from atoll.protocol import pay
from atoll.protocol.game_records import GameRecord, pay_position
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.keeper_calls import KeeperCallKind as Kind
from atoll.protocol.keeper_calls import keeper_calls
from atoll.protocol.types import Address, HolderId, Phase, Role, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.config import KeeperConfig
from atoll.service.duties.send_keeper_calls import (
    FOR_ITSELF,
    SUDDEN,
    WATCHED,
    SendClaimCredit,
    SendClaims,
    SendKeeperCall,
    decide_keeper_calls,
    decide_pay,
    is_turn,
    position_in_line,
)
from atoll.service.machine import Head, Hold, State

CONFIG = KeeperConfig(stagger_s=4)
AT_ONCE = KeeperConfig(stagger_s=0)
ME = PROVIDERS[0]
CALLS = Calls(Deployment(31337, 0, dict.fromkeys(REQUIRED, WATCHER)))


def seen(net: Network, me: Address = ME, now: int | None = None) -> State[None]:
    return State(me, None, net.view, Head(net.number, net.now if now is None else now), net.number)


def kinds(net: Network, line: int = 0, me: Address = ME, now: int | None = None) -> list[Kind]:
    found = decide_keeper_calls(seen(net, me, now), line, AT_ONCE if line == 0 else CONFIG)
    return [c.what for c in found.commands if isinstance(c, SendKeeperCall)]


@pytest.fixture
def script() -> Script:
    made = Script.ready()
    made.net.advance()
    return made


def audited(leaves_out: str = "") -> Script:
    """Round 0 up to the end of keys, but for what is excluded."""
    script = Script.ready()
    script.net.advance()
    script.honest_round()
    ends = script.net.settled[0].ends
    for id in script.auditors(0):
        script.audit_report(0, id)
    script.net.wait_until(ends["audit"])
    for id in script.auditors(0):
        script.open(0, id)
    script.net.wait_until(ends["open"])
    if leaves_out != "keys":
        script.show_keys(0)
    script.net.wait_until(ends["keys"])
    return script


# --- turns ---


def test_everyone_has_another_position_in_line_and_outsiders_come_last(script: Script) -> None:
    view = script.net.view
    places = [position_in_line(view, each) for each in (*PROVIDERS[:4], *VERIFIERS[:4])]
    assert sorted(places) == list(range(8))
    assert places[0] == 0
    assert position_in_line(view, WATCHER) == 8


def test_who_has_its_bond_again_keeps_its_turn() -> None:
    """Else all that are left of a closed job do the same thing in the same moment."""
    script = Script.ready(make_terms(rounds=1))
    script.honest_round()
    script.net.wait_until(script.net.settled[0].ends["window"])
    everyone = (*PROVIDERS[:4], *VERIFIERS[:4])
    before = [position_in_line(script.net.view, each) for each in everyone]
    for role in Role:
        for holder in script.net.view.holders(role).values():
            script.net.release(role, holder.id)
    assert [position_in_line(script.net.view, each) for each in everyone] == before
    assert sorted(before) == list(range(8))


def test_verifiers_go_first_once_a_round_merges(script: Script) -> None:
    script.train()
    view = script.net.view
    assert position_in_line(view, VERIFIERS[0]) == 0
    assert position_in_line(view, PROVIDERS[0]) == 4


@pytest.mark.parametrize(
    ("late", "line", "advances"), [(-1, 0, 0), (0, 0, 1), (3, 1, 0), (4, 1, 1)]
)
def test_a_deadline_is_advanced_when_it_is_our_turn(
    script: Script, late: int, line: int, advances: int
) -> None:
    now = script.net.deadline + late
    assert kinds(script.net, line, now=now).count(Kind.ADVANCE) == advances


def test_nobody_pays_for_the_keeper_call_of_a_strangers_job(script: Script) -> None:
    now = script.net.deadline
    assert kinds(script.net, now=now) == [Kind.ADVANCE]
    assert kinds(script.net, me=WATCHER, now=now) == []


def test_two_phases_are_never_advanced_under_one_key(script: Script) -> None:
    def advance() -> SendKeeperCall:
        script.net.wait_until(script.net.deadline)
        (found,) = sent(script.net, Kind.ADVANCE)
        return found

    script.commit(0)
    first = advance()
    script.net.advance()
    assert first.key != advance().key


def test_what_is_due_at_once_is_one_members_turn_at_a_time(script: Script) -> None:
    script.train()
    for _ in range(4):
        script.net.pass_deadline()  # nobody had said a word, in the fourth committee draw either
    view, now = script.net.view, script.net.now
    assert Kind.PENALISE_MEMBER in {item.call for item in keeper_calls(view, now)}
    for later in range(0, 400, 4):
        turns = [line for line in range(9) if is_turn(view, line, now + later, CONFIG)]
        assert len(turns) == 1
    drawn = {line for line in range(9) for t in range(0, 400, 4) if is_turn(view, line, t, CONFIG)}
    assert drawn == set(range(9))  # and everybody's in its time


def test_what_is_refused_for_ever_holds_up_nothing_else(script: Script) -> None:
    net = script.net
    for seat in range(3):
        script.commit(seat)
    net.wait_until(net.deadline)
    net.advance()
    for seat in range(3):
        script.reveal(seat)
    net.wait_until(net.deadline)
    state = seen(net)
    every = decide_keeper_calls(state, 0, AT_ONCE).commands
    (penalty,) = [
        c for c in every if isinstance(c, SendKeeperCall) and c.what is Kind.PENALISE_SEAT
    ]
    tried = replace(state, holds={penalty.key: Hold(0, net.number, 0)})
    assert decide_keeper_calls(tried, 0, AT_ONCE).commands[-1] == penalty


# --- what is offered, and what is sent ---


def sent(net: Network, kind: Kind, now: int | None = None) -> list[SendKeeperCall]:
    found = decide_keeper_calls(seen(net, WATCHER, now), 0, AT_ONCE, frozenset({kind})).commands
    commands = [c for c in found if isinstance(c, SendKeeperCall)]
    for command in commands:
        assert command.call(CALLS, net.view).label == kind.value
    return commands


def test_a_missed_seat_is_penalised_before_it_can_be_taken_again(script: Script) -> None:
    for seat in range(3):
        script.commit(seat)
    script.net.wait_until(script.net.deadline)
    script.net.advance()
    (penalty,) = sent(script.net, Kind.PENALISE_SEAT)
    assert penalty.seat == 3
    script.net.penalise_seat(3)
    assert sent(script.net, Kind.PENALISE_SEAT) == []


def test_a_key_that_its_holder_shows_early_is_taken_by_another() -> None:
    script = Script.ready()
    script.net.advance()
    script.honest_round()
    script.show_keys(0, [1])
    (leak,) = sent(script.net, Kind.LEAK)
    assert (leak.round, leak.seat) == (0, 1)
    own = decide_keeper_calls(seen(script.net, PROVIDERS[1]), 0, AT_ONCE).commands
    assert not [c for c in own if isinstance(c, SendKeeperCall) and c.what is Kind.LEAK]
    script.net.leak(0, 1, script.secrets[0, 1][0], WATCHER)
    assert sent(script.net, Kind.LEAK) == []
    script.net.wait_until(script.net.settled[0].ends["window"])
    assert sent(script.net, Kind.SETTLE_CONTEST) == []
    assert WATCHER not in script.net.credits


def test_a_fee_that_is_credited_is_claimed_by_its_auditor() -> None:
    script = Script.ready()
    net = script.net
    net.advance()
    round = script.honest_round()
    accuser = script.auditors(round)[0]
    seat = min(net.duties(round, accuser))
    script.audit_report(round, accuser, script.body(round, accuser, {seat: 2}))
    net.wait_until(net.settled[round].ends["audit"])
    script.open(round, accuser)
    net.slash(Role.PROVIDER, net.at(Role.PROVIDER, seat, round).id, WATCHER)
    net.prove(round, accuser, seat)
    author = net.member(Role.VERIFIER, accuser).account
    assert credits_due(net, author) == [net.terms.duty_fee]
    net.claim_credit(author)
    assert credits_due(net, author) == []


def credits_due(net: Network, account: Address) -> list[int]:
    commands = decide_pay(seen(net, account), "each").commands
    return [c.amount for c in commands if isinstance(c, SendClaimCredit)]


def test_a_key_is_no_leak_once_audit_is_over() -> None:
    script = audited()
    assert sent(script.net, Kind.LEAK) == []


def test_a_wrong_key_is_none_where_one_is_owed(script: Script) -> None:
    script.honest_round()
    net, settled_round = script.net, script.net.settled[0]
    drawn = min(settled_round.drawn)
    spared = min(set(range(4)) - settled_round.drawn)
    net.wait_until(settled_round.ends["open"])
    for seat in (drawn, spared):
        net.show_key(0, seat, digest("no key of ours"))
    net.wait_until(settled_round.ends["keys"])
    struck = [c.seat for c in sent(net, Kind.REPORT_MISSING_KEY)]
    assert drawn in struck
    assert spared not in struck


def test_no_key_costs_the_pay_and_a_penalty() -> None:
    script = audited("keys")
    net, drawn = script.net, sorted(script.net.settled[0].drawn)
    assert [c.seat for c in sent(net, Kind.REPORT_MISSING_KEY)] == drawn
    net.wait_until(net.settled[0].ends["half"])
    net.report_missing_key(0, drawn[0])
    assert [c.seat for c in sent(net, Kind.REPORT_MISSING_KEY)] == drawn[1:]


def test_an_auditor_that_says_nothing_is_absent() -> None:
    script = Script.ready()
    script.net.advance()
    script.honest_round()
    first, *others = script.auditors(0)
    script.audit_report(0, first)
    script.net.wait_until(script.net.settled[0].ends["audit"])
    view, now = script.net.view, script.net.settled[0].ends["open"]
    absent = {c.holder for c in keeper_calls(view, now) if c.call is Kind.ABSENT}
    assert absent == set(), "most are: nobody misses"
    script.open(0, first)
    script.net.wait_until(now)
    assert {c.holder for c in sent(script.net, Kind.ABSENT)} == set(others)


def test_wrong_digests_are_contested_and_settled_when_the_seat_is_final() -> None:
    script = Script.ready()
    script.net.advance()
    script.honest_round()
    net, ends = script.net, script.net.settled[0].ends
    id = script.auditors(0)[0]
    script.audit_report(0, id, script.body(0, id)[:-1] + b"\0")
    net.wait_until(ends["audit"])
    script.open(0, id)
    net.wait_until(ends["open"])
    script.show_keys(0)
    (contest,) = sent(net, Kind.CONTEST)
    assert contest.holder == id
    net.contest(0, id, contest.seat, WATCHER)
    assert sent(net, Kind.CONTEST) == sent(net, Kind.SETTLE_CONTEST) == []
    net.wait_until(ends["window"])
    assert [c.holder for c in sent(net, Kind.SETTLE_CONTEST)] == [id]
    net.settle_contest(0, id, contest.seat)
    assert sent(net, Kind.SETTLE_CONTEST) == []
    assert WATCHER not in net.credits


def test_a_fee_waits_for_a_game_about_what_was_called_valid() -> None:
    """Of one that the seat has lost or may lose, which a sham gives way to."""
    script = audited()
    net = script.net
    settled_round = net.view.settled[0]
    auditor = HolderId(script.auditors(0)[0])
    seat = SeatIndex(min(net.duties(0, auditor)))
    claim = claim_about(net.view, seat, 2, is_update_proof=False)
    sham, game = (GameRecord(number, WATCHER, 1, claim, b"") for number in (1, 2))
    assert sent(net, Kind.WITHHOLD) == []
    whose = settled_round.seats[seat]
    elsewhere = pay_position(net.view.job_id, Role.PROVIDER, whose, RoundIndex(1))
    net.view = replace(net.view, games={9: replace(sham, claim=replace(claim, position=elsewhere))})
    assert sent(net, Kind.WITHHOLD) == []
    net.view = replace(net.view, games={1: sham})
    (call,) = sent(net, Kind.WITHHOLD)
    assert (call.holder, call.seat) == (auditor, seat)
    assert call.call(CALLS, net.view).label == "withhold"
    net.emit(ev.Withheld(net.job, auditor, RoundIndex(0), seat, 1))
    assert pay.duties_paid(net.view.settled[0], net.view.verifiers[auditor]) == 0
    over = replace(sham, outcome=Outcome.CHALLENGER_LOST)
    for games, waits in (
        ({1: over}, False),
        ({1: over, 2: game}, True),
        ({1: sham, 2: game}, False),
    ):
        net.view = replace(net.view, games=games)
        for now in (net.now, net.settled[0].ends["window"]):
            calls = [c for c in keeper_calls(net.view, now) if c.call is Kind.WITHHOLD]
            assert bool(calls) == waits
    net.view = replace(net.view, games={1: over, 2: replace(game, outcome=Outcome.HOLDER_LOST)})
    net.emit(ev.Withheld(net.job, auditor, RoundIndex(0), seat, 2))
    net.emit(ev.ContestSettled(net.job, auditor, RoundIndex(0), seat, wrong=True))
    assert sent(net, Kind.WITHHOLD) == []
    contest = net.view.settled[0].contests[auditor, seat]
    assert (contest.by, contest.game, contest.is_wrong) == (None, 2, True)


def test_an_accusation_that_is_not_played_is_dropped_from_half_on() -> None:
    script = Script.ready()
    script.net.advance()
    script.honest_round()
    net, ends = script.net, script.net.settled[0].ends
    id = script.auditors(0)[0]
    seat = min(net.duties(0, id))
    script.audit_report(0, id, script.body(0, id, {seat: 2}))
    net.wait_until(ends["audit"])
    script.open(0, id)
    net.wait_until(ends["half"] - 1)
    assert sent(net, Kind.DROPPED) == []
    net.wait(1)
    assert [(c.holder, c.seat) for c in sent(net, Kind.DROPPED)] == [(id, seat)]


def test_everything_that_anyone_may_do_is_sent() -> None:
    """A kind that the law offers and nobody can send would be offered for ever."""
    script = audited()
    net = script.net
    where = (RoundIndex(0), Role.VERIFIER, script.net.view.settled[0].slots[0], SeatIndex(0))
    view: JobView = net.view
    for kind in set(Kind) - {Kind.SETTLE_LATE, Kind.CONTEST, Kind.LEAK, Kind.WITHHOLD}:
        assert SendKeeperCall(kind, *where).call(CALLS, view).label == kind.value
    assert set(Kind) >= WATCHED | SUDDEN | FOR_ITSELF


# --- pay ---


@pytest.mark.parametrize(("when", "claims"), [("never", 0), ("end", 0), ("each", 1)])
def test_pay_is_claimed_as_often_as_configured(when: str, claims: int) -> None:
    script = audited()
    script.net.wait_until(script.net.settled[0].ends["window"])
    found = decide_pay(seen(script.net), when).commands
    assert [c.what for c in found if isinstance(c, SendKeeperCall)] == [Kind.CLAIM] * claims


def test_at_the_end_all_pay_is_claimed_and_the_bond_comes_home() -> None:
    script = Script.ready(make_terms(rounds=2))
    script.net.advance()
    script.audit(script.honest_round(), script.honest_round())
    net = script.net
    net.wait_until(max(settled_round.ends["window"] for settled_round in net.settled))
    found = decide_pay(seen(net), "end").commands
    assert {c.what for c in found if isinstance(c, SendKeeperCall)} == {Kind.CLAIM, Kind.RELEASE}
    assert all(isinstance(c, SendKeeperCall) and c.holder == 1 for c in found)
    for command in found:
        assert isinstance(command, SendKeeperCall)
        if command.what is Kind.CLAIM:
            net.claim(command.role, command.holder, command.round)
        else:
            net.release(command.role, command.holder)
    assert decide_pay(seen(net), "end").commands == ()


def test_who_has_left_is_paid_when_its_bond_comes_home() -> None:
    """While the job goes on: whoever drained would end unpaid."""
    script = Script.ready()
    net = script.net
    net.advance()
    net.leave_seat(PROVIDERS[0])
    script.audit(script.honest_round())
    net.wait_until(net.settled[0].ends["window"])
    assert net.phase is not Phase.CLOSED
    found: list[Any] = list(decide_pay(seen(net, PROVIDERS[0]), "end").commands)
    assert {c.what for c in found} == {Kind.CLAIM, Kind.RELEASE}
    assert decide_pay(seen(net, PROVIDERS[1]), "end").commands == ()
    never: list[Any] = list(decide_pay(seen(net, PROVIDERS[0]), "never").commands)
    assert [c.what for c in never] == [Kind.RELEASE]
    net.release(Role.PROVIDER, 1)
    (late,) = decide_pay(seen(net, PROVIDERS[0]), "end").commands
    assert isinstance(late, SendKeeperCall) and late.what is Kind.CLAIM


def test_pay_of_two_holders_is_one_transaction() -> None:
    """An account that left its seat, and joined again, holds two."""
    short = {"audit_seconds": 10, "open_seconds": 5, "key_seconds": 5, "window_seconds": 20}
    script = Script.ready(make_terms(rounds=3, game_seconds=10, **short))
    net = script.net
    net.advance()
    net.leave_seat(PROVIDERS[0])
    script.honest_round()
    net.wait_until(net.settled[0].ends["window"])
    net.release(Role.PROVIDER, 1)
    net.join(PROVIDERS[0], 0)
    for _ in range(2):
        script.honest_round()
    net.wait_until(net.settled[2].ends["window"])
    found: list[Any] = list(decide_pay(seen(net, PROVIDERS[0]), "each").commands)
    (claims,) = [command for command in found if isinstance(command, SendClaims)]
    assert [due[2] for due in claims.dues] == [1, 3]
    assert not [c for c in found if isinstance(c, SendKeeperCall) and c.what is Kind.CLAIM]
    assert claims.call(CALLS, net.view).label == "claimMany"
    for due in claims.dues:
        net.claim(*due)
    left: list[Any] = list(decide_pay(seen(net, PROVIDERS[0]), "each").commands)
    assert not [c for c in left if not isinstance(c, SendKeeperCall) or c.what is Kind.CLAIM]


def test_credits_are_claimed_with_the_pay() -> None:
    net = Script.ready().net
    net.emit(ev.Credited(net.job, ME, 77))
    assert decide_pay(seen(net), "end").commands == ()
    (credit,) = decide_pay(seen(net), "each").commands
    assert isinstance(credit, SendClaimCredit)
    assert (credit.account, credit.amount) == (ME, 77)


def test_others_bonds_are_left_to_them() -> None:
    net = Script.ready().net
    net.leave_seat(PROVIDERS[1])
    assert decide_pay(seen(net), "each").commands == ()
    found: list[Any] = list(decide_pay(seen(net, PROVIDERS[1]), "each").commands)
    assert [c.what for c in found] == [Kind.RELEASE]
    assert decide_pay(seen(net, VERIFIERS[0]), "each").commands == ()
