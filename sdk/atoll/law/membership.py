"""How roster and escrow events change a job's view.

Rule of this file: one pure function an event; nothing here touches the running round, whose members
froze when it opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from atoll.law import events as ev
from atoll.law.views import JobView, RoundState, VerifierMember
from atoll.law.words import Address, Bitmap, BlockRef, JobStatus, Phase

Handler = Callable[[JobView, Any, BlockRef], JobView]
K = TypeVar("K")
V = TypeVar("V")


def put(mapping: Mapping[K, V], key: K, value: V) -> dict[K, V]:
    """A copy with the entry set."""
    return {**mapping, key: value}


def drop(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    """A copy without the entry."""
    return {k: v for k, v in mapping.items() if k != key}


def _job_created(view: JobView, event: ev.JobCreated, block: BlockRef) -> JobView:
    return replace(
        view,
        state=RoundState(status=JobStatus.OPEN, phase=Phase.WAITING),
        submitter=event.submitter,
        policy=event.policy,
        spec_digest=event.spec_digest,
        spec_cid=event.spec_cid,
        terms=event.terms,
        terms_hash=event.terms_hash,
        funded=event.funded,
    )


def _job_funded(view: JobView, event: ev.JobFunded, block: BlockRef) -> JobView:
    return replace(view, funded=view.funded + event.amount)


def _cancel_requested(view: JobView, event: ev.CancelRequested, block: BlockRef) -> JobView:
    return replace(view, cancel_requested=True)


def _claimed(view: JobView, event: ev.Claimed, block: BlockRef) -> JobView:
    total = view.paid.get(event.account, 0) + event.amount
    claimed = put(view.claimed, event.account, event.cumulative)
    return replace(view, claimed=claimed, paid=put(view.paid, event.account, total))


def _refunded(view: JobView, event: ev.Refunded, block: BlockRef) -> JobView:
    return replace(view, refunded=view.refunded + event.amount)


def _gateway_announced(view: JobView, event: ev.GatewayAnnounced, block: BlockRef) -> JobView:
    return replace(view, gateways=put(view.gateways, event.account, event.url))


def _without(accounts: tuple[Address, ...], account: Address) -> tuple[Address, ...]:
    return tuple(item for item in accounts if item != account)


def _provider_seated(view: JobView, event: ev.ProviderSeated, block: BlockRef) -> JobView:
    """A new holder starts without optimiser state, whoever sat there before."""
    return replace(
        view,
        seats=put(view.seats, event.seat, event.account),
        waiting=_without(view.waiting, event.account),
        optimiser_roots=drop(view.optimiser_roots, event.seat),
    )


def _provider_queued(view: JobView, event: ev.ProviderQueued, block: BlockRef) -> JobView:
    return replace(view, waiting=(*view.waiting, event.account))


def _provider_unqueued(view: JobView, event: ev.ProviderUnqueued, block: BlockRef) -> JobView:
    return replace(view, waiting=_without(view.waiting, event.account))


def _provider_leaving(view: JobView, event: ev.ProviderLeaving, block: BlockRef) -> JobView:
    return replace(view, leaving=Bitmap(view.leaving | 1 << event.seat))


def _provider_unseated(view: JobView, event: ev.ProviderUnseated, block: BlockRef) -> JobView:
    return replace(
        view,
        seats=drop(view.seats, event.seat),
        leaving=Bitmap(view.leaving & ~(1 << event.seat)),
        optimiser_roots=drop(view.optimiser_roots, event.seat),
    )


def _verifier_joined(view: JobView, event: ev.VerifierJoined, block: BlockRef) -> JobView:
    return replace(
        view,
        verifiers=put(view.verifiers, event.verifier, VerifierMember(event.account, event.weight)),
        newcomers=Bitmap(view.newcomers | 1 << event.verifier),
    )


def _verifier_ready(view: JobView, event: ev.VerifierReady, block: BlockRef) -> JobView:
    member = replace(view.verifiers[event.verifier], ready=True)
    return replace(view, verifiers=put(view.verifiers, event.verifier, member))


def _verifier_leaving(view: JobView, event: ev.VerifierLeaving, block: BlockRef) -> JobView:
    member = replace(view.verifiers[event.verifier], leaving=True)
    return replace(view, verifiers=put(view.verifiers, event.verifier, member))


def _verifier_left(view: JobView, event: ev.VerifierLeft, block: BlockRef) -> JobView:
    return replace(view, verifiers=drop(view.verifiers, event.verifier))


MEMBERSHIP_HANDLERS: Final[Mapping[type, Handler]] = {
    ev.JobCreated: _job_created,
    ev.JobFunded: _job_funded,
    ev.CancelRequested: _cancel_requested,
    ev.Claimed: _claimed,
    ev.Refunded: _refunded,
    ev.GatewayAnnounced: _gateway_announced,
    ev.ProviderSeated: _provider_seated,
    ev.ProviderQueued: _provider_queued,
    ev.ProviderUnqueued: _provider_unqueued,
    ev.ProviderLeaving: _provider_leaving,
    ev.ProviderUnseated: _provider_unseated,
    ev.VerifierJoined: _verifier_joined,
    ev.VerifierReady: _verifier_ready,
    ev.VerifierLeaving: _verifier_leaving,
    ev.VerifierLeft: _verifier_left,
}
