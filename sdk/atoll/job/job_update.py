"""One thing that happened in a job, as whoever follows it is told.

Rule of this file: pure; what only the view after an event knows is said with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from atoll.job.event_text import Names, body_of, concerns, describe, seats_text
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.signs import Signs, listed, taint_of
from atoll.protocol import events as ev
from atoll.protocol.events import ContractEvent
from atoll.protocol.safety import unsafe_rounds
from atoll.protocol.types import Address, BlockRef, Role
from atoll.protocol.views import JobView


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """One thing that happened in a job.

    Attributes:
        kind: name of the contract's event, or "Rewound" where a reorg took updates back.
        text: a sentence about it.
        event: the event itself; None for "Rewound".
        snapshot: where the job stands after it.
    """

    kind: str
    text: str
    block: BlockRef
    event: ContractEvent | None
    snapshot: JobSnapshot


def is_about(event: ContractEvent | None, seat: int, holders: Collection[Address]) -> bool:
    """Whether an event names that seat or one of its holders, or holds for everybody."""
    if isinstance(event, ev.Opened):
        return any(entry.seat == seat for entry in body_of(event).entries)
    if isinstance(event, ev.Challenged):
        return event.claim.seat == seat
    named = getattr(event, "seat", None)
    if named is not None:
        return bool(named == seat)
    for field in _SEATS:
        seats = getattr(event, field, None)
        if seats is not None:
            return bool(seats >> seat & 1)
    account = getattr(event, "account", None)
    return account is None or account in holders


_SEATS: Final = ("seated", "committed", "revealed", "has", "missed", "pay")
"""Fields of events that are bitmaps of seats."""


def update_text(event: ContractEvent, view: JobView, name: Names = str) -> str | None:
    """As `describe`, with what only the view after it knows: who is audited, which rounds a slash
    taints or makes unsafe, how many members are there while it waits; None also for what is not of
    this job.
    """
    text = describe(event, name) if concerns(event, view) else None
    if text is None:
        return None
    if isinstance(event, ev.Settled):
        settled = view.settled[event.round]
        drawn, tainted = settled.drawn, taint_of(view, settled)
        text += f"; {seats_text(drawn, 'is', 'are') if drawn else 'no seat is'} audited"
        false = seats_text(tainted, "was", "were")
        return f"{text}; tainted: {false} merged, and found false before" if tainted else text
    if isinstance(event, ev.HolderSlashed) and event.role is Role.PROVIDER:
        return "; ".join([text, *_slashes(view)])
    if isinstance(event, _GATHERING):
        lacking = JobSnapshot.of(view).lacking
        return f"{text}; so far {lacking}" if lacking else text
    return text


def _slashes(view: JobView) -> Iterator[str]:
    """What slashes make of rounds."""
    tainted, unsafe = Signs.of(view).tainted, unsafe_rounds(view)
    if tainted:
        yield f"tainted by work that was found false: rounds {listed(tainted)}"
    if unsafe:
        yield f"more were slashed than is borne in rounds {listed(unsafe)}"


_GATHERING: Final = (
    ev.JobCreated,
    ev.Waiting,
    ev.Seated,
    ev.SeatLeaving,
    ev.Enrolled,
    ev.Ready,
    ev.SlotLeaving,
)
