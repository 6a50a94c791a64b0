"""How far the preparation of a text is, on standard error."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

if TYPE_CHECKING:
    from atoll.train.corpus.prepare import Progress

REWRITE_SECONDS: Final = 0.2
"""Between two states of a line on a terminal."""
LINE_SECONDS: Final = 30.0
"""Between two lines elsewhere, where no tenth of the text comes before."""
_TENTHS: Final = 10
MEASURING: Final = "prepares the text, then times the model's steps on this machine"
"""What is said before a draft is made, which may take a while without a word."""


class Preparing:
    """Tells what it is called with: in one line that is rewritten on a terminal, elsewhere in a
    line for each tenth of the text, or each half minute. A context that ends its line.

    Args:
        out: None is standard error.
        clock: seconds.
    """

    def __init__(
        self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out, self._clock = out or sys.stderr, clock
        self._begun: tuple[float, int] | None = None
        self._told_at = clock()
        self._tenths = 0
        self._last = ""
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_open:
            self._write(self._last, "\n")

    def __call__(self, progress: Progress) -> None:
        """Takes the next state, and tells it if it is time to."""
        now = self._clock()
        self._begun = self._begun or (now, progress.bytes)
        self._last = self._text(progress, now)
        if self._out.isatty():
            if not self._is_open or now - self._told_at >= REWRITE_SECONDS:
                self._told_at, self._is_open = now, True
                self._write(self._last, "")
            return
        tenths = int(_TENTHS * _share(progress))
        if tenths > self._tenths or now - self._told_at >= LINE_SECONDS:
            self._tenths, self._told_at = tenths, now
            self._out.write(self._last + "\n")
            self._out.flush()

    def _text(self, progress: Progress, now: float) -> str:
        """The state in words; the speed is that of this run, which may have resumed another."""
        assert self._begun is not None  # the first call sets it
        begun, before = self._begun
        read = f"{progress.bytes / 1e6:,.1f} MB"
        if progress.bytes <= progress.bytes_total:
            read += f" of {progress.bytes_total / 1e6:,.1f} MB ({float(_share(progress)):.0%})"
        speed = ""
        if now > begun:
            speed = f", {(progress.bytes - before) / 1e6 / (now - begun):.1f} MB a second"
        counts = f"{progress.documents:,} documents, {progress.tokens:,} tokens"
        if progress.unknown:
            counts += f" ({progress.unknown / max(progress.tokens, 1):.2%} unknown)"
        return f"preparing the text: {read}, {counts}{speed}"

    def _write(self, text: str, end: str) -> None:
        """Over the terminal's line, of which the rest is cleared."""
        fits = text[: shutil.get_terminal_size().columns - 1]  # what wraps cannot be rewritten
        self._out.write(f"\r{fits}\x1b[K{end}")
        self._out.flush()


def _share(progress: Progress) -> Fraction:
    """Of the text; compressed files have more than their bytes, so that it stops at all."""
    total = progress.bytes_total
    return min(Fraction(progress.bytes, total), Fraction(1)) if total else Fraction(1)
