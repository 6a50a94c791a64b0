"""When a job is out of patience, and which job files say when."""

from __future__ import annotations

import math

import pytest

from atoll.errors import ConfigError
from atoll.job.early_stopping import EarlyStopping
from atoll.job.presets import preset


@pytest.mark.parametrize(
    ("losses", "exhausted"),
    [
        ([], False),
        ([5.0], False),
        ([5.0, 4.0, 3.0], False),
        ([5.0, 4.0, 4.5], False),
        ([5.0, 4.0, 4.5, 4.0], True),  # as good is no better
        ([5.0, 4.0, 4.5, 3.9], False),
        ([5.0, 6.0, 7.0], True),
        ([5.0, math.nan, math.nan], True),
        ([math.nan, 5.0, 4.0], False),
    ],
)
def test_two_rounds_without_a_new_least_loss(losses: list[float], exhausted: bool) -> None:
    assert EarlyStopping(2).is_exhausted(losses) is exhausted


def test_a_gain_has_to_be_large_enough() -> None:
    assert EarlyStopping(1, "0.5").is_exhausted([5.0, 4.75])
    assert not EarlyStopping(1, "0.5").is_exhausted([5.0, 4.5])


def test_no_patience_is_endless() -> None:
    assert not EarlyStopping(0).is_exhausted([5.0] * 100)


def test_patience_needs_something_to_measure() -> None:
    job = preset("nano").but({"evaluate.patience": 3, "evaluate.least_gain": "0.01"})
    assert (job.evaluate.patience, job.evaluate.least_gain) == (3, "0.01")
    with pytest.raises(ConfigError, match="patience needs a held-out loss"):
        job.but({"evaluate.batches": 0})
    with pytest.raises(ConfigError, match="least_gain is of patience"):
        job.but({"evaluate.patience": 0})
