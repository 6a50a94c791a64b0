"""A round's settlement, and what is drawn for its audit."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from eth_hash.auto import keccak
from tests.second_client.typed import in_round
from tests.support.contracts.rounds import Rounds
from tests.support.contracts.values import (
    ZERO,
    Past,
    bitmap,
    chance_of,
    hashed,
    need,
    numbers,
    smallest,
)
from tests.support.identities import cid

from atoll.protocol import events as ev
from atoll.protocol.types import (
    Bitmap,
    Digest,
    JobStatus,
    Phase,
    Reveal,
    Role,
    RoundIndex,
    RoundRecord,
    Verdict,
)


class Settling(Rounds):
    """What ends a round, and begins the next.

    Attributes:
        statement: of every verdict; as of merges that have none.
    """

    statement = Digest(ZERO)

    @property
    def votes_acc(self) -> Digest:
        accumulator = self.committee_seed[:28] + bytes(4)
        for slot, has in self.votes.items():
            accumulator = hashed(accumulator, slot, has)[:28] + bytes(4)
        return Digest(accumulator)

    def available(self, spare: int = 0) -> set[int]:
        """What more than half have said to have; `spare` would still say so of everything."""
        count = {s: sum(w >> s & 1 for w in self.votes.values()) for s in self.seated}
        return {s for s in self.seated if 2 * (count[s] + spare) > len(self.committee)}

    def settle(
        self, signers: set[int], excluded: set[int] | None = None, merged: int | None = None
    ) -> None:
        """`signers` are slots."""
        need(self.phase is Phase.MERGE and self.now < self.last_moment, "not now")
        missing = len(self.committee) - len(self.votes)
        available, out = self.available(), excluded or set()
        need(self.now >= self.votes_end or self.available(missing) == available, "still open")
        merged = len(available - out) if merged is None else merged
        need(
            out <= available and len(out) <= self.terms.f and merged + len(out) <= len(available),
            "unsound",
        )
        need(signers <= self.committee, "no member's")
        need(3 * len(signers) >= 2 * len(self.committee), "too few signers")
        verdict = self.verdict(out, merged)
        self._store(verdict, self.certified(verdict), signers)
        self.streak = 0 if merged else self.streak + 1
        self.model = verdict.state
        self._next()

    def pass_deadline(self) -> None:
        """Time passes until the phase is over, however often it is repeated."""
        before = (self.phase, self.committee_draw)
        while (self.phase, self.committee_draw) == before:
            self.wait_until(self.deadline)
            self.advance()

    def verdict(self, excluded: set[int], merged: int) -> Verdict:
        """What honest members would say of the merge."""
        state = self.state_of(self.round + 1, str(sorted(self.available() - excluded)))
        model = (state, cid(state.hex()))
        return Verdict(bitmap(excluded), merged, *model, bytes(8), self.statement)

    def certified(self, verdict: Verdict) -> Digest:
        """What the committee signs."""
        where = (self.domain.chain_id, bytes.fromhex(self.domain.rounds[2:]), self.job, self.round)
        said = (
            ("bytes32", "seed", self.seed),
            ("bytes32", "votes", self.votes_acc),
            ("uint256", "excluded", verdict.excluded),
            ("uint16", "merged", verdict.merged),
            ("bytes32", "state", verdict.state),
            ("bytes", "cid", verdict.cid),
            ("bytes8", "loss", verdict.loss),
            ("bytes32", "statement", verdict.statement),
        )
        return Digest(in_round("Certificate", where, said))

    def settle_late(self) -> None:
        need(self.phase is Phase.MERGE and self.now < self.last_moment, "not now")
        need(self.now >= self.deadline and self.is_overdue, "early")
        verdict = Verdict(Bitmap(0), 0, self.model, b"", bytes(8))
        self._store(verdict, Digest(ZERO), set())
        self.round += 1
        self._change_pool()
        self._close(JobStatus.CANCELLED if self.cancelled else JobStatus.EXPIRED)

    def _store(self, verdict: Verdict, signed: Digest, signers: set[int]) -> None:
        self._seed_audit()
        need(any(self.audit_seed), "nobody knows the audit seed yet")
        available = self.available()
        record = RoundRecord(
            self.seed,
            self.audit_seed,
            self.reveals_acc,
            self.votes_acc,
            self.model,
            bitmap(self.seated),
            bitmap(available),
            verdict.excluded,
            bitmap(self.ready),
            bitmap(self.committee),
            bitmap(self._drawn(numbers(verdict.excluded))),
            signed,
        )
        in_vain = any(signed) and not verdict.merged
        unearned = {s for s in self.seated if in_vain and self._is_short(self.reveals[s])}
        drawn = numbers(record.drawn)
        self.duties_left -= len(drawn) - bool(verdict.excluded)
        silent = self._silent_here() if self.now >= self.votes_end else set()
        settled_round = Past(
            at=self.now,
            ends=self._ends(len(drawn)),
            record=record,
            digest=signed,
            state=verdict.state,
            holders={s: self.at(Role.PROVIDER, s, self.round).id for s in self.seated},
            slots={
                p: self.at(Role.VERIFIER, p, self.round).id for p in self.ready | self.committee
            },
            done={s: len(self.reveals[s].checkpoint_commitments) // 64 for s in self.seated},
            reveals=dict(self.reveals),
            drawn={s for s in drawn if self.reveals[s].checkpoint_commitments},
            auditors=self._auditors(drawn),
            signed=set(signers),
            absent=self.silent | silent,
            pay=available - unearned,
            unearned=unearned,
            votes=dict(self.votes),
        )
        self.settled.append(settled_round)
        told = (signed, verdict, bitmap(available), bitmap(signers), record)
        self.emit(ev.Settled(self.job, RoundIndex(self.round), *told))

    def _drawn(self, excluded: set[int]) -> set[int]:
        """Each seat by itself, the last of them where the escrow pays for no more, and one of the
        excluded.
        """
        terms, seed = self.terms, self.audit_seed
        rate = terms.last_rate if self.round + 1 == terms.rounds else terms.audit_rate
        rate = rate if terms.f else 0
        sure = set[int]()
        if excluded:
            sure = {sorted(excluded)[int.from_bytes(seed, "big") % len(excluded)]}
        tag = keccak(b"atoll.audit-rate.v1")
        tickets = {s: hashed(tag, seed, s // 8)[s % 8 * 4 :][:4] for s in self.seated}
        chances = {s: chance_of(min(15, rate + self._steps(s)) if rate else 0) for s in tickets}
        drawn = [
            s for s in sorted(self.seated - sure) if int.from_bytes(tickets[s], "big") < chances[s]
        ]
        return set(drawn[max(0, len(drawn) - self.duties_left) :]) | sure

    def _steps(self, seat: int) -> int:
        return self.at(Role.PROVIDER, seat, self.round).steps_in(self.round)

    def _auditors(self, drawn: set[int]) -> dict[int, set[int]]:
        """Drawn seats go round the pool; who revealed no segment has none."""
        pool = sorted(self.ready)
        first = int.from_bytes(hashed(keccak(b"atoll.auditors.v1"), self.audit_seed), "big")
        auditors = {s: {pool[(first + at) % len(pool)]} for at, s in enumerate(sorted(drawn))}
        return {s: a for s, a in auditors.items() if self.reveals[s].checkpoint_commitments}

    def _ends(self, drawn: int) -> dict[str, int]:
        terms, audits = self.terms, 1
        if self.round + 1 == terms.rounds:
            audits = min(16, max(1, ceil(Fraction(drawn, len(self.ready)))))
        ends = {"audit": self.now + audits * terms.audit_seconds}
        ends["open"] = ends["audit"] + terms.open_seconds
        ends["keys"] = ends["open"] + terms.key_seconds
        ends["half"] = ends["keys"] + terms.window_seconds // 2
        ends["window"] = ends["keys"] + terms.window_seconds
        return ends

    def _next(self) -> None:
        self._note_short()
        self.round += 1
        committee_draw = hashed(self.audit_seed, 0)
        committee = smallest(committee_draw, self.ready, 32) - self.going
        self._change_pool()
        is_over = self.streak == 3 or self.now >= self.terms.expiry
        if self.round == self.terms.rounds:
            self._close(JobStatus.DONE)
        elif self.cancelled:
            self._close(JobStatus.CANCELLED)
        elif is_over:
            self._close(JobStatus.EXPIRED)
        elif not self._has_enough():
            self._wait_for_members(set())
        else:
            self._open(self.next_seed, committee or smallest(committee_draw, self.ready, 32))

    def _is_short(self, reveal: Reveal) -> bool:
        whole = self.terms.steps // self.terms.segment_steps
        return len(reveal.checkpoint_commitments) // 64 * 4 < 3 * whole

    def _note_short(self) -> None:
        """Each holder's bucket: two in for a short round, one out for another, a missed duty at
        three."""
        settled_round = self.settled[-1]
        for seat, id in settled_round.holders.items():
            level = self.buckets.get(id, 0)
            level = level + 2 if self._is_short(settled_round.reveals[seat]) else max(0, level - 1)
            self.buckets[id] = level
            if level >= 3:
                self._free({seat})

    def sign(self, id: int) -> None:
        settled_round = self.settled[-1] if self.settled else None
        need(settled_round is not None and self._is_signing(settled_round), "over")
        assert settled_round is not None
        slot = next((p for p, held in settled_round.slots.items() if held == id), None)
        in_committee = slot is not None and settled_round.record.committee >> slot & 1
        need(in_committee and slot not in settled_round.signed, "nothing to sign")
        assert slot is not None
        settled_round.signed.add(slot)
        self.emit(
            ev.Signed(self.job, RoundIndex(len(self.settled) - 1), bitmap(settled_round.signed))
        )

    def cancel(self) -> None:
        need(not self.cancelled and self.phase is not Phase.CLOSED, "no")
        self.cancelled = True
        self.emit(ev.CancelRequested(self.job))
        if self.phase is Phase.WAITING:
            self._close(JobStatus.CANCELLED)
