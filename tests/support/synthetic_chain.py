"""A job's events as a chain of any size would have them: every seat trains, every vote is cast.

Rule of this file: what the fold and a service look at is as on a chain (order, blocks, members,
clocks, windows); hashes and proofs, which neither checks, are made up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tests.support.contracts import reveal_of
from tests.support.identities import DOMAIN, accounts, cid, digest
from tests.support.manifests import make_terms

from atoll.protocol import events as ev
from atoll.protocol.audit_rates import most_duties, rate_in
from atoll.protocol.audit_reports import AuditEntry, AuditReport
from atoll.protocol.committee_draws import COMMITTEE, draw_audits, draw_duties
from atoll.protocol.events import ContractEvent
from atoll.protocol.rounds import apply
from atoll.protocol.types import (
    Address,
    Bitmap,
    BlockRef,
    Digest,
    HolderId,
    JobId,
    Params,
    Reveal,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    SlotIndex,
    Terms,
    Verdict,
    bits,
)
from atoll.protocol.views import JobView

Placed = tuple[ContractEvent, BlockRef]
ROUND_SECONDS = 120
BEGIN = 1_000_000
FIRST = JobId(1)


@dataclass(frozen=True)
class SyntheticJob:
    """One job of so many seats, verifiers and rounds."""

    job: JobId = FIRST
    seats: int = 4
    slots: int = 7
    rounds: int = 10

    @cached_property
    def terms(self) -> Terms:
        members = {"seats": self.seats, "slots": self.slots, "f": (self.seats - 1) // 4}
        least = {"min_providers": self.seats // 2 + 1, "min_verifiers": self.slots // 2 + 1}
        return make_terms(rounds=self.rounds + 1, expiry=1 << 40, **members, **least)

    @cached_property
    def providers(self) -> list[Address]:
        return accounts(f"provider {self.job}", self.seats)

    @cached_property
    def verifiers(self) -> list[Address]:
        return accounts(f"verifier {self.job}", self.slots)

    @cached_property
    def _reveals(self) -> list[tuple[Reveal, Digest, list[Digest]]]:
        """By seat what it reveals in every round, its key and its plain work tags."""
        segments = self.terms.steps // self.terms.segment_steps
        return [reveal_of(f"{self.job} {seat}", segments) for seat in range(self.seats)]

    def at(self, round: int, seconds: int = 0) -> BlockRef:
        """The block at that second of a round."""
        number = 100 + round * ROUND_SECONDS + seconds
        return BlockRef(number, digest(f"block {number}"), BEGIN + number)

    def events(self) -> Iterator[Placed]:
        """All of them, oldest first."""
        start = self.at(-1, 90)
        yield from ((event, start) for event in self._beginning())
        audited: dict[int, list[tuple[ContractEvent, int]]] = {}
        for round in map(RoundIndex, range(self.rounds)):
            for late, moments in self._audit(round).items():
                audited.setdefault(late, []).extend(moments)
            now = [*self._round(round), *audited.pop(round, [])]
            for event, second in sorted(now, key=lambda item: item[1]):
                yield event, self.at(round, second)

    def view(self) -> JobView:
        """What all of it folds to."""
        view = JobView.of(DOMAIN, self.job)
        for event, block in self.events():
            view = apply(view, event, block)
        return view

    def _beginning(self) -> Iterator[ContractEvent]:
        params = Params(100, 3_000, 1, 1, 1, 80, 80)
        spec = (digest("spec"), cid("spec"), digest("terms"), self.terms, params)
        job, terms = self.job, self.terms
        yield ev.JobCreated(job, _submitter(), *spec, _submitter(), 10**30)
        for seat, account in enumerate(self.providers):
            yield ev.Seated(job, account, SeatIndex(seat), HolderId(seat + 1), RoundIndex(0))
        for slot, account in enumerate(self.verifiers):
            about = (job, account, SlotIndex(slot), HolderId(slot + 1))
            yield ev.Enrolled(*about, RoundIndex(0), terms.verifier_bond, BEGIN + 10**6)
            yield ev.Ready(*about)

    def _round(self, round: RoundIndex) -> Iterator[tuple[ContractEvent, int]]:
        job, seated, pool = self.job, _all(self.seats), _all(self.slots)
        committee = _all(min(COMMITTEE, self.slots))
        model = digest(f"state {round}") if round else digest("none")
        ends = [self.at(round, second).timestamp for second in (40, 60, 110)]
        seed = digest(f"seed {self.job} {round}")
        yield ev.RoundOpened(job, round, seed, seated, pool, committee, model, ends[0]), 0
        for seat, account in enumerate(self.providers):
            word = digest(f"{seat} {round}")
            yield ev.Committed(job, account, SeatIndex(seat), round, word), 10
        yield ev.RevealOpened(job, round, seated, ends[1]), 40
        for seat, account in enumerate(self.providers):
            yield ev.Revealed(job, account, SeatIndex(seat), round, self._reveals[seat][0]), 45
        yield ev.MergeOpened(job, round, seated, digest(f"seed {round + 1}"), ends[2]), 60
        yield ev.AuditSeeded(job, round, digest(f"audit {round}")), 62
        for slot in map(SlotIndex, bits(committee)):
            account = self.verifiers[slot]
            yield ev.Voted(job, account, slot, round, 0, seated), 65
        record = RoundRecord(
            seed, digest(f"audit {round}"), digest("reveals"), digest("votes"), model,
            seated, seated, Bitmap(0), pool, committee, self._drawn(round),
            digest(f"verdict {round}"),
        )  # fmt: skip
        state = digest(f"state {round + 1}")
        verdict = Verdict(Bitmap(0), self.seats, state, cid(f"state {round}"), bytes(8))
        signed = digest(f"verdict {round}")
        yield ev.Settled(job, round, signed, verdict, seated, committee, record), 80

    def _audit(self, round: RoundIndex) -> dict[int, list[tuple[ContractEvent, int]]]:
        """By the round that runs then: audit reports, openings, keys."""
        moments: dict[int, list[tuple[ContractEvent, int]]] = {}
        job, terms = self.job, self.terms
        sealed = 80 + terms.audit_seconds // 2
        opened = 80 + terms.audit_seconds + 1
        shown = opened + terms.open_seconds

        def put(event: ContractEvent, second: int) -> None:
            later, within = divmod(second, ROUND_SECONDS)
            moments.setdefault(round + later, []).append((event, within))

        for slot, seats in self._duties(round).items():
            account = self.verifiers[slot]
            entries = (AuditEntry.valid(s, account, self._reveals[s][2]) for s in sorted(seats))
            body = AuditReport(tuple(entries)).to_bytes()
            put(ev.AuditReportSealed(job, account, round, digest("sealed")), sealed)
            put(ev.Opened(job, account, HolderId(slot + 1), round, body), opened)
        for seat, account in enumerate(self.providers):
            put(ev.KeyShown(job, account, round, self._reveals[seat][1]), shown)
        return moments

    def _duties(self, round: RoundIndex) -> Mapping[SlotIndex, tuple[SeatIndex, ...]]:
        return draw_duties(digest(f"audit {round}"), self._drawn(round), _all(self.slots))

    def _drawn(self, round: RoundIndex) -> Bitmap:
        seed, seated, terms = digest(f"audit {round}"), _all(self.seats), self.terms
        rate, left = rate_in(terms, is_last=False), most_duties(terms)
        return draw_audits(seed, seated, Bitmap(0), rate=rate, left=left)


def _all(count: int) -> Bitmap:
    return Bitmap((1 << count) - 1)


def _submitter() -> Address:
    return accounts("submitter", 1)[0]
