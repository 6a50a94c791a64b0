"""How far the preparation of a text is, and a job that is watched: bars of `rich` on a terminal, on
standard error; elsewhere lines, or nothing where lines tell it anyway.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TextIO, TypeAlias

from atoll.job.event_text import tokens

if TYPE_CHECKING:
    from rich.console import Console

    from atoll.job.job_snapshot import JobSnapshot
    from atoll.train.corpus.prepare import Progress

LINE_SECONDS: Final = 30.0
"""Between two lines where there is no terminal, and no tenth of the text comes before."""
DAY_SECONDS: Final = 24 * 3600.0
_TENTHS: Final = 10
_MB: Final = 1e6
MEASURING: Final = "prepares the text, then sizes the job on this machine"
"""What is said before a draft is made, which may take a while without a word."""
ShowJob: TypeAlias = "Callable[[JobSnapshot], None]"


def terminal(out: TextIO) -> Console | None:
    """The terminal that `out` is, if a line of it can be drawn over."""
    if not out.isatty():  # before rich is loaded
        return None
    from rich.console import Console

    console = Console(file=out, highlight=False)
    return None if console.is_dumb_terminal else console


class Preparing:
    """Tells what it is called with: as a bar on a terminal, elsewhere in a line for each tenth of
    the text, or each half minute. A context that ends its bar.

    Args:
        out: None is standard error.
        clock: seconds.
    """

    def __init__(
        self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out, self._clock = out or sys.stderr, clock
        self._console = terminal(self._out)
        self._bar: Any = None
        self._begun: tuple[float, int] | None = None
        self._told_at = clock()
        self._tenths = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Takes the next state, and tells it if it is time to."""
        if self._console is not None:
            self._draw(self._console, progress)
            return
        now = self._clock()
        self._begun = self._begun or (now, progress.bytes)
        tenths = int(_TENTHS * _share(progress))
        if tenths > self._tenths or now - self._told_at >= LINE_SECONDS:
            self._tenths, self._told_at = tenths, now
            self._out.write(self._text(progress, now) + "\n")
            self._out.flush()

    def _draw(self, console: Console, progress: Progress) -> None:
        """A run that resumes another begins where that one ended, and its speed is its own."""
        if self._bar is None:
            self._bar = _preparing_bar(console, self._clock)
            begun = {"total": progress.bytes_total, "completed": progress.bytes}
            self._bar.add_task("preparing the text", **begun, counts="")
            self._bar.start()
        (task,) = self._bar.tasks
        if progress.bytes > progress.bytes_total:
            task.total = None  # what is compressed has more bytes than its files
        self._bar.update(task.id, completed=progress.bytes, counts=_counts(progress))

    def _text(self, progress: Progress, now: float) -> str:
        """The state in words; the speed is that of this run, which may have resumed another."""
        assert self._begun is not None  # the first call sets it
        begun, before = self._begun
        read = f"{progress.bytes / _MB:,.1f} MB"
        if progress.bytes <= progress.bytes_total:
            read += f" of {progress.bytes_total / _MB:,.1f} MB ({float(_share(progress)):.0%})"
        speed = ""
        if now > begun:
            speed = f", {(progress.bytes - before) / _MB / (now - begun):.1f} MB a second"
        return f"preparing the text: {read}, {_counts(progress)}{speed}"


def _preparing_bar(console: Console, clock: Callable[[], float]) -> Any:
    from rich import progress as rich_progress

    return rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(bar_width=20),
        rich_progress.DownloadColumn(),
        rich_progress.TransferSpeedColumn(),
        rich_progress.TimeRemainingColumn(),
        rich_progress.TextColumn("{task.fields[counts]}"),
        console=console,
        get_time=clock,
    )


def watching(*, as_json: bool) -> AbstractContextManager[ShowJob]:
    """A bar of a job's rounds, its time and its money, below the lines that tell what happens;
    nothing where one of the two goes elsewhere than to a terminal.
    """
    console = None if as_json or not sys.stdout.isatty() else terminal(sys.stderr)
    return nullcontext(lambda snapshot: None) if console is None else RoundsBar(console)


class RoundsBar:
    """Draws where a job stands. A context that leaves its last state.

    What is written to standard output meanwhile stands above it, on the same terminal.
    """

    def __init__(self, console: Console) -> None:
        from rich import progress as rich_progress

        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(bar_width=20),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TextColumn("rounds"),
            rich_progress.TimeElapsedColumn(),
            rich_progress.TimeRemainingColumn(),
            rich_progress.TextColumn("{task.fields[money]}"),
            console=console,
            speed_estimate_period=DAY_SECONDS,  # a round takes longer than its usual half minute
        )

    def __enter__(self) -> ShowJob:
        self._bar.start()
        return self._show

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def _show(self, snapshot: JobSnapshot) -> None:
        settled, money = snapshot.settled_rounds, _money(snapshot)
        if not self._bar.task_ids:
            name, rounds = f"job {snapshot.job}", snapshot.rounds
            self._bar.add_task(name, total=rounds, completed=settled, money=money)
        self._bar.update(self._bar.task_ids[0], completed=settled, money=money)


def _money(snapshot: JobSnapshot) -> str:
    return f"{tokens(snapshot.paid_wei)} of {tokens(snapshot.funded_wei)} tokens paid"


def _counts(progress: Progress) -> str:
    counts = f"{progress.documents:,} documents, {progress.tokens:,} tokens"
    if progress.unknown:
        counts += f" ({progress.unknown / max(progress.tokens, 1):.2%} unknown)"
    return counts


def _share(progress: Progress) -> Fraction:
    """Of the text; compressed files have more than their bytes, so that it stops at all."""
    total = progress.bytes_total
    return min(Fraction(progress.bytes, total), Fraction(1)) if total else Fraction(1)
