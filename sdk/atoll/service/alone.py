"""Whether nobody else acts with the service's key: before that is known, nothing is done.

The alternative, a lock in the folder, sees only this machine: a copy of the key on another one
signs another verdict about the same votes, which costs the whole bond.
"""

from __future__ import annotations

import asyncio

import structlog

from atoll.chain.follower import News
from atoll.chain.log_store import LogFilter
from atoll.service.context import Context
from atoll.service.doppelganger import Doppelganger
from atoll.service.journal import gone
from atoll.service.machine import Head

log = structlog.get_logger("atoll.service")


class AloneCheck:
    """Holds effects back until it is known.

    Attributes:
        is_alone: set while nobody else is seen.
        why_waits: in words; empty where it does not.
    """

    def __init__(self) -> None:
        self.is_alone = asyncio.Event()
        self.why_waits = ""
        self._context: Context | None = None
        self._doppelganger: Doppelganger | None = None
        self._is_past_known = False

    def begin(self, context: Context) -> None:
        """From now on."""
        journal, wait = context.journal, context.config.doppelganger_wait_s

        def is_ours(tx_hash: str) -> bool:
            return context.queue.has_signed(tx_hash) or journal.has_sent(tx_hash)

        self._context = context
        self._doppelganger = Doppelganger(context.me, is_ours, wait, journal.is_renewed)

    def see(self, news: News, head: Head | None) -> None:
        """What is seen of it at first is all that the key did so far.

        Raises JournalGone where that has what this folder lacks.
        """
        doppelganger, context = self._doppelganger, self._context
        if doppelganger is None or context is None:
            return
        if news.begins:
            about = LogFilter(frozenset(), frozenset({context.me}))
            doppelganger.see(context.follower.history(about))
        doppelganger.see(step.item for step in news.folded)
        if head is None:
            return
        if not self._is_past_known:
            self._look_at_past(context, doppelganger, head)
        before = self.why_waits
        self.why_waits = doppelganger.why_waits(head.time, head.number)
        if self.why_waits:
            self.is_alone.clear()
            if not before:
                log.warning("somebody else may act with this key", cause=self.why_waits)
        elif not self.is_alone.is_set():
            context.journal.begin()
            self.is_alone.set()

    def _look_at_past(self, context: Context, doppelganger: Doppelganger, head: Head) -> None:
        """Once: whether the journal has what the account did. Raises JournalGone."""
        journal, views = context.journal, context.follower.views
        lost = doppelganger.lost_past(views, head.time, is_new=journal.is_new)
        if lost and not journal.is_renewed:
            raise gone(context.config.journal_file, lost)
        self._is_past_known = True
