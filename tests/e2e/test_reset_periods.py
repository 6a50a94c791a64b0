"""Streaming, feedback: seats carry states of their own within a reset period, and answer for
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from atoll_devnet.run.options import RunOptions

from .conftest import Runner, provider

CHEAT = 3
ROUNDS, RESET_PERIOD = 6, 3


METHODS: dict[str, dict[str, Any]] = {
    "streaming": {"method.name": "streaming"},
    "the largest, and what they leave out": {"method.name": "sparseloco"},
}
"""`tests/property/rounds/test_poisoned_reset_periods.py` holds it of rounds of one step, too."""


@pytest.mark.parametrize("method", METHODS)
async def test_a_false_round_of_a_reset_period_loses_by_it_or_by_a_later_one(
    options: Callable[..., RunOptions], play: Runner, method: str
) -> None:
    job = METHODS[method] | {
        "method.reset_period": RESET_PERIOD,
        "rounds": ROUNDS,
        "audit.rate": "0.1",
        "audit.last": "all",
    }
    report = await play(options(job=job, cheats={CHEAT: "poison-reset-period"}))
    assert report["job"]["status"] == "done"
    (game,) = (game for game in report["games"] if game["outcome"] == "holder lost")
    assert (game["seat"], game["round"] % RESET_PERIOD) == (
        CHEAT,
        0,
    )  # all of its other rounds are honest
    assert int(provider(report, CHEAT)["slashed_wei"]) > 0
    for seat in range(CHEAT):
        assert provider(report, seat)["paid_rounds"] == ROUNDS
