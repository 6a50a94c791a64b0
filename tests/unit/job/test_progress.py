"""How far the preparation of a text is, or a job: a bar on a terminal, a few lines elsewhere."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.unit.protocol.script import Script

from atoll.cli.progress import LINE_SECONDS, Preparing, RoundsBar, terminal
from atoll.job.event_text import tokens
from atoll.job.job_snapshot import JobSnapshot
from atoll.protocol.types import TOKEN
from atoll.train.corpus.prepare import Progress

MB = 1_000_000


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that draws, of whoever runs this."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def tell(out: io.StringIO, states: Iterable[tuple[float, Progress]]) -> str:
    """What is written of states, each so many seconds after the one before."""
    clock = Clock()
    with Preparing(out, clock) as progress:
        for seconds, state in states:
            clock.now += seconds
            progress(state)
    return out.getvalue()


def last_line(text: str) -> str:
    """What stands on the terminal in the end, without what moves and colours it."""
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text).strip().rpartition("\r")[2]


def test_a_terminal_has_a_bar_that_is_redrawn_and_ends_with_the_last_state() -> None:
    states = [(0.1, Progress(n * MB, 50 * MB, n, 4 * n)) for n in range(1, 51)]
    text = tell(Terminal(), states)
    line = last_line(text)
    assert line.startswith("preparing the text ━━━━")
    assert "50.0/50.0 MB 10.0 MB/s 0:00:00 50 documents, 200 tokens" in line


def test_a_bar_of_a_run_that_resumes_has_the_speed_of_this_run() -> None:
    states = [(1, Progress(n * MB, 100 * MB, n, n)) for n in range(41, 61)]
    line = last_line(tell(Terminal(), states))
    assert "60.0/100.0 MB 1.0 MB/s 0:00:40 60 documents" in line


def test_a_bar_of_compressed_text_has_no_end_to_wait_for() -> None:
    line = last_line(tell(Terminal(), [(1, Progress(5 * MB, MB, 3, 7))]))
    assert "5.0/? MB ?  3 documents" in line


def test_a_bar_of_a_job_has_its_rounds_and_its_money() -> None:
    out = Terminal()
    console = terminal(out)
    assert console is not None
    script = Script.ready()
    snapshot = JobSnapshot.of(script.net.view)
    with RoundsBar(console) as show:
        show(snapshot)
        show(replace(snapshot, settled_rounds=1, paid_wei=TOKEN // 2))
    line = last_line(out.getvalue())
    assert re.match(rf"job {snapshot.job} ━+.* 1/{snapshot.rounds} rounds", line)
    assert f"0.5 of {tokens(snapshot.funded_wei)} tokens paid" in line


def test_where_a_line_cannot_be_drawn_over_there_is_no_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert terminal(io.StringIO()) is None
    monkeypatch.setenv("TERM", "dumb")
    assert terminal(Terminal()) is None


def test_elsewhere_there_is_a_line_for_each_tenth() -> None:
    states = [(0.1, Progress(n * MB, 1000 * MB, n, n)) for n in range(1, 1001)]
    lines = tell(io.StringIO(), states).splitlines()
    assert [line.partition("(")[2].partition(")")[0] for line in lines] == [
        f"{tenth}0%" for tenth in range(1, 11)
    ]
    assert lines[-1].startswith("preparing the text: 1,000.0 MB of 1,000.0 MB (100%)")
    assert lines[-1].endswith(", 10.0 MB a second")


def test_the_share_of_unknown_tokens_is_told() -> None:
    text = tell(io.StringIO(), [(0.1, Progress(MB, MB, 3, 400, 2))])
    assert "3 documents, 400 tokens (0.50% unknown)" in text


def test_elsewhere_a_slow_text_is_told_of_each_half_minute() -> None:
    states = [(LINE_SECONDS / 3, Progress(n * MB, 10**9 * MB, n, n)) for n in range(1, 10)]
    assert len(tell(io.StringIO(), states).splitlines()) == 3


def test_compressed_text_has_no_share_of_what_it_is_more_than() -> None:
    (line,) = tell(io.StringIO(), [(1, Progress(5 * MB, MB, 3, 7))]).splitlines()
    assert line == "preparing the text: 5.0 MB, 3 documents, 7 tokens"


def test_what_was_prepared_before_writes_nothing() -> None:
    assert tell(io.StringIO(), []) == tell(Terminal(), []) == ""
