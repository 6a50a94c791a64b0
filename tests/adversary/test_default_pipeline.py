"""Every attack of the library against the default pipeline, in a real small run.

Six seats of which one lies, five rounds: bench/attacks.py has the whole table. The same attacks
against a plain mean show that they are attacks.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.adversary.adversaries import ADVERSARIES, adaptive, label_flip, late_sybil, slow_drift
from tests.adversary.corpus import Mix
from tests.adversary.merges import MERGES, by_rule, default
from tests.adversary.run import Adversary, Arrived, Memo, Merge, Run, Setting
from tests.merging import all_standing

from atoll.merge.round import named_inputs
from atoll.train.probe import configure_native

configure_native()

SETTING = Setting(n=6, f=1, rounds=5)
RUINOUS = ("scaled_flip", "largest_payload", "gaussian", "adaptive", "late_sybil")
"""Attacks after which a plain mean has learnt far less."""


@pytest.fixture(scope="module")
def memo() -> Memo:
    return {}


@pytest.fixture(scope="module")
def honest_only(memo: Memo) -> float:
    return Run(SETTING, by_rule("mean"), memo=memo).final_loss()


def excess(merge: Merge, build: Callable[[], Adversary], memo: Memo, base: float) -> float:
    """Final loss over the honest-only mean's, less 1."""
    return Run(SETTING, merge, build(), memo).final_loss() / base - 1


@pytest.mark.parametrize("name", ADVERSARIES)
def test_the_default_pipeline_holds(name: str, memo: Memo, honest_only: float):
    assert excess(default, ADVERSARIES[name], memo, honest_only) < 0.015


@pytest.mark.parametrize("name", RUINOUS)
def test_a_plain_mean_does_not(name: str, memo: Memo, honest_only: float):
    assert excess(by_rule("mean"), ADVERSARIES[name], memo, honest_only) > 0.02


@pytest.mark.parametrize("name", ["min_sum", "scaled_flip"])
def test_the_rule_alone_bounds_what_replays_prevent(name: str, memo: Memo, honest_only: float):
    assert excess(MERGES["nnm_trimmed_mean"], ADVERSARIES[name], memo, honest_only) < 0.05


def test_without_colluders_nothing_is_lost(memo: Memo, honest_only: float):
    loss = Run(SETTING, default, memo=memo).final_loss()
    assert abs(loss / honest_only - 1) < 0.01


def seats_by_round(build: Callable[[], Adversary], memo: Memo) -> list[tuple[set[int], int]]:
    """Seats whose update reached the merge, and how many were refused, round by round."""
    seen: list[tuple[set[int], int]] = []

    def watching(arrived: Arrived):
        seen.append((set(arrived.updates), arrived.caught))
        return default(arrived)

    for _ in Run(SETTING, watching, build(), memo).play():
        pass
    return seen


def test_bytes_off_the_grid_are_refused_and_count_as_caught(memo: Memo):
    everyone_else = set(SETTING.honest)
    rounds = seats_by_round(ADVERSARIES["malformed_bytes"], memo)
    assert rounds == [(everyone_else, 1)] * SETTING.rounds


def test_a_late_sybil_is_away_until_half_time(memo: Memo):
    run = Run(SETTING, default, late_sybil(), memo)
    present = [0 in record.updates for record in run.play()]
    assert present == [False, False, False, True, True]


def test_wrong_targets_change_what_a_seat_trains(memo: Memo):
    trained = {}
    for build in (label_flip, adaptive):
        adversary = build()
        submitted = []
        copying = Adversary(
            lambda known, kept=submitted: kept.append(known.trained) or known.trained,
            targets=adversary.targets,
        )
        next(Run(SETTING, default, copying, memo).play())
        trained[build.__name__] = submitted[0][0]
    flipped, honest = trained["label_flip"], trained["adaptive"]
    assert flipped @ honest < 0.5 * (honest @ honest)


def test_slow_drift_is_honest_training_less_a_shift_that_no_check_names(memo: Memo):
    drift, against = slow_drift(), []

    def watched(known):
        rows, mean = drift.submit(known), known.honest.mean(axis=0)
        against.append(((known.trained - rows) @ mean).min() / (mean @ mean))
        return rows

    run = Run(SETTING, default, Adversary(watched, targets=drift.targets), memo)
    for record in run.play():
        facts = all_standing(record.updates, run.manifest)
        seed = run.seed_of(record.opening.round)
        inputs = named_inputs(
            record.opening, record.updates, facts=facts, data_seed=seed, manifest=run.manifest
        )
        assert 0 not in inputs.in_full
    assert max(against) > 0.05


@pytest.mark.parametrize("mix", list(Mix))
def test_every_mix_of_data_trains(mix: Mix):
    setting = Setting(n=4, f=0, rounds=3, steps=8, mix=mix)
    run = Run(setting, by_rule("mean"))
    first, *_, last = [record.state for record in run.play()]
    assert run.loss(last) < run.loss(first) - 0.3
