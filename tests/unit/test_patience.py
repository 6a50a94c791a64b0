"""What is waited for as long as it moves."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.patience import STILL_SECONDS, StillnessAlarm, wait_while_it_moves

LOOKS = 100


class Slow(subprocess.Popen[bytes]):
    """What has not ended yet at so many looks; between them goes on what is given."""

    def __init__(self, goes_on: Callable[[int], object]) -> None:
        self.args, self.goes_on, self.looks = "slow", goes_on, 0

    def wait(self, timeout: float | None = None) -> int:
        self.looks += 1
        self.goes_on(self.looks)
        if self.looks > LOOKS:
            return 3
        raise subprocess.TimeoutExpired(self.args, timeout or 0)


def test_what_moves_is_waited_for_whatever_the_clock_says(tmp_path: Path) -> None:
    moving = Slow(lambda look: (tmp_path / "moves").write_text("." * look))
    assert wait_while_it_moves(moving, tmp_path, ("moves",), still_s=0.0) == 3


def test_what_only_writes_a_log_is_given_up(tmp_path: Path) -> None:
    circling = Slow(lambda look: (tmp_path / "log").write_text("." * look))
    with pytest.raises(subprocess.TimeoutExpired):
        wait_while_it_moves(circling, tmp_path, ("moves",), still_s=0.0)
    assert circling.looks < LOOKS


def test_the_alarm_of_a_network_is_set_anew_only_where_something_moves(tmp_path: Path) -> None:
    armed = list[float]()
    alarm = StillnessAlarm(tmp_path, ("journal.sqlite*",), armed.append)
    alarm.look()
    (tmp_path / "log").write_text("goes on")
    alarm.look()
    assert armed == []
    journal = tmp_path / "provider-0" / "journal.sqlite"
    journal.parent.mkdir()
    journal.write_text("an entry")
    alarm.look()
    alarm.look()
    assert armed == [STILL_SECONDS]
    alarm.end()
    journal.write_text("an entry, and another")
    alarm.look()
    assert armed == [STILL_SECONDS]
