"""What a person sees while a run goes on: lines and, at a terminal, the state of the round."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from atoll.job.narrate import numbers
from atoll.law.views import JobView
from atoll.law.words import JobStatus

_COLOURS = (
    ("loses", "red"),
    ("reports", "yellow"),
    ("confirmed", "yellow"),
    ("paid", "green"),
    ("settled", "cyan"),
    ("loss", "magenta"),
)


class Display:
    """Use as a context manager. Without a terminal only the lines are written, plain."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._started = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def line(self, text: str) -> None:
        """One line, with the seconds since the start."""
        colour = next((colour for word, colour in _COLOURS if word in text), "")
        prefix = Text(f"{time.monotonic() - self._started:6.1f}  ", style="dim")
        self.console.print(prefix + Text(text, style=colour))

    def show(self, view: JobView, now: int, losses: dict[int, float]) -> None:
        """Draws the state of the running round; nothing without a terminal."""
        if self._live is not None:
            self._live.update(_round_table(view, now, losses))


def _round_table(view: JobView, now: int, losses: dict[int, float]) -> Table:
    state = view.state
    table = Table.grid(padding=(0, 2))
    rounds = view.terms.rounds if view.terms else 0
    left = max(0, state.deadline - now) if state.deadline else None
    window = "" if left is None else f"  {left} s left"
    phase = state.phase.name if state.status is JobStatus.ACTIVE else state.status.name
    table.add_row("round", f"{state.round + 1} of {rounds}  {phase}{window}")
    table.add_row("committed", f"{numbers(state.committed)} of {numbers(state.seated)}")
    table.add_row("revealed", numbers(state.revealed))
    voices = ", ".join(str(v) for v in sorted(view.ballots)) or "none"
    table.add_row("balloted", f"{voices} of {numbers(state.verifiers)}")
    falls = " → ".join(f"{losses[r]:.3f}" for r in sorted(losses))
    table.add_row("loss", falls or "-")
    return table
