"""Which runs a worker keeps between the moves of games."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest
from tests.support.manifests import make_manifest

from atoll.protocol.types import ZERO_DIGEST, JobId, RoundIndex, SeatIndex
from atoll.service import game_moves
from atoll.storage.local import LocalStore
from atoll.train.judge_task import JudgeTask
from atoll.train.own_run import OwnRun

TASK = JudgeTask(
    job=JobId(1),
    manifest=make_manifest().to_bytes(),
    initial=ZERO_DIGEST,
    round=RoundIndex(0),
    seat=SeatIndex(0),
    data_seed=ZERO_DIGEST,
    model=b"",
    segment=0,
)


@dataclass
class Run:
    """Says when its states are made."""

    seat: int
    made: list[int]
    holds_states: bool = False

    def move(self) -> None:
        if not self.holds_states:
            self.made.append(self.seat)
        self.holds_states = True

    def let_go(self) -> None:
        self.holds_states = False


@pytest.fixture
def seats_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., list[int]]]:
    """Plays a move about each of these seats; says of which the states were made for it."""
    monkeypatch.setattr(game_moves, "_runs", {})
    monkeypatch.setattr(game_moves, "memory", lambda: (1 << 40, 1 << 40))
    made = list[int]()

    def make(task: JudgeTask, store: LocalStore) -> OwnRun:
        return cast(OwnRun, Run(task.seat, made))

    def play(*seats: int) -> list[int]:
        made.clear()
        for seat in seats:
            own = game_moves._run(replace(TASK, seat=SeatIndex(seat)), str(tmp_path), make)
            cast(Run, own).move()
        return list(made)

    yield play


def test_games_at_once_have_a_run_each(seats_run: Callable[..., list[int]]) -> None:
    assert seats_run(0, 1, 0, 1, 2, 1, 0) == [0, 1, 2]


def test_games_about_many_liars_of_one_round_have_a_run_each(
    seats_run: Callable[..., list[int]],
) -> None:
    """Made again at every move, each would run a trace at every move, and its clock has one."""
    liars = range(12)
    assert seats_run(*liars, *liars, *liars) == list(liars)


def test_of_too_many_the_one_that_moved_longest_ago_goes(
    seats_run: Callable[..., list[int]],
) -> None:
    most = game_moves.MOST_RUNS
    assert seats_run(*range(most)) == list(range(most))
    assert seats_run(0, most, 0) == [most]
    assert seats_run(1, 0) == [1]


def test_without_memory_for_two_there_is_one_and_what_all_found(
    seats_run: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(game_moves, "memory", lambda: (1 << 40, 0))
    assert seats_run(0, 0, 1, 1) == [0, 1]
    first, second = game_moves._runs.values()
    assert (first.holds_states, second.holds_states) == (False, True)
    assert seats_run(0, 0, 1) == [0, 1]
    assert list(game_moves._runs.values()) == [first, second]
