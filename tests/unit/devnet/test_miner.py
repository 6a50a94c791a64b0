"""When a development chain has a block: where a transaction waits at once, and seldom else."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from atoll_devnet.processes.miner import IDLE, SETTLING, SHARE, Pace

SECONDS = 1.0
TICK = 0.25
"""A binary fraction, so that sums of it are exact."""


def blocks(
    pace: Pace, until: float, is_wanted: Callable[[float], bool] = lambda _: False, took: float = 0
) -> list[float]:
    """Moments of the blocks that are made from the start on, looked for each tick."""
    made, now = list[float](), 0.0
    while now < until:
        wanted = is_wanted(now)
        if pace.is_due(now, is_wanted=wanted):
            made.append(now)
            pace.made(now, now + took, was_wanted=wanted)
        now += TICK
    return made


def test_a_chain_that_nobody_uses_tells_the_time_seldom() -> None:
    made = blocks(Pace(SECONDS, SECONDS), 20)
    assert made[:SETTLING] == [1, 2, 3]
    gaps = {later - sooner for sooner, later in pairwise(made[SETTLING - 1 :])}
    assert gaps == {IDLE * SECONDS}


def test_a_transaction_is_taken_at_once_and_confirmed_by_the_next_blocks() -> None:
    """However long none has come; the time without blocks is not caught up with."""
    pace = Pace(SECONDS, SECONDS, unwanted=SETTLING)
    pace.made(0, 0, was_wanted=False)
    assert blocks(pace, 9, lambda now: now == 2.75) == [2.75, 3.75, 4.75, 5.75]


def test_transactions_that_go_on_have_a_block_an_interval() -> None:
    assert blocks(Pace(SECONDS, 0), 5, lambda _: True) == [0, 1, 2, 3, 4]


def test_blocks_that_take_long_are_made_a_share_of_the_time() -> None:
    made = blocks(Pace(SECONDS, 0), 20, lambda _: True, took=SECONDS / 2)
    assert {later - sooner for sooner, later in pairwise(made)} == {SECONDS / 2 / SHARE}
