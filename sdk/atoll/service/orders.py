"""Whether a service takes part: what its operator has ordered, and the hours of its schedule.

Rule of this file: pure. A seat owes every round that it counts in, so nobody sits a round out by
being absent: who is to sit out leaves, which the contracts let happen at a settlement, does what it
owes until then and behind it, and takes a place again when it may.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self, TypeVar

from atoll.protocol.types import JobId
from atoll.service.config import ScheduleSection
from atoll.service.entries import Entry
from atoll.service.machine import Setup, State

B = TypeVar("B")
DAY: Final = 24 * 60 * 60
ORDERS_KEY: Final = "orders"


@dataclass(frozen=True, slots=True)
class Orders(Entry):
    """What the operator has ordered; kept in the journal, so that a restart obeys it, too.

    Attributes:
        pauses: leaves every job, and comes back when told to.
        drains: leaves every job, and ends once all its bonds are home; started again it stays out.
        left: jobs that it leaves, and does not join again.
    """

    kind: ClassVar[str] = "orders.v1"
    pauses: bool = False
    drains: bool = False
    left: tuple[int, ...] = ()

    def why_out(self, job: JobId) -> str:
        """Why it takes no part in a job; empty where it does."""
        if self.drains:
            return "drains, as ordered"
        if self.pauses:
            return "is paused, as ordered"
        return f"leaves job {job}, as ordered" if int(job) in self.left else ""

    def leaving(self, job: int) -> Self:
        """These orders, and that one job is left."""
        return replace(self, left=tuple(sorted({*self.left, job})))

    def to_json_value(self) -> dict[str, Any]:
        """JSON values."""
        return {"pauses": self.pauses, "drains": self.drains, "left": list(self.left)}


NO_ORDERS: Final = Orders()


def why_out(state: State[Setup[B]]) -> str:
    """Why the machine takes no part in its job now; empty where it does."""
    return state.sits_out or off_hours(state.setup.schedule, state.now)


def off_hours(schedule: ScheduleSection, now: int) -> str:
    """Why the schedule keeps out of new rounds at a second of the chain's clock; empty in hours."""
    if any(_is_in(start, end, now % DAY) for start, end in schedule.spans):
        return ""
    opens = min((start - now) % DAY for start, _ in schedule.spans) if schedule.spans else 0
    if not opens:
        return ""
    return f"is out of its schedule's hours for {opens // 60} min more"


def _is_in(start: int, end: int, second: int) -> bool:
    """Whether a second of the day is in hours that may go past midnight."""
    if start <= end:
        return start <= second < end
    return second >= start or second < end
