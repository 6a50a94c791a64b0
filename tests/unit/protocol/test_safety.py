"""Whether a job's model can be trusted: more slashes in a round than its rule bears, or not."""

from __future__ import annotations

import pytest
from tests.support.manifests import make_terms
from tests.unit.protocol.script import VERIFIERS, Script

from atoll.protocol import events as ev
from atoll.protocol.safety import last_merge, last_safe, unsafe_rounds
from atoll.protocol.types import Role, RoundIndex, SeatIndex


@pytest.fixture
def script() -> Script:
    """Two rounds are settled, the window of neither is over."""
    made = Script.ready()
    made.honest_round()
    made.honest_round()
    return made


def slash(script: Script, *seats: int) -> None:
    holders = script.net.view.settled[0].seats
    for seat in map(SeatIndex, seats):
        script.net.slash(Role.PROVIDER, holders[seat], VERIFIERS[0])


def test_while_nobody_is_slashed_the_newest_model_is_safe(script: Script) -> None:
    view = script.net.view
    assert unsafe_rounds(view) == ()
    newest = last_safe(view)
    assert (newest.before, newest.digest) == (2, view.settled[1].verdict.state)


def test_as_many_slashes_as_the_rule_bears_change_nothing(script: Script) -> None:
    slash(script, 1)
    assert script.net.terms.f == 1
    assert unsafe_rounds(script.net.view) == ()


def test_one_more_makes_every_round_unsafe_that_they_lost(script: Script) -> None:
    slash(script, 1, 3)
    view = script.net.view
    assert unsafe_rounds(view) == (0, 1)
    first = last_safe(view)
    assert (first.before, first.digest, first.cid) == (0, None, None)


def test_the_model_before_the_first_unsafe_round_is_safe() -> None:
    script = Script.ready(make_terms(train_seconds=2_000))  # longer than an audit and its window
    script.honest_round()
    script.net.wait_until(script.net.settled[0].ends["window"])
    script.honest_round()
    script.honest_round()
    slash(script, 0, 2)
    view = script.net.view
    assert unsafe_rounds(view) == (1, 2)
    safe = last_safe(view)
    assert (safe.before, safe.digest) == (1, view.settled[0].verdict.state)


def test_who_was_excluded_has_moved_no_model() -> None:
    script = Script.ready()
    script.train()
    script.say()
    script.net.wait(1)
    script.settle({3})
    slash(script, 1, 3)
    assert unsafe_rounds(script.net.view) == ()


def test_who_was_not_available_has_moved_no_model() -> None:
    script = Script.ready()
    script.train()
    script.say(has=0b0111)
    script.net.wait(1)
    script.settle()
    slash(script, 1, 3)
    assert unsafe_rounds(script.net.view) == ()


def test_a_round_that_merged_nothing_has_moved_no_model() -> None:
    script = Script.ready()
    script.train()
    script.say()
    script.net.wait(1)
    script.settle(merged=0)
    slash(script, 1, 3)
    assert unsafe_rounds(script.net.view) == ()


# --- the merge that a result comes from ---


def test_while_nobody_is_slashed_the_last_merge_is_as_it_was(script: Script) -> None:
    settled_round = script.net.view.settled[1]
    found = last_merge(script.net.view)
    assert found is not None
    assert (found.settled_round.round, found.slashed, found.record) == (
        1,
        0,
        settled_round.merge_record,
    )


def test_who_lost_the_last_merge_takes_no_part_in_it(script: Script) -> None:
    slash(script, 1, 3)
    found = last_merge(script.net.view)
    assert found is not None
    assert (found.settled_round.round, found.slashed, found.record.slashed) == (1, 0b1010, 0b1010)


def test_who_was_excluded_and_slashed_does_not_come_in_again() -> None:
    """With one less to leave out from, the rule could spare nobody, and would merge it."""
    script = Script.ready()
    script.train()
    script.say()
    script.net.wait(1)
    script.settle({3})
    slash(script, 3)
    alone = last_merge(script.net.view)
    slash(script, 1)
    both = last_merge(script.net.view)
    assert alone is not None and both is not None
    assert (alone.slashed, both.slashed, both.record.slashed) == (0, 0b0010, 0b1010)


def test_rounds_that_merged_nothing_are_passed_over(script: Script) -> None:
    script.train()
    script.say()
    script.net.wait(1)
    script.settle(merged=0)
    found = last_merge(script.net.view)
    assert found is not None and found.settled_round.round == 1


def test_a_job_that_merged_nothing_has_no_last_merge() -> None:
    script = Script.ready()
    script.train()
    script.say()
    script.net.wait(1)
    script.settle(merged=0)
    assert last_merge(script.net.view) is None


# --- rounds that were struck ---


def strike(script: Script, round: int) -> None:
    net, signers = script.net, script.net.view.settled[round].signers
    net.emit(ev.MergeStruck(net.job, RoundIndex(round), VERIFIERS[0], signers))


def test_a_struck_round_is_merged_once_more_whatever_came_behind_it(script: Script) -> None:
    strike(script, 0)
    found = last_merge(script.net.view)
    assert found is not None and found.is_struck
    assert (found.settled_round.round, found.slashed) == (0, 0)
    assert last_safe(script.net.view).before == 0


def test_of_several_the_first_counts(script: Script) -> None:
    strike(script, 1)
    found = last_merge(script.net.view)
    assert found is not None and found.settled_round.round == 1
    assert last_safe(script.net.view).digest == script.net.view.settled[0].verdict.state
    strike(script, 0)
    earlier = last_merge(script.net.view)
    assert earlier is not None and earlier.settled_round.round == 0


def test_a_struck_round_that_merged_nothing_is_what_the_result_comes_from(script: Script) -> None:
    script.train()
    script.say()
    script.net.wait(1)
    script.settle(merged=0)
    strike(script, 2)
    found = last_merge(script.net.view)
    assert found is not None and found.settled_round.round == 2


def test_who_lost_a_struck_round_takes_no_part_in_it(script: Script) -> None:
    slash(script, 1)
    strike(script, 0)
    found = last_merge(script.net.view)
    assert found is not None and (found.slashed, found.record.slashed) == (0b0010, 0b0010)
