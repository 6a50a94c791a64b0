"""How members come and go, and how a job's money moves, in its view.

Rule of this file: one pure function an event; nothing here touches the open round, whose members
are fixed when it opens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from atoll.protocol import events as ev
from atoll.protocol.holders import Holder
from atoll.protocol.missed_duties import ORDINARY
from atoll.protocol.types import (
    NO_ROUND,
    Address,
    Bitmap,
    BlockRef,
    HolderId,
    JobStatus,
    MissedDuty,
    Phase,
    Role,
    Wei,
)
from atoll.protocol.views import JobView

Handler = Callable[[JobView, Any, BlockRef], JobView]
K = TypeVar("K")
V = TypeVar("V")


def put(mapping: Mapping[K, V], key: K, value: V) -> dict[K, V]:
    """A copy with the entry set."""
    return {**mapping, key: value}


def drop(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    """A copy without the entry."""
    return {k: v for k, v in mapping.items() if k != key}


NOWHERE: Final = "-"
"""Announced instead of a URL by who serves nobody any more."""


def announced(gateways: Mapping[Address, str], event: ev.GatewayAnnounced) -> dict[Address, str]:
    """Who serves where from now on."""
    if event.url == NOWHERE:
        return drop(gateways, event.account)
    return put(gateways, event.account, event.url)


def with_holder(view: JobView, role: Role, holder: HolderId, **changes: Any) -> JobView:
    """The view with these fields of a holder replaced."""
    changed = replace(view.holders(role)[holder], **changes)
    return _with(view, changed)


def _with(view: JobView, holder: Holder) -> JobView:
    held = put(view.holders(holder.role), holder.id, holder)
    if holder.role is Role.PROVIDER:
        return replace(view, providers=held)
    return replace(view, verifiers=held)


# --- the job ---


def _job_created(view: JobView, event: ev.JobCreated, block: BlockRef) -> JobView:
    return replace(
        view,
        status=JobStatus.OPEN,
        phase=Phase.WAITING,
        submitter=event.submitter,
        policy=event.policy,
        spec_digest=event.spec_digest,
        spec_cid=event.spec_cid,
        terms=event.terms,
        params=event.params,
        terms_hash=event.terms_hash,
        funded=event.funded,
    )


def _job_funded(view: JobView, event: ev.JobFunded, block: BlockRef) -> JobView:
    return replace(view, funded=view.funded + event.amount)


def _cancel_requested(view: JobView, event: ev.CancelRequested, block: BlockRef) -> JobView:
    return replace(view, cancel_requested=True)


def _claimed(view: JobView, event: ev.Claimed, block: BlockRef) -> JobView:
    view = with_holder(view, event.role, event.id, claimed_to=event.to)
    total = view.paid.get(event.account, 0) + event.amount
    return replace(view, paid=put(view.paid, event.account, total), burnt=view.burnt + event.burnt)


def _credited(view: JobView, event: ev.Credited, block: BlockRef) -> JobView:
    total = view.credits.get(event.account, 0) + event.amount
    return replace(view, credits=put(view.credits, event.account, total))


def _credit_claimed(view: JobView, event: ev.CreditClaimed, block: BlockRef) -> JobView:
    """Anybody may claim nothing for anybody: of that nothing is kept."""
    if not event.amount:
        return view
    total = view.paid.get(event.account, 0) + event.amount
    left = view.credits.get(event.account, 0) - event.amount
    paid, credits = put(view.paid, event.account, total), put(view.credits, event.account, left)
    return replace(view, paid=paid, credits=credits)


def _burnt(view: JobView, event: ev.Burnt, block: BlockRef) -> JobView:
    return replace(view, burnt=view.burnt + event.amount, burnt_to=event.to)


def _refunded(view: JobView, event: ev.Refunded, block: BlockRef) -> JobView:
    return replace(view, refunded=view.refunded + event.amount)


def _gateway_announced(view: JobView, event: ev.GatewayAnnounced, block: BlockRef) -> JobView:
    return replace(view, gateways=announced(view.gateways, event))


# --- seats and slots ---


def _seated(view: JobView, event: ev.Seated, block: BlockRef) -> JobView:
    bond = Wei(view.require_terms().provider_bond)
    holder = Holder(event.id, Role.PROVIDER, event.account, event.seat, event.start, bond)
    view = replace(view, held=Bitmap(view.held | 1 << event.seat))
    return _with(view, replace(holder, claimed_to=event.start))


def _retained(view: JobView, event: ev.Retained, block: BlockRef) -> JobView:
    holder = view.providers[event.id]
    bond, retained = Wei(holder.bond + event.amount), Wei(holder.retained + event.amount)
    return with_holder(view, Role.PROVIDER, event.id, bond=bond, retained=retained)


def _seasoned(view: JobView, event: ev.Seasoned, block: BlockRef) -> JobView:
    holder, steps, start = view.providers[event.id], event.steps, event.start
    before = holder.steps if start > holder.seasoned_from else holder.steps_before
    changes = {"steps": steps, "steps_before": before, "seasoned_from": start}
    return with_holder(view, Role.PROVIDER, event.id, **changes)


def _seat_leaving(view: JobView, event: ev.SeatLeaving, block: BlockRef) -> JobView:
    view = replace(view, held=Bitmap(view.held & ~(1 << event.seat)))
    return with_holder(view, Role.PROVIDER, event.id, to=event.to)


def _enrolled(view: JobView, event: ev.Enrolled, block: BlockRef) -> JobView:
    bond, until = Wei(event.bond), event.ready_until
    holder = Holder(event.id, Role.VERIFIER, event.account, event.slot, event.start, bond)
    return _with(view, replace(holder, ready_until=until, claimed_to=event.start))


def _ready(view: JobView, event: ev.Ready, block: BlockRef) -> JobView:
    return with_holder(view, Role.VERIFIER, event.id, is_ready=True)


def _slot_leaving(view: JobView, event: ev.SlotLeaving, block: BlockRef) -> JobView:
    view = with_holder(view, Role.VERIFIER, event.id, to=event.to)
    running = view.open
    if running is None or running.ready >> event.slot & 1:
        return view
    # Said while the round ran, and taken back before it counted.
    return with_holder(view, Role.VERIFIER, event.id, is_ready=False)


def _missed(view: JobView, event: ev.Missed, block: BlockRef) -> JobView:
    """A penalty; an ordinary missed duty makes others dearer."""
    holder = view.holders(event.role)[event.id]
    still = NO_ROUND if event.kind is MissedDuty.SEAT else holder.missed
    bond = Wei(max(0, holder.bond - event.penalty))
    penalties = holder.penalties | {(event.round, event.kind)}
    view = with_holder(view, event.role, event.id, bond=bond, missed=still, penalties=penalties)
    if event.kind not in ORDINARY:
        return view
    total = Wei(holder.penalised + event.penalty)
    view = with_holder(view, event.role, event.id, penalised=total)
    key = (event.role, event.account)
    record = view.miss_record(*key).missed(event.round)
    return replace(view, miss_records=put(view.miss_records, key, record))


def _holder_slashed(view: JobView, event: ev.HolderSlashed, block: BlockRef) -> JobView:
    holder = view.holders(event.role)[event.id]
    return with_holder(
        view,
        event.role,
        event.id,
        bond=Wei(max(0, holder.bond - event.slashed)),
        is_slashed=True,
        lost_from=event.lost_from,
    )


def _released(view: JobView, event: ev.Released, block: BlockRef) -> JobView:
    return with_holder(view, event.role, event.id, is_released=True, bond=Wei(0))


MEMBERSHIP_HANDLERS: Final[Mapping[type, Handler]] = {
    ev.JobCreated: _job_created,
    ev.JobFunded: _job_funded,
    ev.CancelRequested: _cancel_requested,
    ev.Claimed: _claimed,
    ev.Credited: _credited,
    ev.CreditClaimed: _credit_claimed,
    ev.Burnt: _burnt,
    ev.Refunded: _refunded,
    ev.GatewayAnnounced: _gateway_announced,
    ev.Seated: _seated,
    ev.Retained: _retained,
    ev.Seasoned: _seasoned,
    ev.SeatLeaving: _seat_leaving,
    ev.Enrolled: _enrolled,
    ev.Ready: _ready,
    ev.SlotLeaving: _slot_leaving,
    ev.Missed: _missed,
    ev.HolderSlashed: _holder_slashed,
    ev.Released: _released,
}
