"""Seats and slots, missed duties and slashes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from tests.support.contracts.chain import Chain
from tests.support.contracts.values import FOREVER, PENALTY_BPS, ZERO, Member, Past, need
from tests.support.identities import digest

from atoll.protocol import events as ev
from atoll.protocol.types import (
    Address,
    Digest,
    HolderId,
    MissedDuty,
    Phase,
    Role,
    RoundIndex,
    SeatIndex,
    SlotIndex,
)


class Members(Chain):
    """Who takes part, and what it loses."""

    def _new(self, role: Role, account: Address, index: int, bond: int) -> Member:
        need(self.phase is not Phase.CLOSED, "closed")
        need(self.own(account) is None, "a member already")
        id = 1 + sum(m.role is role for m in self.members.values())
        member = Member(id, role, account, index, self._start(role, index), bond)
        self.members[role, id] = member
        return member

    def _start(self, role: Role, index: int) -> int:
        """A void round opens again under its number: with new seats, and with the pool it had."""
        if role is Role.PROVIDER:
            return self.round + (self.phase is Phase.MERGE)
        is_left = self.phase is Phase.WAITING and index in self.going
        return self.round + 1 if is_left else self.following

    def join(self, account: Address, seat: int) -> None:
        need(seat < self.terms.seats, "no such seat")
        need(seat not in self.held | set(self.owing) | self.seated, "taken")
        m = self._new(Role.PROVIDER, account, seat, self.terms.provider_bond)
        self.held.add(seat)
        start = RoundIndex(m.start)
        self.emit(ev.Seated(self.job, account, SeatIndex(seat), HolderId(m.id), start))

    def leave_seat(self, account: Address) -> None:
        m = self._staying(account, Role.PROVIDER)
        self.held.discard(m.index)
        self._end(m, self.following if m.index in self.seated else self.round)

    def _staying(self, account: Address, role: Role) -> Member:
        m = self.own(account)
        need(m is not None and m.role is role and m.to == FOREVER, "not a member that stays")
        assert m is not None
        return m

    def _end(self, m: Member, to: int) -> None:
        m.to = max(m.start, to)
        end, id = RoundIndex(m.to), HolderId(m.id)
        if m.role is Role.PROVIDER:
            self.emit(ev.SeatLeaving(self.job, m.account, SeatIndex(m.index), id, end))
            return
        if self.phase is not Phase.WAITING:
            self.coming.discard(m.index)
            self.going.add(m.index)
        elif m.start > self.round:
            self.coming.discard(m.index)
        else:
            self.ready.discard(m.index)
        self.emit(ev.SlotLeaving(self.job, m.account, SlotIndex(m.index), id, end))

    def disagree(self, account: Address) -> None:
        m = self._staying(account, Role.PROVIDER)
        need(self.phase is Phase.TRAIN and m.index in self.waited, "not now")
        need(self.now < self.deadline, "too late")
        m.bound_until = self.now + self.terms.audit_seconds + self.terms.open_seconds
        m.bound_until += self.terms.key_seconds + self.terms.window_seconds
        self._stop(m, digest("another model"))

    def _stop(self, m: Member, root: Digest) -> None:
        """The seat is not held, and not waited for where it has not committed."""
        self.held.discard(m.index)
        was_waited = self._unwait(m, root)
        to = self.round if was_waited else self.following
        if to < m.to:
            self._end(m, to)

    def _unwait(self, m: Member, root: Digest) -> bool:
        """Whether the seat had still to commit: it does not count any more."""
        if self.phase is not Phase.TRAIN or m.index not in self.waited:
            return False
        self.waited.discard(m.index)
        self.seated.discard(m.index)
        where = (SeatIndex(m.index), RoundIndex(self.round))
        self.emit(ev.Stopped(self.job, m.account, *where, root))
        if not self.waited:
            self._end_train(set())
        return True

    def _newest(self, seat: int) -> Member:
        """Who holds the seat, or held it last."""
        held = [m for m in self.members.values() if (m.role, m.index) == (Role.PROVIDER, seat)]
        return max(held, key=lambda each: each.id)

    def penalise_seat(self, seat: int) -> None:
        need(seat in self.owing, "no missed duty")
        del self.owing[seat]
        m = self._newest(seat)
        if m.to > self.round:
            self._end(m, self.round)
        missed = self.following - 1 if self.following else 0
        self._penalise(m, max(m.start, missed), MissedDuty.SEAT)

    def enrol(self, account: Address, slot: int, bond: int) -> None:
        need(bond >= self.terms.verifier_bond and slot < self.terms.slots, "no")
        need(self.phase is not Phase.CLOSED and self.own(account) is None, "no")
        taken = {m.index: m for m in self.members.values() if self._has_slot(m)}
        outbids = slot in taken and self._make_room(slot, bond, taken)
        m = self._new(Role.VERIFIER, account, slot, bond)
        m.ready_until = self.now + self.terms.ready_seconds
        start = RoundIndex(m.start)
        where = (SlotIndex(slot), HolderId(m.id), start, bond, m.ready_until)
        self.emit(ev.Enrolled(self.job, account, *where))
        if outbids:
            self._is_ready(m)

    def _has_slot(self, m: Member) -> bool:
        return m.role is Role.VERIFIER and m.to == FOREVER and not m.released

    def _make_room(self, slot: int, bond: int, taken: dict[int, Member]) -> bool:
        """Whether the slot is that of a smaller bond, and not of one never ready."""
        m = taken[slot]
        if m.ready_until and self.now >= m.ready_until:
            self._end(m, self.following)
            self._release(m)
            return False
        need(len(taken) == self.terms.slots, "other slots are free")
        need(self.phase is not Phase.MERGE, "not while a round merges")
        lowest = min(taken.values(), key=lambda each: (each.bond, each.index))
        need(lowest is m and 10 * bond >= 11 * m.bond, "not a tenth above the smallest")
        round, time = self.still
        need(self.round >= round and self.now >= time, "one changed hands just now")
        self.still = (self.round + 1, self.now + self.terms.window_seconds)
        self._end(m, self.following)
        return True

    def say_ready(self, account: Address) -> None:
        m = self._staying(account, Role.VERIFIER)
        need(m.ready_until, "ready already")
        need(self.phase not in {Phase.MERGE, Phase.CLOSED}, "not now")
        self._is_ready(m)

    def _is_ready(self, m: Member) -> None:
        m.ready_until = 0
        is_now = self.phase is Phase.WAITING and m.start <= self.round
        (self.ready if is_now else self.coming).add(m.index)
        self.emit(ev.Ready(self.job, m.account, SlotIndex(m.index), HolderId(m.id)))

    def leave_pool(self, account: Address) -> None:
        m = self._staying(account, Role.VERIFIER)
        is_merging = self.phase is Phase.MERGE and self.committee_draw == 0
        need(not is_merging, "not while a round merges")
        self._end(m, self.following)

    def release(self, role: Role, id: int) -> None:
        m = self.member(role, id)
        need(not m.released and self.now >= m.bound_until, "released, or bound")
        is_closed = self.phase is Phase.CLOSED
        need(m.to != FOREVER or is_closed, "a member still")
        owes = role is Role.PROVIDER and m.index in self.owing
        need(not (owes and self.at(role, m.index, FOREVER) is m), "a penalty that is due")
        to = min(m.to, len(self.settled)) if is_closed else m.to
        if to > m.start:
            need(to <= len(self.settled), "its last round runs")
            need(self.now >= self.settled[to - 1].ends["window"], "its window is open")
        self._release(m)

    def _release(self, m: Member) -> None:
        m.released = True
        m.bond = 0
        self.emit(ev.Released(self.job, m.account, m.role, HolderId(m.id)))

    # --- missed duties and slashes ---

    def _penalise(self, m: Member, round: int, kind: MissedDuty) -> None:
        need((round, kind) not in m.penalties, "penalised before")
        m.penalties.add((round, kind))
        is_seat = m.role is Role.PROVIDER
        bond = self.terms.provider_bond if is_seat else self.terms.verifier_bond
        missed = self.misses.setdefault((m.role, m.account), [])
        penalty = self._price([*missed, round], bond) - self._price(missed, bond)
        if kind is MissedDuty.KEY:
            penalty += max(0, self.terms.duty_fee - ceil(Fraction(bond * PENALTY_BPS, 10_000)))
        penalty = min(penalty, bond // 8 - m.penalised, m.bond)
        missed.append(round)
        m.penalised += penalty
        m.bond -= penalty
        where = (m.role, HolderId(m.id), RoundIndex(round), kind)
        self.emit(ev.Missed(self.job, m.account, *where, penalty))

    @staticmethod
    def _price(missed: Sequence[int], bond: int) -> int:
        """Of a set of missed duties, the earliest first, whoever reports which of them when."""
        total, first = 0, ceil(Fraction(bond * PENALTY_BPS, 10_000))
        for at, round in enumerate(sorted(missed)):
            others = sum(round - 8 <= other for other in sorted(missed)[:at])
            total += min(bond // 8, first * 2**others)
        return total

    def _missed(self, m: Member, round: int, kind: MissedDuty) -> None:
        """A missed duty frees the seat or the slot at the next round start."""
        self._penalise(m, round, kind)
        if m.to == FOREVER:
            if m.role is Role.PROVIDER:
                self.held.discard(m.index)
                self._end(m, self.following if m.index in self.seated else self.round)
            else:
                self._end(m, self.following)

    def _go(self, m: Member) -> None:
        if m.role is Role.PROVIDER:
            self._stop(m, Digest(ZERO))
        else:
            self._end(m, self.following)

    def slash(self, role: Role, id: int, winner: Address, lowest: int = FOREVER) -> None:
        """A lost game."""
        m = self.member(role, id)
        need(not m.slashed, "slashed")
        m.slashed = True
        if role is Role.PROVIDER:
            windows = [p.ends["window"] > self.now for p in self.settled]
            later = (r for r, is_open in enumerate(windows) if r >= m.start and is_open)
            m.lost_from = min(next(later, len(self.settled)), lowest)
            m.lost_from = max(m.lost_from, m.start)
        if m.to == FOREVER:
            self._go(m)
        elif role is Role.PROVIDER and self._newest(m.index) is m:
            self._stop(m, Digest(ZERO))
        slashed = m.bond if role is Role.PROVIDER else m.bond // 2
        m.bond -= slashed
        what = (role, HolderId(id), RoundIndex(m.lost_from), slashed)
        self.emit(ev.HolderSlashed(self.job, m.account, winner, *what))

    def penalise_member(self, round: int, id: int) -> None:
        m = self.member(Role.VERIFIER, id)
        need(m.start <= round < m.to and m.index in self.absent(round), "not absent")
        if round < len(self.settled):
            need(self.now < self.settled[round].ends["window"], "too late")
        self._missed(m, round, MissedDuty.SILENCE)

    def absent(self, round: int) -> set[int]:
        if round == len(self.settled):
            return set(self.silent)
        return self.settled[round].absent

    def _is_signing(self, settled_round: Past) -> bool:
        return any(settled_round.digest) and self.now < settled_round.ends["audit"]
