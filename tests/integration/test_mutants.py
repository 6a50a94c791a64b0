"""Forks of a warm process, in which mutants are tried."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests.mutants.forks import Forks, allow
from tests.mutants.operators import Mutant


def test_a_fork_ends_with_its_code_or_with_its_time() -> None:
    forks: Forks[str] = Forks(4)

    def say(home: Path) -> int:
        (home / "by").write_text("a test", "utf-8")
        return 1

    def compute(_: Path) -> int:
        while True:
            pass

    def dawdle(_: Path) -> int:
        allow(60)
        allow(0.1)
        while time.process_time() < 5:
            pass
        return 0

    def wait(_: Path) -> int:
        signal.pause()
        return 0

    forks.start("says", 60, say)
    forks.start("computes", 1, compute)
    forks.start("dawdles", 60, dawdle)
    forks.start("waits", 0.01, wait)
    ended = {one.what: one for one in forks.wait(for_all=True)}
    assert (ended["says"].code, ended["says"].said) == (1, "a test")
    assert {ended[name].code for name in ("computes", "dawdles", "waits")} == {None}


def test_a_fork_that_breaks_is_no_verdict() -> None:
    forks: Forks[Mutant | None] = Forks(1)
    forks.start(None, 60, lambda _: 1 // 0)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        forks.wait(for_all=True)
