"""Where a stake is, when each bond comes home, and what a withdrawal does, run once or often."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.manifests import make_terms
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.job.stake import (
    Bond,
    Stake,
    Sums,
    Unbonding,
    bonds_of,
    plan_withdrawal,
    stake_of,
    unbonds_of,
)
from atoll.protocol import events as ev
from atoll.protocol.types import TOKEN, Address, Role

ME = PROVIDERS[0]
END = 5_000_000_000


def bond_of(script: Script, account: Address = ME) -> Bond:
    (bond,) = bonds_of(script.net.view, account, script.net.now, END)
    return bond


def test_a_held_seat_has_to_be_left_first() -> None:
    bond = bond_of(Script.ready())
    assert (bond.role, bond.wei, bond.home_at) == (Role.PROVIDER, 100 * TOKEN, None)
    assert bond.text == "seat 0 is held: leave it first"
    assert bond.at_latest == END


def test_who_leaves_before_it_counted_can_be_released_at_once() -> None:
    script = Script.ready()
    script.net.leave_seat(ME)
    bond = bond_of(script)
    assert (bond.home_at, bond.text) == (script.net.now, "seat 0: is over, and can be released")


def test_who_leaves_in_a_round_waits_for_its_settlement_and_then_its_window() -> None:
    script = Script.ready()
    script.net.advance()
    script.net.leave_seat(ME)
    assert bond_of(script).text == "seat 0: counts in round 0, which is not settled"
    script.honest_round()
    over = script.net.settled[0].ends["window"]
    bond = bond_of(script)
    assert (bond.home_at, bond.text) == (over, "seat 0: the window of round 0, its last, is open")
    script.net.wait_until(over)
    assert bond_of(script).home_at == script.net.now
    script.net.release(Role.PROVIDER, 1)
    assert list(bonds_of(script.net.view, ME, script.net.now, END)) == []


def test_a_closed_job_gives_its_bonds_back_after_the_last_window() -> None:
    script = Script.ready(make_terms(rounds=1))
    script.honest_round()
    over = script.net.settled[0].ends["window"]
    assert bond_of(script).home_at == bond_of(script, VERIFIERS[0]).home_at == over


def test_a_penalty_that_is_due_holds_a_bond_until_the_absolute_end() -> None:
    script = Script.ready()
    net = script.net
    net.advance()
    for seat in range(1, 4):
        script.commit(seat)
    net.wait_until(net.deadline)
    net.advance()
    assert bond_of(script).text == "seat 0: its missed duty of round 0 is not penalised yet"
    net.wait_until(END)
    bond = bond_of(script)
    assert (bond.home_at, bond.text) == (END, "no lock of the job holds any more")


# --- the whole ---


def started(id: int, wei: int, at: int, account: Address = ME) -> ev.UnbondStarted:
    return ev.UnbondStarted(account, Role.PROVIDER, id, wei, at)


def test_unbonds_are_those_not_taken_out() -> None:
    events = [
        started(0, 5, 100),
        started(1, 7, 200, WATCHER),
        ev.UnbondStarted(ME, Role.VERIFIER, 2, 9, 200),
        started(3, 8, 300),
        ev.Withdrawn(ME, Role.PROVIDER, 0, 5),
    ]
    assert list(unbonds_of(events, ME, Role.PROVIDER)) == [Unbonding(3, 8, 300)]


@pytest.fixture
def stake() -> Stake:
    bond = Bond(1, Role.PROVIDER, 1, 0, 40, None, END, "held")
    events = [started(0, 20, 100), started(1, 10, 200)]
    return stake_of(Role.PROVIDER, Sums(100, 40, 30), [bond], events, ME)


def test_what_adds_up_has_no_fault(stake: Stake) -> None:
    assert (stake.free, stake.fault) == (60, "")


def test_what_does_not_add_up_is_told(stake: Stake) -> None:
    events = [started(0, 20, 100), started(1, 10, 200)]
    locked = stake_of(Role.PROVIDER, Sums(100, 41, 30), stake.bonds, events, ME)
    assert locked.fault == "41 wei are locked, and the bonds known here are 40"
    slashed = stake_of(Role.PROVIDER, Sums(100, 40, 29), stake.bonds, events, ME)
    assert slashed.fault == "slashes took 1 wei of what unbonds, of each its part"


def test_all_that_is_free_unbonds_and_what_is_over_is_taken(stake: Stake) -> None:
    plan = plan_withdrawal(stake, None, now=101)
    assert [unbond.id for unbond in plan.take] == [0]
    assert [unbond.id for unbond in plan.waits] == [1]
    assert (plan.unbond, plan.lacking) == (60, 0)


def test_the_second_of_the_end_is_too_early(stake: Stake) -> None:
    assert plan_withdrawal(stake, None, now=100).take == ()


@pytest.mark.parametrize(
    ("amount", "unbond", "lacking"), [(30, 0, 0), (50, 20, 0), (90, 60, 0), (95, 60, 5)]
)
def test_what_unbonds_already_counts(stake: Stake, amount: int, unbond: int, lacking: int) -> None:
    plan = plan_withdrawal(stake, amount, now=50)
    assert (plan.unbond, plan.lacking) == (unbond, lacking)


def test_a_withdrawal_that_is_run_again_begins_nothing_anew(stake: Stake) -> None:
    first = plan_withdrawal(stake, 50, now=50)
    begun = Unbonding(2, first.unbond, 150)
    after = replace(stake, active=stake.active - first.unbond, unbonds=(*stake.unbonds, begun))
    assert plan_withdrawal(after, 50, now=60).unbond == 0
    over = plan_withdrawal(after, 50, now=201)
    assert (over.unbond, sum(unbond.wei for unbond in over.take)) == (0, 50)
