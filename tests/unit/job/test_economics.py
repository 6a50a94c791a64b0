"""The tables of docs/attacks.md about money are what the law's functions say now, and every cheat
that is said to lose loses.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[3] / "bench" / "economics.py"


@pytest.fixture(scope="module")
def economics() -> ModuleType:
    spec = importlib.util.spec_from_file_location("economics_bench", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_tables_as_they_are_now(economics: ModuleType) -> None:
    """`python bench/economics.py --write` writes them."""
    text = economics.PAGE.read_text(encoding="utf-8")
    assert economics.written(text) == text


def test_every_strategy_that_is_said_to_lose_ends_below_honest_work(economics: ModuleType) -> None:
    figures = economics.everything()
    assert figures["holds"]
    assert sum(strategy.is_promised for strategy in economics.STRATEGIES) >= 15
    beyond = [row for row in figures["profits"] if not row["promised"] and row["margin"] == 4]
    assert all(row["profit"] > 0 for row in beyond)  # or they would be promised


def test_a_margin_of_seven_holds_while_a_tenth_speaks(economics: ModuleType) -> None:
    rows = [row for row in economics.profits() if row["strategy"] == "a tenth speak"]
    assert {row["margin"]: row["below_honest"] for row in rows} == {4: False, 7: True}


def test_the_dial_at_a_tenth_keeps_every_size_within_it(economics: ModuleType) -> None:
    rows = list(economics.costs())
    assert len(rows) == 3 * 5 * 5
    assert all(row["within"] and row["percent"] <= 10 for row in rows)
    cells = {(row["model"], row["seats"], row["rounds"]): row["percent"] for row in rows}
    assert cells["1B", 64, 500] <= 5
    assert cells["124M", 8, 50] <= 10


def test_a_false_seat_gains_what_a_simulation_of_many_gains(economics: ModuleType) -> None:
    """The expectation of one that is false in every round, against 4,000 trials."""
    seat, draw, total = economics.seat_of(8, 50, 4), random.Random(0), 0.0
    for _ in range(4_000):
        for at in range(50):
            total += 1
            if draw.random() < seat.chance[at] * 2 / 3:
                total -= seat.stake[at] + 1
                break
    assert economics.every_round(seat) == pytest.approx(total / 4_000, rel=0.05)
