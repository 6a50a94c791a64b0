"""What a person sees while a run goes on: lines and, at a terminal, the state of the round."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from atoll.job.event_text import numbers
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import to_bitmap
from atoll.protocol.views import JobView

_COLOURS = (
    ("is slashed", "red"),
    ("loses", "red"),
    ("mismatch", "yellow"),
    ("disputes", "yellow"),
    ("game", "yellow"),
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
    table = Table.grid(padding=(0, 2))
    rounds = view.terms.rounds if view.terms else 0
    if view.open is None:
        table.add_row("round", f"{view.round} of {rounds} done  {view.phase.name.lower()}")
    else:
        _running_rows(table, view.open, f"{view.round + 1} of {rounds}", now)
    for settled_round in view.auditing(now):
        table.add_row(f"audit {settled_round.round}", _audit(settled_round, now))
    playing = [str(game.id) for game in view.games.values() if game.is_open]
    if playing:
        table.add_row("games", ", ".join(playing))
    falls = " → ".join(f"{losses[r]:.3f}" for r in sorted(losses))
    table.add_row("loss", falls or "-")
    return table


def _running_rows(table: Table, running: OpenRound, which: str, now: int) -> None:
    left = max(0, running.deadline - now)
    table.add_row("round", f"{which}  {running.phase.name.lower()}  {left} s left")
    table.add_row("committed", f"{numbers(running.committed)} of {numbers(running.counting)}")
    table.add_row("revealed", numbers(running.revealed))
    votes = numbers(to_bitmap(running.votes))
    table.add_row("votes", f"{votes} of the committee {numbers(running.committee)}")


def _audit(settled_round: SettledRound, now: int) -> str:
    """How far the audit behind a settled round is."""
    clock, due = settled_round.clock, len(settled_round.duties)
    drawn = f"seats {numbers(settled_round.drawn)} drawn"
    if now < clock.audit_end:
        return f"{drawn}, {len(settled_round.audit_reports)} of {due} audit reports sealed"
    if now < clock.open_end:
        return f"{drawn}, {len(settled_round.opened_reports)} of {due} audit reports open"
    if now < clock.keys_end:
        return f"{drawn}, keys of {numbers(to_bitmap(settled_round.keys))} shown"
    return f"{drawn}, {clock.window_end - now} s for games are left"
