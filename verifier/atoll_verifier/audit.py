"""What is known, and what is still to be done, about the seats of the running audit.

Rule of this file: pure. A seat's fault is what our own work showed; not knowing is not a fault, and
missing data is one only when the time to wait for it is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from atoll.law.duties import duties_of, merge_facts, supplement_of
from atoll.law.hashing import hash_fields, sha256, tag
from atoll.law.manifest import Manifest
from atoll.law.merge_inputs import MergeTerms, candidates
from atoll.law.merkle import merkle_root
from atoll.law.sampling import NO_DUTY, SeatDuty
from atoll.law.trace import leaf_count
from atoll.law.views import JobView
from atoll.law.words import (
    NO_SEGMENT,
    ZERO_DIGEST,
    Digest,
    Fault,
    Phase,
    Report,
    SeatIndex,
    SegmentIndex,
    VerifierIndex,
    bits,
    to_bitmap,
)
from atoll.service.duties.material import manifest_of, spec_of
from atoll.service.duties.opening import OpeningReady, opening_of
from atoll.service.machine import AnyCommand
from atoll.train.coherence import coherence
from atoll_verifier.behaviour import VerifierState
from atoll_verifier.duties.check import DoCheck, SeatChecked
from atoll_verifier.duties.replay import DoLink, DoReplay, LinkChecked, SegmentReplayed
from atoll_verifier.duties.score import DoScore, RevealedUpdate
from atoll_verifier.seatwork import SeatWork, about_seat

WITHHELD_MARGIN = 5
"""The last 1/5 of a window is kept for saying what was found: until then missing data is asked for
again."""


@dataclass(frozen=True)
class Audit:
    """The running audit from one verifier's place; made anew for every step."""

    state: VerifierState
    me: VerifierIndex
    manifest: Manifest
    spec: bytes
    opening: OpeningReady

    @classmethod
    def of(cls, state: VerifierState) -> Audit | None:
        """None where we are not in the round's snapshot, or lack what every check needs."""
        me = state.view.active_verifier_of(state.me)
        manifest, opening = manifest_of(state.facts), opening_of(state)
        spec = spec_of(state.facts)
        if me is None or manifest is None or spec is None or opening is None:
            return None
        return cls(state, me, manifest, spec, opening)

    @property
    def view(self) -> JobView:
        return self.state.view

    @property
    def is_idle(self) -> bool:
        """Whether the behaviour claims every duty without looking."""
        return self.state.setup.behaviour.skips_replays(self.view)

    @property
    def is_late(self) -> bool:
        """Whether what is still missing now counts as withheld."""
        view, terms = self.view, self.manifest.terms
        confirming = view.state.phase is Phase.CONFIRM
        window = terms.confirm_seconds if confirming else terms.report_seconds
        return self.state.now >= view.state.deadline - max(1, window // WITHHELD_MARGIN)

    # --- a seat's work ---

    def about(self, seat: SeatIndex) -> tuple[object, ...]:
        """What names a revealed seat's work."""
        return about_seat(self.view.train_slot, seat, self.view.reveals[seat].reveal)

    def work(self, seat: SeatIndex) -> SeatWork:
        """What every check of a revealed seat is made from."""
        view, revealed, opening = self.view, self.view.reveals[seat], self.opening
        is_public = self.manifest.opens_publicly(view.state.round)
        brought = opening.opening_root if is_public else view.opening_optimiser_root(seat)
        return SeatWork(
            slot=view.train_slot,
            seat=seat,
            reveal=revealed.reveal,
            account=revealed.account,
            gateway=view.gateways.get(revealed.account, ""),
            data_seed=view.state.data_seed,
            manifest=self.spec,
            opening=opening.cid,
            params_root=opening.params_root,
            optimiser_root=brought,
        )

    def checked(self, seat: SeatIndex) -> SeatChecked | None:
        return self.state.facts.of(DoCheck, *self.about(seat))

    def replayed(self, seat: SeatIndex, segment: int) -> SegmentReplayed | None:
        return self.state.facts.of(DoReplay, *self.about(seat), segment)

    def linked(self, seat: SeatIndex) -> LinkChecked | None:
        return self.state.facts.of(DoLink, *self.about(seat))

    def leaves(self, seat: SeatIndex) -> int:
        inner = self.manifest.inner
        return leaf_count(self.view.steps[seat], inner.steps, inner.segment)

    def is_whole(self, seat: SeatIndex) -> bool:
        """Whether the seat finished its round: one that diverged has no update to hold to."""
        return self.view.steps[seat] == self.manifest.inner.steps

    # --- updates and duties ---

    @property
    def revealed(self) -> list[SeatIndex]:
        return [SeatIndex(seat) for seat in bits(self.view.state.revealed)]

    @cached_property
    def candidates(self) -> tuple[SeatIndex, ...]:
        """Seats whose update counts if its bytes are there and canonical."""
        return candidates(merge_facts(self.view), MergeTerms.of(self.manifest))

    def updates(self, seats: Iterable[SeatIndex]) -> tuple[RevealedUpdate, ...]:
        """Where these seats' updates are."""
        reveals = ((seat, self.view.reveals[seat].reveal) for seat in seats)
        return tuple(RevealedUpdate(seat, r.update_cid, r.update_root) for seat, r in reveals)

    @cached_property
    def scoring(self) -> DoScore | None:
        """The scoring that fits the updates at hand; None while some check is still to come.

        A seat whose bytes we found wrong is left aside, as it will be once it is rejected for it.
        """
        waiting = (
            seat
            for seat in self.revealed
            if self.checked(seat) is None and not self.state.is_missing(DoCheck, *self.about(seat))
        )
        if next(waiting, None) is not None:
            return None
        sound = (s for s in self.candidates if (c := self.checked(s)) is not None and not c.fault)
        slot, seed, facts = self.view.train_slot, self.view.state.data_seed, merge_facts(self.view)
        return DoScore(slot, self.spec, self.opening.cid, facts, seed, self.updates(sound))

    @cached_property
    def in_full(self) -> tuple[SeatIndex, ...] | None:
        """Seats to audit in full; None until scored."""
        scoring = self.scoring
        scored = None if scoring is None else self.state.facts.of(DoScore, *scoring.about)
        return None if scored is None else tuple(map(SeatIndex, scored.in_full))

    @cached_property
    def duties(self) -> dict[SeatIndex, SeatDuty]:
        """Our own assignments; full audits are added once they are known."""
        return duties_of(self.view, self.manifest, self.me, self.in_full or ())

    @cached_property
    def fallback(self) -> dict[SeatIndex, SeatDuty]:
        """From half time: what falls to us because others have not balloted."""
        return supplement_of(self.view, self.manifest, self.me, self.in_full or ())

    @cached_property
    def all_duties(self) -> dict[SeatIndex, SeatDuty]:
        """Our own, and from half time on, once we balloted, what others left undone."""
        duties = dict(self.duties)
        if self.state.now >= self.view.half_time and self.me in self.view.ballots:
            for seat, duty in self.fallback.items():
                duties[seat] = duty_of(duties, seat) | duty
        return duties

    # --- what is known ---

    def fault(self, seat: SeatIndex) -> Report | None:
        """What our own work shows against a seat, the gravest (a proof) first."""
        checked = self.checked(seat)
        if checked is not None and checked.fault:
            evidence = sha256(checked.fault.encode())
            return Report(seat, NO_SEGMENT, Fault.MALFORMED, evidence)
        for segment in range(self.leaves(seat)):
            done = self.replayed(seat, segment)
            if done is not None and done.differs:
                return Report(seat, SegmentIndex(segment), Fault.WRONG_REPLAY, done.computed)
        linked = self.linked(seat)
        if linked is not None and linked.fault:
            evidence = sha256(linked.fault.encode())
            return Report(seat, NO_SEGMENT, Fault.WRONG_LINK, evidence)
        for segment in range(self.leaves(seat)):
            done = self.replayed(seat, segment)
            if done is not None and done.excess > 1.0:
                return Report(seat, SegmentIndex(segment), Fault.OUT_OF_TOLERANCE, done.computed)
        return None

    def is_biased(self, seat: SeatIndex) -> bool:
        """In a tolerant job: whether its provider's segments, of all rounds, are off alike."""
        limits = self.manifest.numerics.tolerance
        if limits is None:
            return False
        account = self.view.reveals[seat].account
        seen = [r for r in self.state.facts.all_of(SegmentReplayed) if r.account == account]
        sketches = [np.frombuffer(r.residual, dtype="<f4") for r in seen if r.residual]
        return coherence(sketches).exceeds(float(limits.coherence))

    def missing(self, seat: SeatIndex, duty: SeatDuty) -> Report | None:
        """The challenge of a block that nobody serves, if anything we need is missing.

        Its segment names what auditing that segment needs: for the last, also the last state. Its
        evidence is empty where it is not known which block is missing.
        """
        about = self.about(seat)
        if self.checked(seat) is None:
            gone = self._missing_block(DoCheck, *about)
            return None if gone is None else Report(seat, NO_SEGMENT, Fault.WITHHELD, gone)
        for segment in sorted(duty.segments):
            if self.replayed(seat, segment) is None:
                gone = self._missing_block(DoReplay, *about, segment)
                if gone is not None:
                    return Report(seat, segment, Fault.WITHHELD, gone)
        if duty.link and self.linked(seat) is None:
            last, gone = SegmentIndex(self.leaves(seat) - 1), self._missing_block(DoLink, *about)
            return None if gone is None else Report(seat, last, Fault.WITHHELD, gone)
        return None

    def _missing_block(self, kind: type[AnyCommand], *about: object) -> Digest | None:
        """The block that nobody had, empty where it is not known; None where none is missing."""
        if not self.state.is_missing(kind, *about):
            return None
        return Digest(self.state.missing_block(kind, *about))

    def is_done(self, seat: SeatIndex, duty: SeatDuty) -> bool:
        """Whether nothing more needs to be looked at before saying something about the seat."""
        if self.fault(seat) is not None:
            return True
        done = all(self.replayed(seat, s) is not None for s in duty.segments)
        linked = not duty.link or self.linked(seat) is not None
        return self.checked(seat) is not None and done and linked

    def verified(self, seat: SeatIndex, duty: SeatDuty) -> int:
        """Bitmap of the duty's segments that we vouch for: of a biased provider none."""
        good = [s for s in duty.segments if (r := self.replayed(seat, s)) and r.matches]
        return 0 if good and self.is_biased(seat) else to_bitmap(good)

    # --- what to do ---

    def tasks(self, seat: SeatIndex, duty: SeatDuty) -> Iterable[AnyCommand]:
        """The work that a ballot still needs of a seat; none once a fault is known."""
        if self.fault(seat) is None:
            yield from self.undone(seat, duty)

    def undone(self, seat: SeatIndex, duty: SeatDuty) -> Iterable[AnyCommand]:
        """What has not been looked at yet, cheapest first.

        Replays come one at a time, since a fault found by one often saves the rest.
        """
        work = self.work(seat)
        if self.checked(seat) is None:
            yield DoCheck(work)
            return
        for segment in sorted(duty.segments):
            if self.replayed(seat, segment) is None:
                task = DoReplay(work, segment)
                yield task
                if not self.state.is_missing(DoReplay, *task.about):
                    return
        if duty.link and self.linked(seat) is None:
            yield DoLink(work)

    def replay_root(self, duties: dict[SeatIndex, SeatDuty]) -> Digest:
        """Root over the work words computed for these duties; zero where none was replayed.

        Zero in a tolerant job too: work words differ from machine to machine. It proves nothing
        yet: words stand in the trace unmasked, and who copies them has the same root.
        """
        if self.manifest.numerics.mode == "tolerant":
            return ZERO_DIGEST
        leaves = [
            hash_fields(
                ("bytes32", "uint16", "uint16", "bytes32"),
                (tag("atoll.replay.v1"), seat, segment, done.work_word),
            )
            for seat, duty in sorted(duties.items())
            for segment in sorted(duty.segments)
            if (done := self.replayed(seat, segment)) is not None
        ]
        return merkle_root(leaves) if leaves else ZERO_DIGEST


def duty_of(duties: dict[SeatIndex, SeatDuty], seat: SeatIndex) -> SeatDuty:
    """A seat's duty; none where it is not ours."""
    return duties.get(seat, NO_DUTY)
