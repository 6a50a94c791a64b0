"""Takes a seat or a place in the waiting list; leaves when asked to."""

from __future__ import annotations

from atoll.law.views import JobView
from atoll.law.words import JobStatus, Role, SeatIndex
from atoll.service.duties.material import has_material
from atoll.service.duties.membership import SendJoin, SendLeave, awaits_release
from atoll.service.machine import Decision
from atoll_node.behaviour import ProviderState


def decide_membership(state: ProviderState) -> Decision:
    """Takes a seat or a place in the waiting list; leaves when asked to."""
    view = state.view
    if view.state.status.is_closed or view.state.status is JobStatus.NONE:
        return Decision("membership", f"the job is {view.state.status.name}")
    seat, queued = view.seat_of(state.me), state.me in view.waiting
    if state.draining:
        return _decide_leaving(view, seat, queued)
    if seat is not None or queued:
        return Decision("membership", "queued" if seat is None else f"holds seat {seat}")
    obstacle = _obstacle(state)
    if obstacle:
        return Decision("membership", obstacle)
    bond = view.require_terms().provider_bond
    return Decision("membership", "joins", (SendJoin(Role.PROVIDER, bond),))


def _obstacle(state: ProviderState) -> str:
    """Why we do not join now; empty where we do."""
    if not has_material(state):
        return "joins once manifest and data are here"
    if _was_rejected(state):
        return "was rejected; joins again only when told to"
    if awaits_release(state, Role.PROVIDER):
        return "joins again once the earlier bond is released"
    if not state.setup.behaviour.may_join(state.view):
        return "waits with joining, as its behaviour says"
    return ""


def _decide_leaving(view: JobView, seat: SeatIndex | None, queued: bool) -> Decision:
    if seat is None and not queued:
        return Decision("membership", "has left")
    if seat is not None and view.leaving >> seat & 1:
        return Decision("membership", "leaves when this round is settled")
    return Decision("membership", "asked to leave", (SendLeave(Role.PROVIDER),))


def _was_rejected(state: ProviderState) -> bool:
    """Whether a settled round, or a lost game, took our seat for what we did."""
    me = state.me
    if me in state.view.fallen:
        return True
    for past in state.view.settled:
        mine = [seat for seat, holder in past.seats.items() if holder == me]
        if any(past.evidence.rejected >> seat & 1 for seat in mine):
            return True
    return False
