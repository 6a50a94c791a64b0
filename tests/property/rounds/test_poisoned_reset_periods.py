"""A reset period whose first round is false, and whose others follow honestly from it.

`tests/e2e/test_reset_periods.py` has networks of such a cheat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.property.rounds.reset_periods import ResetPeriod, trained_reset_period
from tests.property.rounds.test_reset_period_games import claim_of, judged
from tests.property.rounds.test_reset_period_rounds import carried_state
from tests.support.merging import bearing_none
from tests.unit.train.factories import make_job, with_method
from tests.unit.train.plays import play

from atoll.numerics.trace.opcodes import Op
from atoll.protocol.games.players import NothingDiffers
from atoll.protocol.program import TraceTemplate
from atoll.train.own_run import OwnRun
from atoll.train.replay import replay_seat
from atoll.train.round import TrainedRound
from atoll_devnet.cheats import training

METHODS = ("sparseloco", "demo")
ROUNDS = 2


@pytest.fixture(scope="module", params=METHODS)
def reset_period(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ResetPeriod]:
    job = make_job(tmp_path_factory.mktemp("poisoned"))
    manifest = bearing_none(with_method(job.manifest, request.param))
    steps = {"steps": manifest.inner.steps, "segment_steps": manifest.inner.segment}
    terms = replace(manifest.terms, f=0, **steps)
    yield trained_reset_period(job.of(manifest.model_copy(update={"terms": terms})), ROUNDS)


@pytest.fixture(scope="module")
def poisoned(reset_period: ResetPeriod) -> list[TrainedRound]:
    """What the cheat says of each round, which has kept nothing of an honest one."""
    store = reset_period.job.store
    carried_state(reset_period.tasks[0], store).drop()
    return [training.poison_reset_period(each, str(store.root), ()) for each in reset_period.tasks]


def test_the_false_round_is_found_in_itself_and_in_a_later_one(
    reset_period: ResetPeriod, poisoned: list[TrainedRound]
) -> None:
    assert all(
        false.states != true.states
        for false, true in zip(poisoned, reset_period.trained, strict=True)
    )
    for round, earlier in enumerate((None, 0)):
        claimed = reset_period.claimed(round, poisoned)
        seen = replay_seat(reset_period.tasks[round], claimed, reset_period.job.store)
        assert (seen.earlier, seen.mismatch_at) == (earlier, 0)


def test_the_game_about_it_ends_where_the_planted_text_is_read(
    reset_period: ResetPeriod, poisoned: list[TrainedRound]
) -> None:
    task, store = judged(reset_period, 0, 0), reset_period.job.store
    holder, challenger = OwnRun(task, store, training._open_poisoned), OwnRun(task, store)
    states = (reset_period.states[0].digest(), *poisoned[0].states)
    claim = replace(
        claim_of(reset_period, judged(reset_period, 1, 0), poisoned[0]),
        round=task.round,
        data_seed=task.data_seed,
        initial_state=states[0],
        closing=states[1],
    )
    game = play(claim, lambda: holder, lambda: challenger)
    assert game.node is not None
    assert TraceTemplate.from_bytes(challenger.template(game.node).data).op == Op.TOKENS


def test_an_honest_seat_of_it_is_found_as_it_said(reset_period: ResetPeriod) -> None:
    last = ROUNDS - 1
    seen = replay_seat(reset_period.tasks[last], reset_period.claimed(last), reset_period.job.store)
    assert (seen.earlier, seen.mismatch_at) == (None, None)
    assert seen.work_tags == reset_period.trained[last].work_tags
    task = judged(reset_period, last, 0)
    own = OwnRun(task, reset_period.job.store)
    with pytest.raises(NothingDiffers):
        play(claim_of(reset_period, task, reset_period.trained[last]), lambda: own, lambda: own)
