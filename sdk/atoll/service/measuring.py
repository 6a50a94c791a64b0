"""A service's measures: traffic into its journal, all of them into the metrics file.

Rule of this file: nothing here may cost a duty: what cannot be written is told once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from atoll.service.context import Context
from atoll.service.machines import Machines
from atoll.service.metrics import NO_ROUND, read_measures, write_metrics

S = TypeVar("S")
METRICS_SECONDS = 2.0
SECONDS_BY_MEASURE = 0.001
"""So much later the metrics' file is written again for each measure in it, all of which are: to
write thousands of rounds takes as small a part of the time as to write one.
"""
log = structlog.get_logger("atoll.service")


@dataclass(frozen=True, slots=True)
class Measured:
    """What the metrics file says, or is to: how many measures, and what is beside them."""

    count: int
    about: dict[str, object]


class Measuring(Generic[S]):
    """Of one service."""

    def __init__(self, role: str, context: Context, machines: Machines[S]) -> None:
        self._role = role
        self._context = context
        self._machines = machines
        self._bytes_seen: dict[str, int] = {}
        self._failed = ""
        self._written: Measured | None = None
        self._measures_read = 0

    async def run(self) -> None:
        """Months of measures are written beside the duties; what is being written then ends too."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "atoll-metrics") as pool:
            while True:
                with self._may_fail():
                    if (news := self._news()) is not None:
                        await loop.run_in_executor(pool, self._write, news)
                pause = max(METRICS_SECONDS, self._measures_read * SECONDS_BY_MEASURE)
                await asyncio.sleep(pause)

    def write(self) -> None:
        """Adds traffic since the last call to the journal, and writes the metrics file.

        Never raises.
        """
        with self._may_fail():
            if (news := self._news()) is not None:
                self._write(news)

    @contextmanager
    def _may_fail(self) -> Iterator[None]:
        """A full disk, a file table without room or a path that is not ours costs the measures,
        and not the duties that they are about.
        """
        try:
            yield
        except Exception as error:
            if self._failed != repr(error):
                log.warning("metrics cannot be written", cause=str(error))
            self._failed = repr(error)
        else:
            self._failed = ""

    def _news(self) -> Measured | None:
        """Adds traffic to the journal; what the file has to say anew, None where it says it."""
        context = self._context
        traffic = {
            "bytes_up": context.gateway.bytes_up + context.fetcher.bytes_up,
            "bytes_down": context.fetcher.bytes_down,
        }
        for name, total in traffic.items():
            delta = total - self._bytes_seen.get(name, 0)
            if delta:
                context.journal.measure(0, NO_ROUND, name, delta)
            self._bytes_seen[name] = total
        news = Measured(context.journal.measured, self._about())
        # A service that waits for days would write the same file every other second.
        is_written = news == self._written and context.config.metrics_file.exists()
        return None if is_written else news

    def _about(self) -> dict[str, object]:
        context = self._context
        gas = {
            label: {
                "transactions": use.transactions,
                "gas": use.gas,
                "highest": use.highest,
                "fees_wei": str(use.fees),
            }
            for label, use in context.queue.gas_by_label().items()
        }
        return {
            "account": context.me,
            "role": self._role,
            "gas": gas,
            "useless_answers": context.chain.provider.useless_answers,
            "excluded_logs": context.chain.events.excluded,
            "undecodable_logs": context.follower.undecodable,
            "rejected_events": context.follower.rejected,
            "damaged_rows": context.journal.damaged,
            "stuck_jobs": sorted(self._machines.defects),
            "sent_away": dict(context.gateway.sent_away),
        }

    def _write(self, news: Measured) -> None:
        """In any thread: uses files alone."""
        config = self._context.config
        measures = read_measures(config.journal_file)
        self._measures_read = len(measures)
        write_metrics(measures, config.metrics_file, news.about)
        self._written = news
