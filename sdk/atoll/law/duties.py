"""A verifier's work in the running audit: the sampling law applied to a job's view.

Rule of this file: every verifier computes every other's duties alike, from the view, the manifest
and whom `merge_inputs` has audited in full.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from atoll.law.manifest import Manifest
from atoll.law.merge_inputs import MergeFacts
from atoll.law.sampling import (
    NO_DUTY,
    AuditPlan,
    SeatDuty,
    assign_seat,
    audit_plan,
    fallback,
)
from atoll.law.trace import leaf_count
from atoll.law.views import JobView
from atoll.law.words import Bitmap, Phase, SeatIndex, VerifierIndex, bits, to_bitmap


def merge_facts(view: JobView) -> MergeFacts:
    """What the chain says by now about whose update may be merged in the running round."""
    state = view.state
    unresolved = state.unresolved if state.phase is Phase.ATTEST else Bitmap(0)
    caught = state.caught.bit_count()
    return MergeFacts(state.revealed, state.rejected, unresolved, caught, view.steps)


def seat_plan(
    view: JobView, manifest: Manifest, seat: SeatIndex, in_full: Collection[SeatIndex] = ()
) -> AuditPlan:
    """How the current audit treats a revealed seat. Raises KeyError for one without a reveal."""
    steps = view.reveals[seat].reveal.steps
    leaves = leaf_count(steps, manifest.inner.steps, manifest.inner.segment)
    plan = audit_plan(manifest, view.state.round, view.auditors, leaves)
    return replace(plan, in_full=seat in in_full, has_update=steps == manifest.inner.steps)


def duties_of(
    view: JobView,
    manifest: Manifest,
    verifier: VerifierIndex,
    in_full: Collection[SeatIndex] = (),
) -> dict[SeatIndex, SeatDuty]:
    """What the verifier must replay before its ballot, by seat."""
    mine: dict[SeatIndex, SeatDuty] = {}
    for seat in map(SeatIndex, bits(view.state.audit_set)):
        plan = seat_plan(view, manifest, seat, in_full)
        duties = assign_seat(view.state.audit_seed, seat, view.state.verifiers, plan)
        mine[seat] = duties.get(verifier, NO_DUTY)
    return {seat: duty for seat, duty in mine.items() if duty != NO_DUTY}


def supplement_of(
    view: JobView,
    manifest: Manifest,
    verifier: VerifierIndex,
    in_full: Collection[SeatIndex] = (),
) -> dict[SeatIndex, SeatDuty]:
    """What falls to the verifier from half time on, because its owners have not balloted."""
    state, balloted = view.state, to_bitmap(view.ballots)
    mine: dict[SeatIndex, SeatDuty] = {}
    for seat in map(SeatIndex, bits(state.audit_set)):
        plan = seat_plan(view, manifest, seat, in_full)
        extra = fallback(state.audit_seed, seat, state.verifiers, plan, balloted)
        mine[seat] = extra.get(verifier, NO_DUTY)
    return {seat: duty for seat, duty in mine.items() if duty != NO_DUTY}
