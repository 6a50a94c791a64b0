"""Calibration: what is measured of a real run, and what follows from measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from atoll.errors import NumericsMismatch
from atoll.lab.calibrate import judged, trials
from atoll.lab.differential import LabRun
from atoll.lab.trial import CHEATS, Measured, Trial, TrialResult, measure, train_reference

SMALL = Trial(LabRun(width=32, layers=1, seq=16, steps=6), segments=3, seeds=(0,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reference")
    train_reference(SMALL, path)
    return path


def result(*far: float, cosine: float = 0.0) -> TrialResult:
    return TrialResult(tuple(Measured(x, x / 10, x / 100, 1.0) for x in far), (cosine,))


def test_the_same_setting_is_no_distance_away(folder: Path) -> None:
    found = measure(replace(SMALL, what="again"), folder)
    assert found.segments == (Measured(0.0, 0.0, 0.0, 1.0),) * 3
    assert found.cosines == (0.0,)


def test_every_cheat_lies_further_off_than_other_arithmetic(folder: Path) -> None:
    honest = measure(replace(SMALL, what="wide", dtype="float64"), folder)
    results = {"wide": honest} | {
        cheat: measure(replace(SMALL, what=cheat), folder) for cheat in CHEATS
    }
    found = judged(results)
    assert max(row.most_excess for row in found.rows if row.honest) < 0.5
    assert {row.name for row in found.rows if not row.honest} == set(CHEATS)
    assert found.separation > 1.0


def test_tolerances_are_eight_times_what_is_honest() -> None:
    found = judged(
        {"a": result(1.1e-5, 2.2e-5), "b": result(1e-6), "no weight decay": result(1e-3)}
    )
    proposed = found.proposed
    assert (proposed.params, proposed.slots, proposed.loss) == ("0.0002", "0.00002", "0.000002")
    assert found.separation == pytest.approx(5.0)
    far = {row.name: (row.far.params, row.honest) for row in found.rows}
    assert far == {"a": (2.2e-5, True), "b": (1e-6, True), "no weight decay": (1e-3, False)}


def test_the_segment_nearest_to_passing_decides() -> None:
    found = judged(
        {"a": result(1e-5), "a step skipped": result(1.0, 1e-4), "bf16 products": result(1)}
    )
    (skipped,) = (row for row in found.rows if row.name == "a step skipped")
    assert skipped.least_excess == found.separation == pytest.approx(1.25)


def test_one_machine_that_differs_nowhere_still_leaves_room() -> None:
    assert judged({"a": result(0.0)}).proposed.params == "0.000001"


def test_without_anything_honest_there_is_no_proposal() -> None:
    with pytest.raises(NumericsMismatch):
        judged({"half the batch": result(1.0)})


def test_honest_trials_differ_in_one_thing_each() -> None:
    found = list(trials(SMALL))
    assert [t.what for t in found if t.what in CHEATS] == list(CHEATS)
    for trial in found:
        like = replace(trial, what=SMALL.what)
        changed = [
            n
            for n in ("threads", "dtype", "device", "caps")
            if getattr(like, n) != getattr(SMALL, n)
        ]
        assert len(changed) == (trial.what not in CHEATS)
