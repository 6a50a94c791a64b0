"""How far the preparation of a text is: one line on a terminal, a few elsewhere."""

from __future__ import annotations

import io
from collections.abc import Iterable

from atoll.cli.progress import LINE_SECONDS, Preparing
from atoll.train.corpus.prepare import Progress

MB = 1_000_000


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


def test_a_terminal_has_one_line_that_is_rewritten_and_ends_with_the_last_state() -> None:
    states = [(0.1, Progress(n * MB, 50 * MB, n, 4 * n)) for n in range(1, 51)]
    text = tell(Terminal(), states)
    assert text.count("\n") == 1 and text.endswith("\x1b[K\n")
    assert 50 / 4 < text.count("\r") < 50 / 2
    assert "50.0 MB of 50.0 MB (100%), 50 documents, 200 tokens" in text.rpartition("\r")[2]


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
