"""Who audits what: a function of the audit seed, so that nobody chooses and everybody can check.

Rule of this file: every result depends only on the audit seed, the snapshot of verifiers and the
plan; the contract computes `verifier_order` alike (`tests/vectors/sampling.json`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Final

from atoll.law.draws import ORDER_TAG, SEGMENTS_TAG, DrawStream, seat_key
from atoll.law.manifest import Manifest
from atoll.law.words import (
    Bitmap,
    Digest,
    RoundIndex,
    SeatIndex,
    SegmentIndex,
    VerifierIndex,
    bits,
)


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """How one seat is audited.

    Attributes:
        leaves: segments in the seat's trace.
        draws: distinct segments drawn, at most `leaves`.
        overlapped: how many of the drawn get a second owner.
        auditors: verifiers assigned to the seat.
        in_full: every remaining segment is replayed too (`merge_inputs`).
        has_update: False for a seat that diverged: there is no link to check.
    """

    leaves: int
    draws: int
    overlapped: int
    auditors: int
    in_full: bool = False
    has_update: bool = True


@dataclass(frozen=True, slots=True)
class SeatDuty:
    """What one verifier owes one seat: segments to replay, and whether to check the link."""

    segments: frozenset[SegmentIndex]
    link: bool

    def __or__(self, other: SeatDuty) -> SeatDuty:
        return SeatDuty(self.segments | other.segments, self.link or other.link)


Duties = dict[VerifierIndex, SeatDuty]
NO_DUTY: Final = SeatDuty(frozenset(), False)


def auditors_for(terms_auditors: int, attempt: int, verifiers: Bitmap) -> int:
    """Verifiers assigned to a seat: one more for each further attempt, at most all."""
    return min(verifiers.bit_count(), terms_auditors + attempt)


def audit_plan(manifest: Manifest, round: RoundIndex, auditors: int, leaves: int) -> AuditPlan:
    """The plan of a seat whose trace has `leaves`; the last round is replayed whole."""
    draws = min(leaves, manifest.draws_for(round, auditors))
    return AuditPlan(leaves, draws, manifest.overlapped(draws), auditors)


def verifier_order(audit_seed: Digest, seat: SeatIndex, verifiers: Bitmap) -> list[VerifierIndex]:
    """The snapshot's verifiers in the seat's order; the first `auditors` are assigned to it."""
    indices = bits(verifiers)
    order = DrawStream(ORDER_TAG, seat_key(audit_seed, seat)).shuffle(len(indices))
    return [VerifierIndex(indices[i]) for i in order]


def draw_segments(audit_seed: Digest, seat: SeatIndex, leaves: int) -> list[SegmentIndex]:
    """The seat's segments in the order they are drawn."""
    order = DrawStream(SEGMENTS_TAG, seat_key(audit_seed, seat)).shuffle(leaves)
    return [SegmentIndex(i) for i in order]


def assign_seat(audit_seed: Digest, seat: SeatIndex, verifiers: Bitmap, plan: AuditPlan) -> Duties:
    """What each assigned verifier owes the seat; keys are the assigned, in the seat's order.

    Drawn segment i belongs to position i mod c and, for the first `overlapped`, to the position
    after it too. The last segment is always among them; who owns it also checks the link. It is
    known before any update is there, so being audited in full later does not move it: only what is
    neither drawn nor last is added then, segment j to position j mod c.
    """
    assigned = verifier_order(audit_seed, seat, verifiers)[: plan.auditors]
    if not assigned:
        return {}
    owned: list[set[SegmentIndex]] = [set() for _ in assigned]
    count = len(assigned)
    drawn = draw_segments(audit_seed, seat, plan.leaves)[: plan.draws]
    for i, segment in enumerate(drawn):
        owned[i % count].add(segment)
        if i < plan.overlapped:
            owned[(i + 1) % count].add(segment)
    last = SegmentIndex(plan.leaves - 1)
    if last not in drawn:
        owned[0].add(last)
    if plan.in_full:
        for j in set(range(plan.leaves)) - set(drawn) - {last}:
            owned[j % count].add(SegmentIndex(j))
    return {
        verifier: SeatDuty(frozenset(segments), plan.has_update and last in segments)
        for verifier, segments in zip(assigned, owned, strict=True)
    }


def fallback(
    audit_seed: Digest, seat: SeatIndex, verifiers: Bitmap, plan: AuditPlan, balloted: Bitmap
) -> Duties:
    """From half time on: who takes over the duties of assigned verifiers that have not balloted.

    Substitutes stand in the seat's order: first the unassigned that balloted, then the assigned
    that did, then the unassigned that did not. The i-th silent position goes to substitute i
    modulo their number. Without a substitute the duty waits for its owner.
    """
    duties = assign_seat(audit_seed, seat, verifiers, plan)
    order = verifier_order(audit_seed, seat, verifiers)
    assigned, others = order[: plan.auditors], order[plan.auditors :]
    silent = [v for v in assigned if not balloted >> v & 1]
    substitutes = [v for v in (*others, *assigned) if balloted >> v & 1]
    substitutes += [v for v in others if not balloted >> v & 1]
    extra: Duties = {}
    for i, owner in enumerate(silent if substitutes else ()):
        substitute = substitutes[i % len(substitutes)]
        extra[substitute] = extra.get(substitute, NO_DUTY) | duties[owner]
    return extra


def detection_probability(n: int, d: int, skipped: int) -> Fraction:
    """1 − C(n−s, d) / C(n, d): the chance that d distinct draws of n hit one of s bad segments."""
    if not 0 <= skipped <= n or not 0 <= d <= n:
        raise ValueError(f"cannot draw {d} and skip {skipped} of {n} segments")
    return 1 - Fraction(comb(n - skipped, d), comb(n, d))
