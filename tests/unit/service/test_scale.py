"""What a block and an event cost a member does not grow with the rounds behind them."""

from __future__ import annotations

import pytest
from tests.support.counting import calls_of, folded, idle_step
from tests.support.synthetic_chain import SyntheticJob

from atoll.protocol.keeper_calls import keeper_calls
from atoll.protocol.views import JobView

FEW, MANY = (SyntheticJob(rounds=rounds) for rounds in (10, 200))


@pytest.fixture(scope="module")
def views() -> tuple[JobView, JobView]:
    return FEW.view(), MANY.view()


@pytest.mark.parametrize("is_verifier", [False, True])
def test_a_step_costs_the_same_after_many_rounds(
    views: tuple[JobView, JobView], is_verifier: bool
) -> None:
    members = MANY.verifiers if is_verifier else MANY.providers
    few, many = (calls_of(idle_step(view, members[0], is_verifier=is_verifier)) for view in views)
    assert many <= 2 * few


def test_everybodys_calls_cost_the_same_but_for_what_is_burnt(
    views: tuple[JobView, JobView],
) -> None:
    few, many = (
        calls_of(lambda view=view: list(keeper_calls(view, view.block.timestamp)))  # type: ignore[misc]
        for view in views
    )
    assert many <= 2 * few


def test_an_event_costs_the_same_after_many_rounds() -> None:
    few, many = (folded(job).calls_an_event for job in (FEW, SyntheticJob(rounds=800)))
    assert many <= 1.15 * few


def test_an_event_copies_a_path_of_the_rounds_and_not_all(
    views: tuple[JobView, JobView],
) -> None:
    _, view = views
    settled_round = view.settled[0]
    changed = view.settled.changed(0, settled_round)
    before, after = view.settled._root, changed._root
    assert [a is b for a, b in zip(before, after, strict=True)] == [False] + [True] * 6
