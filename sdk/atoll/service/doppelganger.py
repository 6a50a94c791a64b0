"""Whether somebody else acts with our key: a second service, or this one's folder on two machines.

Rule of this file: pure. Two services with one key send each other's gateway away, take each other's
nonces and, without one journal, may sign two things for one subject. What the chain says that the
account did, by a transaction that neither our queue signed nor one whose journal was read in here,
is somebody else's act: or our own, of which this folder has lost the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from atoll.chain.indexed import Indexed
from atoll.protocol import events as ev
from atoll.protocol.types import Address, JobId, RoundIndex
from atoll.protocol.views import JobView

ACTS: Final = (
    ev.GatewayAnnounced, ev.Seated, ev.Enrolled, ev.Ready, ev.Committed, ev.Revealed, ev.Voted,
    ev.AuditReportSealed,
)  # fmt: skip
"""What the contracts take of the account alone, and only a service sends. A seat may be stopped by
somebody else, in a game; pay and stake may be moved from a wallet.
"""
OF_ROUNDS: Final = (ev.Committed, ev.Revealed, ev.Voted, ev.AuditReportSealed)
"""Those that say something of a round, which is not to be said otherwise."""


@dataclass
class Doppelganger:
    """Remembers the newest act that was not ours, and in which rounds there were such.

    Args:
        is_ours: whether a service of this journal signed a transaction, by its hash in hex.
        wait_seconds: of the chain's clock, without such an act, until we are taken to be alone.
        is_renewed: whether we wait that long from our start, whether or not anybody acts.
    """

    me: Address
    is_ours: Callable[[str], bool]
    wait_seconds: int
    is_renewed: bool = False
    _since: int | None = None
    _last: Indexed | None = None
    _rounds: dict[tuple[JobId, RoundIndex], Indexed] = field(default_factory=dict)

    def see(self, items: Iterable[Indexed]) -> None:
        """Events as they are told, oldest first."""
        for item in items:
            event = item.event
            if not isinstance(event, ACTS) or event.account != self.me:
                continue
            if self.is_ours(f"0x{item.transaction.hex()}"):
                continue
            self._last = item
            if isinstance(event, OF_ROUNDS):
                self._rounds[event.job_id, event.round] = item

    def lost_past(self, views: Mapping[JobId, JobView], now: int, *, is_new: bool) -> str:
        """What says that this folder lacks something signed that still counts; empty where nothing.

        Args:
            views: of every job.
            now: the chain's clock, unix seconds.
            is_new: whether the journal knows nothing of what was before it.
        """
        for job, view in sorted(views.items()):
            live = live_rounds(view, now)
            for (where, round_), item in self._rounds.items():
                if where == job and round_ in live:
                    what = f"{type(item.event).__name__}, transaction 0x{item.transaction.hex()}"
                    return (
                        f"its key acted in round {round_} of job {job}, which still counts ({what})"
                        ", and not from this folder"
                    )
            if is_new and live and view.standing(self.me) is not None:
                return (
                    f"its account has a part in job {job}, whose round {max(live)} still counts, "
                    "and this journal is new"
                )
        return ""

    def why_waits(self, now: int, block: int) -> str:
        """Why it is better not to act at that second and height; empty where we are alone."""
        if self._since is None:
            self._since = now
        last = self._last
        if last is not None and now - last.block.timestamp < self.wait_seconds:
            ago = block - last.block.number
            left = self.wait_seconds - (now - last.block.timestamp)
            return (
                f"its key acted {ago} blocks ago ({type(last.event).__name__}, transaction "
                f"0x{last.transaction.hex()}) and not from this folder; it waits until nobody else "
                f"has for {self.wait_seconds} s, {left} s more"
            )
        left = self._since + self.wait_seconds - now
        if self.is_renewed and left > 0:
            return f"its journal is new; it waits whether somebody else acts with its key, {left} s"
        return ""


def live_rounds(view: JobView, now: int) -> set[RoundIndex]:
    """Rounds of which something may still be said, or be held against who said it."""
    running = set() if view.open is None else {view.open.round}
    return running | {settled_round.round for settled_round in view.auditing(now)}
