"""The phases of a round, and its committee."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from eth_hash.auto import keccak
from tests.support.contracts.members import Members
from tests.support.contracts.values import FOREVER, ZERO, bitmap, hashed, need, smallest

from atoll.protocol import events as ev
from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
    JobStatus,
    Phase,
    Reveal,
    Role,
    RoundIndex,
    SeatIndex,
    SlotIndex,
)


class Rounds(Members):
    """What happens until a round is settled."""

    @property
    def last_moment(self) -> int:
        """From then on nothing is settled."""
        last_round = self.terms.train_seconds + self.terms.reveal_seconds
        return self.terms.expiry + last_round + 2 * self.terms.merge_seconds

    def advance(self) -> None:
        need(self.phase is not Phase.CLOSED, "closed")
        if self.phase is Phase.WAITING:
            self._advance_waiting()
        elif self.now >= self.last_moment:
            self._close(JobStatus.EXPIRED)
        elif self.phase in {Phase.TRAIN, Phase.REVEAL}:
            need(self.now >= self.deadline, "early")
            self._end_phase()
        else:
            need(self.now >= self.deadline and not self.is_overdue, "not now")
            self._next_committee()

    @property
    def is_overdue(self) -> bool:
        """No other committee is drawn: expiry, or 2 mergeSeconds and a window for who leaves."""
        leaving = self.seated - self.held or self.ready & self.going
        if self.now >= self.terms.expiry or not (self.cancelled or leaving):
            return self.now >= self.terms.expiry
        terms, over = self.terms, self.committee_draw + 1
        window = terms.audit_seconds + terms.open_seconds + terms.key_seconds + terms.window_seconds
        most = 2 + ceil(Fraction(window, terms.merge_seconds))
        is_heard = 2 * len(self.votes) > len(self.committee)
        return over >= most + (0 if is_heard else 3)

    def _end_phase(self) -> None:
        """Again, where fewer than half of the seats did what it asks: three times in a round."""
        most_missed = 2 * len(self.waited) > len(self.seated)
        is_train, repeats = self.phase is Phase.TRAIN, self.repeats.get(self.round, 0)
        ends = self.cancelled or self.now >= self.terms.expiry
        if most_missed and repeats < 3 and not ends:
            self.repeats[self.round] = repeats + 1
            terms = self.terms
            self.deadline = self.now + (terms.train_seconds if is_train else terms.reveal_seconds)
            self.emit(ev.PhaseRepeated(self.job, RoundIndex(self.round), self.deadline))
        elif is_train:
            self._end_train(set(self.waited))
        else:
            self._end_reveal(set(self.waited))

    def _advance_waiting(self) -> None:
        if self.now >= self.terms.expiry:
            self._close(JobStatus.EXPIRED)
            return
        need(self._has_enough(), "members are missing")
        self.status = JobStatus.ACTIVE
        beacon = self.beacon()
        seed = self.tagged("atoll.data.v2", self.round, ZERO, beacon)
        self._open(seed, smallest(seed, self.ready, 32))

    def _has_enough(self) -> bool:
        least = max(self.terms.min_providers, 2 * self.terms.f + 1)
        return len(self.held) >= least and len(self.ready) >= self.terms.min_verifiers

    def _open(self, seed: Digest, committee: set[int]) -> None:
        self.seed = self.committee_seed = self.reveals_acc = seed
        self.seated, self.waited = set(self.held), set(self.held)
        self.committee = committee
        self.committee_draw, self.audit_seed, self.silent = 0, Digest(ZERO), set[int]()
        self.commits: dict[int, Digest] = {}
        self.reveals: dict[int, Reveal] = {}
        self.votes: dict[int, int] = {}
        self.phase, self.deadline = Phase.TRAIN, self.now + self.terms.train_seconds
        members = map(bitmap, (self.seated, self.ready, self.committee))
        self.emit(
            ev.RoundOpened(
                self.job, RoundIndex(self.round), seed, *members, self.model, self.deadline
            )
        )

    def commit(self, account: Address, commitment: Digest) -> None:
        need(self.phase is Phase.TRAIN and self.now < self.deadline, "not now")
        m = self.own(account)
        need(m and m.role is Role.PROVIDER and m.start <= self.round, "no seat")
        assert m is not None
        need(m.index in self.waited, "not waited for")
        need(self.at(Role.PROVIDER, m.index, self.round) is m, "somebody else's")
        self.commits[m.index] = commitment
        self.waited.discard(m.index)
        where = (SeatIndex(m.index), RoundIndex(self.round))
        self.emit(ev.Committed(self.job, account, *where, commitment))
        if not self.waited:
            self._end_train(set())

    def commitment(self, account: Address, seat: int, reveal: Reveal) -> Digest:
        parts = (
            keccak(reveal.checkpoint_commitments),
            reveal.update_root,
            self.model,
            reveal.key_hash,
        )
        who = (self.seed, seat, int(account, 16))
        return self.tagged("atoll.commit.v2", self.round, *who, *parts, reveal.salt)

    def _end_train(self, missed: set[int]) -> None:
        committed = self.seated - missed
        self._free(missed)
        if not committed:
            self._void(missed)
            return
        self.seated, self.waited = committed, set(committed)
        self.phase, self.deadline = Phase.REVEAL, self.now + self.terms.reveal_seconds
        told = bitmap(committed)
        self.emit(ev.RevealOpened(self.job, RoundIndex(self.round), told, self.deadline))

    def _free(self, missed: set[int]) -> None:
        self.held -= missed
        self.owing |= dict.fromkeys(missed, self.round)

    def _void(self, missed: set[int]) -> None:
        if self.cancelled:
            self._close(JobStatus.CANCELLED)
        elif self.now >= self.terms.expiry:
            self._close(JobStatus.EXPIRED)
        else:
            newest = {
                p: max(m.start for m in self._held(p) if m.to == FOREVER) for p in self.coming
            }
            kept = {slot for slot, start in newest.items() if start <= self.round}
            self.ready |= kept
            self.coming -= kept
            self._wait_for_members(missed)

    def _wait_for_members(self, missed: set[int]) -> None:
        self.phase, self.deadline = Phase.WAITING, 0
        self.seated, self.waited = set(), set()
        self.emit(ev.Waiting(self.job, RoundIndex(self.round), bitmap(missed)))

    def _close(self, status: JobStatus) -> None:
        self.phase, self.status, self.deadline = Phase.CLOSED, status, 0
        self.emit(ev.Closed(self.job, status, self.round, self.now))

    def _change_pool(self) -> None:
        self.ready = (self.ready - self.going) | self.coming
        self.going, self.coming = set(), set()

    def reveal(self, account: Address, reveal: Reveal) -> None:
        need(self.phase is Phase.REVEAL and self.now < self.deadline, "not now")
        m = self.own(account)
        need(m is not None and m.role is Role.PROVIDER and m.index in self.waited, "no")
        assert m is not None
        given = self.commitment(account, m.index, reveal)
        need(given == self.commits[m.index], "another commitment")
        self.reveals[m.index] = reveal
        self.waited.discard(m.index)
        self.reveals_acc = hashed(self.reveals_acc, m.index, given)
        where = (SeatIndex(m.index), RoundIndex(self.round))
        self.emit(ev.Revealed(self.job, account, *where, reveal))
        if not self.waited:
            self._end_reveal(set())

    def _end_reveal(self, missed: set[int]) -> None:
        revealed = self.seated - missed
        self._free(missed)
        if not revealed:
            self._void(missed)
            return
        self.seated = revealed
        beacon = self.beacon()
        self.next_seed = self.tagged("atoll.data.v2", self.round + 1, self.reveals_acc, beacon)
        self.half_merge = self.now + self.terms.merge_seconds // 2
        self.merging_since = self.block
        self.phase, self.deadline = Phase.MERGE, self.now + self.terms.merge_seconds
        told = (bitmap(revealed), self.next_seed, self.deadline)
        self.emit(ev.MergeOpened(self.job, RoundIndex(self.round), *told))
        self.number += 1  # what is said in that block itself draws nothing yet

    @property
    def votes_end(self) -> int:
        """The last quarter of a committee draw is for signatures over votes that are fixed."""
        return self.deadline - self.terms.merge_seconds // 4

    def say(self, account: Address, has: int) -> None:
        need(self.phase is Phase.MERGE and self.now < self.votes_end, "not now")
        slots = (p for p in self.committee if self._sits(p, account))
        slot = next(slots, None)
        need(slot is not None and slot not in self.votes, "nothing to say")
        assert slot is not None
        self.votes[slot] = has
        where = (SlotIndex(slot), RoundIndex(self.round), self.committee_draw, Bitmap(has))
        self.emit(ev.Voted(self.job, account, *where))
        self._seed_audit()

    def _sits(self, slot: int, account: Address) -> bool:
        return self.at(Role.VERIFIER, slot, self.round).account == account

    def seed_audit(self) -> None:
        need(self.phase is Phase.MERGE and not any(self.audit_seed), "not now")
        need(self.block.number > self.merging_since.number, "its block is not over")
        self._seed_audit()

    def _seed_audit(self) -> None:
        """By the block in which MERGE opened; in that block nobody knows it."""
        if self.block.number == self.merging_since.number or any(self.audit_seed):
            return
        parts = (self.reveals_acc, self.merging_since.hash)
        self.audit_seed = self.tagged("atoll.audit.v3", self.round, *parts)
        self.emit(ev.AuditSeeded(self.job, RoundIndex(self.round), self.audit_seed))

    def _next_committee(self) -> None:
        self._seed_audit()
        need(any(self.audit_seed), "its block is not over")
        self.silent |= self._silent_here()
        self.committee_draw += 1
        self.committee_seed = hashed(
            self.audit_seed if self.committee_draw == 1 else self.committee_seed,
            self.committee_draw,
        )
        self.committee, self.votes = smallest(self.committee_seed, self.ready, 32), {}
        self.deadline = self.now + self.terms.merge_seconds
        told = (self.committee_draw, bitmap(self.committee), self.deadline)
        self.emit(ev.CommitteeDrawn(self.job, RoundIndex(self.round), *told))

    def _silent_here(self) -> set[int]:
        """Of the committee draw that runs; none where most are, in a round's first three."""
        silent = self.committee - set(self.votes)
        is_standstill = self.committee_draw < 3 and 2 * len(silent) > len(self.committee)
        return set() if is_standstill else silent
