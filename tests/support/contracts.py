"""The contracts as one plain object: what SPEC-ROUNDS.md says, written a second time.

Rule of this file: it takes nothing of the product but the types of events and of what stands in
them, and hashes, draws and counts for itself; so what the product folds from its events, or draws,
or pays, can be wrong. `tests/unit/test_house.py` holds the imports. `tests.unit.protocol.network`
has it with the product's fold beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil

from eth_hash.auto import keccak
from tests.support.identities import DOMAIN, JOB, address, cid, digest

from atoll.protocol import events as ev
from atoll.protocol.types import (
    Address,
    Bitmap,
    BlockRef,
    Digest,
    Domain,
    HolderId,
    JobId,
    JobStatus,
    MissedDuty,
    Params,
    Phase,
    Reveal,
    Role,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    SlotIndex,
    Terms,
    Verdict,
)

FOREVER = 0xFFFFFFFF
PENALTY_BPS = 100
WINNER_BPS = 3_000
ZERO = bytes(32)


class Refused(Exception):
    """The contracts would have reverted."""


def need(condition: object, why: str) -> None:
    if not condition:
        raise Refused(why)


def word(value: int) -> bytes:
    return value.to_bytes(32, "big")


def hashed(*parts: bytes | int) -> Digest:
    """keccak of words one after another: addresses and numbers fill theirs from the left."""
    return Digest(keccak(b"".join(word(p) if isinstance(p, int) else p for p in parts)))


def tagged(
    name: str, round: int, *parts: bytes | int, where: tuple[Domain, JobId] = (DOMAIN, JOB)
) -> Digest:
    """H of SPEC-ROUNDS.md, with the round id of a round of the one job."""
    domain, job = where
    round_id = (domain.chain_id, int(domain.rounds, 16), job, round)
    return hashed(keccak(name.encode()), *round_id, *parts)


def smallest(seed: bytes, numbers: set[int], count: int, *before: int) -> set[int]:
    return set(sorted(numbers, key=lambda n: (hashed(seed, *before, n), n))[:count])


def bitmap(numbers: set[int]) -> Bitmap:
    return Bitmap(sum(1 << n for n in numbers))


def numbers(bits: int) -> set[int]:
    return {i for i in range(256) if bits >> i & 1}


@dataclass
class Member:
    id: int
    role: Role
    account: Address
    index: int
    start: int
    bond: int
    to: int = FOREVER
    ready_until: int = 0
    slashed: bool = False
    lost_from: int = FOREVER
    claimed_to: int = 0
    released: bool = False
    penalties: set[tuple[int, MissedDuty]] = field(default_factory=set)
    penalised: int = 0
    bound_until: int = 0


@dataclass
class Past:
    """A settled round, as the contracts and everybody who reads calldata know it."""

    at: int
    ends: dict[str, int]
    record: RoundRecord
    digest: Digest
    state: Digest
    holders: dict[int, int]
    slots: dict[int, int]
    done: dict[int, int]
    reveals: dict[int, Reveal]
    drawn: set[int]
    auditors: dict[int, set[int]]
    signed: set[int]
    absent: set[int]
    pay: set[int]
    unearned: set[int]
    audit_reports: dict[int, Digest] = field(default_factory=dict)
    opened_reports: dict[int, bytes] = field(default_factory=dict)
    keys: dict[int, Digest] = field(default_factory=dict)
    shown_at: dict[int, int] = field(default_factory=dict)
    in_time: set[int] = field(default_factory=set)
    struck: set[int] = field(default_factory=set)
    contests: dict[tuple[int, int], bool | None] = field(default_factory=dict)
    votes: dict[int, int] = field(default_factory=dict)
    late: dict[int, int] = field(default_factory=dict)
    leaked: set[int] = field(default_factory=set)
    dropped: set[tuple[int, int]] = field(default_factory=set)
    proven: set[tuple[int, int]] = field(default_factory=set)


class Contracts:
    """One job on one chain. Actions raise Refused where the contracts would, and then do nothing.

    Attributes:
        log: the events so far, each with its block.
    """

    def __init__(self, terms: Terms, funded: int = 10**24) -> None:
        self.domain, self.job = DOMAIN, JOB
        self.state_of = lambda round, merged: digest(f"state {round} {merged}")
        self.terms = terms
        self.now, self.number = 1_000_000, 100
        self.log: list[tuple[ev.ContractEvent, BlockRef]] = []
        self.phase, self.status = Phase.WAITING, JobStatus.OPEN
        self.round, self.committee_draw, self.deadline, self.streak = 0, 0, 0, 0
        self.cancelled = False
        self.members: dict[tuple[Role, int], Member] = {}
        self.held: set[int] = set()
        self.owing: dict[int, int] = {}  # seat: round of the missed duty
        self.repeats: dict[int, int] = {}  # of phases, by round
        self.still = (0, 0)  # round and second from which on a slot may change hands again
        self.ready, self.coming, self.going = set[int](), set[int](), set[int]()
        self.misses: dict[tuple[Role, Address], list[int]] = {}  # rounds, as often as missed
        self.buckets: dict[int, int] = {}  # of providers' ids
        self.seed = self.next_seed = self.model = Digest(ZERO)
        self.seated, self.waited, self.committee = set[int](), set[int](), set[int]()
        self.settled: list[Past] = []
        self.funded, self.claimed, self.refunded, self.burnt, self.burnt_to = funded, 0, 0, 0, 0
        params = Params(PENALTY_BPS, WINNER_BPS, 1, 1, 1, 80, 80)
        spec = (digest("spec"), cid("spec"), digest("terms"), self.terms, params)
        self.emit(ev.JobCreated(self.job, address("submitter"), *spec, address("policy"), funded))
        self.credits: dict[Address, int] = {}

    # --- the chain ---

    @property
    def block(self) -> BlockRef:
        return BlockRef(self.number, digest(f"block {self.number}"), self.now)

    def beacon(self) -> Digest:
        """Hash of the block before."""
        return digest(f"block {self.number - 1}")

    def tagged(self, name: str, round: int, *parts: bytes | int) -> Digest:
        return tagged(name, round, *parts, where=(self.domain, self.job))

    def emit(self, event: ev.ContractEvent) -> None:
        self.log.append((event, self.block))

    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.number += 1

    def wait_until(self, when: int) -> None:
        self.wait(max(0, when - self.now))

    def member(self, role: Role, id: int) -> Member:
        return self.members[role, id]

    def own(self, account: Address) -> Member | None:
        mine = (m for m in self.members.values() if m.account == account and not m.released)
        return next(mine, None)

    def at(self, role: Role, index: int, round: int) -> Member:
        """Who has the seat or the slot in a round that it counts in."""
        held = [m for m in self.members.values() if (m.role, m.index) == (role, index)]
        return max((m for m in held if m.start <= round), key=lambda m: m.id)

    def _held(self, slot: int) -> list[Member]:
        held = self.members.values()
        return [m for m in held if (m.role, m.index) == (Role.VERIFIER, slot)]

    @property
    def following(self) -> int:
        is_open = self.phase in {Phase.TRAIN, Phase.REVEAL, Phase.MERGE}
        return self.round + is_open

    # --- members ---

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
        need(self.phase is not Phase.MERGE, "not while a round merges")
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
            fees = self.terms.duty_fee * (2 if round == self.terms.rounds - 1 else 1)
            penalty += max(0, fees - ceil(Fraction(bond * PENALTY_BPS, 10_000)))
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

    # --- phases ---

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
            need(self.deadline <= self.now < self.terms.expiry, "not now")
            self._next_committee()

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

    # --- settling ---

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
        return Verdict(bitmap(excluded), merged, state, cid(state.hex()), bytes(8))

    def certified(self, verdict: Verdict) -> Digest:
        """What the committee signs."""
        loss = verdict.loss + bytes(24)
        said = (verdict.excluded, verdict.merged, verdict.state, keccak(verdict.cid), loss)
        return self.tagged("atoll.certificate.v1", self.round, self.seed, self.votes_acc, *said)

    def settle_late(self) -> None:
        need(self.phase is Phase.MERGE and self.now < self.last_moment, "not now")
        need(self.now >= max(self.deadline, self.terms.expiry), "early")
        verdict = Verdict(Bitmap(0), 0, self.model, b"", bytes(8))
        self._store(verdict, Digest(ZERO), set())
        self.round += 1
        self._change_pool()
        self._close(JobStatus.CANCELLED if self.cancelled else JobStatus.EXPIRED)

    def _store(self, verdict: Verdict, signed: Digest, signers: set[int]) -> None:
        self._seed_audit()
        need(any(self.audit_seed), "nobody knows the audit seed yet")
        available, terms = self.available(), self.terms
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
        )
        is_last = self.round + 1 == terms.rounds
        in_vain = any(signed) and not verdict.merged
        unearned = {s for s in self.seated if in_vain and self._is_short(self.reveals[s])}
        drawn = self._drawn(numbers(verdict.excluded), is_last)
        silent = self._silent_here() if self.now >= self.votes_end else set()
        settled_round = Past(
            at=self.now,
            ends=self._ends(is_last),
            record=record,
            digest=signed,
            state=verdict.state,
            holders={s: self.at(Role.PROVIDER, s, self.round).id for s in self.seated},
            slots={
                p: self.at(Role.VERIFIER, p, self.round).id for p in self.ready | self.committee
            },
            done={s: len(self.reveals[s].checkpoint_commitments) // 64 for s in self.seated},
            reveals=dict(self.reveals),
            drawn=set(drawn),
            auditors=self._auditors(drawn, 2 if is_last else 1),
            signed=set(signers),
            absent=self.silent | silent,
            pay=available - unearned,
            unearned=unearned,
            votes=dict(self.votes),
        )
        self.settled.append(settled_round)
        told = (signed, verdict, bitmap(available), bitmap(signers), record)
        self.emit(ev.Settled(self.job, RoundIndex(self.round), *told))

    def _drawn(self, excluded: set[int], is_last: bool) -> dict[int, int]:
        """Which seats, and as the how manieth; who revealed no segment is not among them."""
        count = len(self.seated)
        if self.terms.f and not is_last:
            share = ceil(Fraction(self.terms.share_bps * count, 10_000))
            count = max(1, min(share, ceil(Fraction(len(self.ready), 2))))
        order, behind = sorted(self.seated), list[int]()
        if count < len(order):
            by_ticket = sorted(order, key=lambda s: (hashed(self.audit_seed, s), s))
            order, behind = by_ticket[:count], [s for s in by_ticket if s in excluded]
        positions = {s: count + at for at, s in enumerate(behind)}
        positions |= {s: at for at, s in enumerate(order)}
        return {s: at for s, at in positions.items() if self.reveals[s].checkpoint_commitments}

    def _auditors(self, drawn: dict[int, int], count: int) -> dict[int, set[int]]:
        """Drawn seats go round the pool."""
        pool = sorted(self.ready, key=lambda p: (hashed(self.audit_seed, 256, p), p))
        return {s: {pool[(at + k) % len(pool)] for k in range(count)} for s, at in drawn.items()}

    def _ends(self, is_last: bool) -> dict[str, int]:
        terms, audits = self.terms, 1
        if is_last:
            audits = min(16, 1 + ceil(Fraction(2 * len(self.seated), len(self.ready))))
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

    # --- audits ---

    def duties(self, round: int, id: int) -> set[int]:
        settled_round = self.settled[round]
        slot = next((p for p, held in settled_round.slots.items() if held == id), None)
        return {s for s, slots in settled_round.auditors.items() if slot in slots}

    def audit_report(self, round: int, id: int, audit_report: Digest) -> None:
        """The last one counts, if it was sealed in AUDIT."""
        settled_round = self.settled[round]
        need(id not in settled_round.opened_reports, "opened")
        settled_round.audit_reports.pop(id, None)
        if settled_round.at <= self.now < settled_round.ends["audit"]:
            settled_round.audit_reports[id] = audit_report
        account = self.member(Role.VERIFIER, id).account
        self.emit(ev.AuditReportSealed(self.job, account, RoundIndex(round), audit_report))

    def open_audit_report(self, round: int, id: int, body: bytes, salt: Digest) -> None:
        settled_round = self.settled[round]
        need(settled_round.ends["audit"] <= self.now < settled_round.ends["open"], "not now")
        m = self.member(Role.VERIFIER, id)
        parts = (settled_round.record.audit_seed, id, int(m.account, 16), keccak(body), salt)
        given = self.tagged("atoll.audit-report.v1", round, *parts)
        need(
            settled_round.audit_reports.get(id) == given
            and id not in settled_round.opened_reports
            and body,
            "another audit report",
        )
        seats = [body[at] for at in range(0, len(body), 35)]
        need(set(seats) <= self.duties(round, id) and seats == sorted(set(seats)), "no duties")
        settled_round.opened_reports[id] = body
        self.emit(ev.Opened(self.job, m.account, HolderId(id), RoundIndex(round), body))

    def show_key(self, round: int, seat: int, key: Digest) -> None:
        settled_round = self.settled[round]
        need(seat in settled_round.holders, "nobody's")
        need(any(key), "no key")
        if self.now > settled_round.at:
            settled_round.keys[seat] = key
            settled_round.shown_at[seat] = self.now
            if settled_round.ends["open"] <= self.now < settled_round.ends["keys"]:
                settled_round.in_time.add(seat)
        account = self.member(Role.PROVIDER, settled_round.holders[seat]).account
        self.emit(ev.KeyShown(self.job, account, RoundIndex(round), key))

    def leak(self, round: int, seat: int, key: Digest, by: Address) -> None:
        """The pay is burnt later, and nobody's gain."""
        settled_round = self.settled[round]
        need(self.now < settled_round.ends["audit"] and seat in settled_round.pay, "no")
        need(any(key) and hashed(key) == settled_round.reveals[seat].key_hash, "another key")
        need(self.member(Role.PROVIDER, settled_round.holders[seat]).account != by, "its own")
        settled_round.keys[seat] = key
        settled_round.shown_at[seat] = self.now
        settled_round.leaked.add(seat)
        settled_round.pay.discard(seat)
        self.emit(ev.Leaked(self.job, by, SeatIndex(seat), RoundIndex(round), key))
        self.emit(ev.PayChanged(self.job, RoundIndex(round), bitmap(settled_round.pay)))

    def late_vote(self, round: int, id: int, has: int) -> None:
        settled_round, m = self.settled[round], self.member(Role.VERIFIER, id)
        need(self.now < settled_round.ends["audit"], "too late")
        need(m.start <= round + 1 and m.to > round, "not then")
        settled_round.late[id] = settled_round.late.get(id, 0) | has
        where = (RoundIndex(round), HolderId(id), Bitmap(has))
        self.emit(ev.LateVote(self.job, m.account, *where))

    def grant(self, round: int, seat: int) -> None:
        """More than half of both committees, of slots that said so in time or late."""
        settled_round = self.settled[round]
        need(self.now < settled_round.ends["audit"] and seat not in settled_round.leaked, "no")
        electors = numbers(settled_round.record.committee)
        if round + 1 < len(self.settled):
            electors |= numbers(self.settled[round + 1].record.committee)
        elif self.phase not in {Phase.WAITING, Phase.CLOSED}:
            electors |= self.committee
        told = {p for p, has in settled_round.votes.items() if has >> seat & 1}
        for id in (id for id, has in settled_round.late.items() if has >> seat & 1):
            m = self.member(Role.VERIFIER, id)
            when = round if settled_round.record.committee >> m.index & 1 else round + 1
            told |= {m.index} & electors if m.start <= when < m.to else set()
        need(2 * len(told) > len(electors), "not available")
        need(seat not in settled_round.unearned, "earned nothing")
        settled_round.pay.add(seat)
        self.emit(ev.PayChanged(self.job, RoundIndex(round), bitmap(settled_round.pay)))

    def _keyless(self, round: int, seat: int) -> Member:
        settled_round = self.settled[round]
        need(seat in settled_round.drawn, "not drawn")
        shown = settled_round.keys.get(seat)
        is_right = shown is not None and hashed(shown) == settled_round.reveals[seat].key_hash
        is_early = settled_round.shown_at.get(seat, 0) < settled_round.ends["keys"]
        need(not (is_right and is_early), "shown in time")
        return self.member(Role.PROVIDER, settled_round.holders[seat])

    def report_missing_key(self, round: int, seat: int) -> None:
        settled_round = self.settled[round]
        need(settled_round.ends["keys"] <= self.now < settled_round.ends["window"], "not now")
        m = self._keyless(round, seat)
        need(seat not in settled_round.struck, "done")
        settled_round.struck.add(seat)
        if seat in settled_round.pay:
            settled_round.pay.discard(seat)
            self.emit(ev.PayChanged(self.job, RoundIndex(round), bitmap(settled_round.pay)))
        self.emit(ev.Struck(self.job, RoundIndex(round), SeatIndex(seat)))
        if 2 * len(settled_round.in_time) >= self._sampled(settled_round, round):
            self._missed(m, round, MissedDuty.KEY)

    def _sampled(self, settled_round: Past, round: int) -> int:
        """Seats that the seed of a round draws, beside those that were excluded."""
        revealed = settled_round.record.revealed.bit_count()
        if not self.terms.f or round + 1 == self.terms.rounds:
            return revealed
        share = ceil(Fraction(self.terms.share_bps * revealed, 10_000))
        return max(1, min(share, ceil(Fraction(settled_round.record.ready.bit_count(), 2))))

    def report_absent(self, round: int, id: int) -> None:
        settled_round = self.settled[round]
        need(settled_round.ends["open"] <= self.now < settled_round.ends["window"], "not now")
        body = settled_round.opened_reports.get(id, b"")
        left = self.duties(round, id) - {body[at] for at in range(0, len(body), 35)}
        need(left, "nothing excluded")
        duties = self._sampled(settled_round, round) * (1 + (round + 1 == self.terms.rounds))
        owing = min(duties, settled_round.record.ready.bit_count())
        need(2 * len(settled_round.opened_reports) >= owing, "most auditors stood still")
        self._missed(self.member(Role.VERIFIER, id), round, MissedDuty.AUDIT)

    def drop(self, round: int, id: int, seat: int) -> None:
        """An opened *mismatch* that was not played: half of what is left, once a seat."""
        settled_round, m = self.settled[round], self.member(Role.VERIFIER, id)
        need(settled_round.ends["half"] <= self.now < settled_round.ends["window"], "not now")
        body = settled_round.opened_reports.get(id, b"")
        said = {body[at]: body[at + 1 : at + 3] for at in range(0, len(body), 35)}
        need(said.get(seat, b"\xff\xff") != b"\xff\xff", "accuses nobody")
        need((id, seat) not in settled_round.dropped, "done")
        settled_round.dropped.add((id, seat))
        m.bond -= m.bond // 2
        where = (m.role, HolderId(id), RoundIndex(round), MissedDuty.DROPPED)
        self.emit(ev.Missed(self.job, m.account, *where, m.bond))
        if m.to == FOREVER:
            self._end(m, self.following)
        self.emit(ev.Dropped(self.job, HolderId(id), RoundIndex(round), SeatIndex(seat)))

    def prove(self, round: int, id: int, seat: int) -> None:
        """Who accused a seat that has been slashed is credited the fee."""
        settled_round, m = self.settled[round], self.member(Role.VERIFIER, id)
        body = settled_round.opened_reports.get(id, b"")
        said = {body[at]: body[at + 1 : at + 3] for at in range(0, len(body), 35)}
        need(said.get(seat, b"\xff\xff") != b"\xff\xff", "accuses nobody")
        need(self.member(Role.PROVIDER, settled_round.holders[seat]).slashed, "not slashed")
        need((id, seat) not in settled_round.proven, "done")
        settled_round.proven.add((id, seat))
        where = (HolderId(id), RoundIndex(round), SeatIndex(seat))
        self.emit(ev.Proven(self.job, *where))
        self._credit(m.account, self.terms.duty_fee)

    def told(self, round: int, seat: int, account: Address) -> Digest:
        """What a *valid* of the account about this seat has to be, by the shown key."""
        settled_round = self.settled[round]
        checkpoint_commitments, key = (
            settled_round.reveals[seat].checkpoint_commitments,
            settled_round.keys[seat],
        )
        plain = b""
        for j in range(len(checkpoint_commitments) // 64):
            mask = hashed(key, j)
            hidden = checkpoint_commitments[64 * j + 32 : 64 * j + 64]
            plain += bytes(a ^ b for a, b in zip(hidden, mask, strict=True))
        return Digest(keccak(bytes.fromhex(account[2:]) + plain))

    def contest(self, round: int, id: int, seat: int, by: Address) -> None:
        settled_round = self.settled[round]
        need(settled_round.ends["open"] <= self.now < settled_round.ends["window"], "not now")
        need((id, seat) not in settled_round.contests, "done")
        need(not self.member(Role.PROVIDER, settled_round.holders[seat]).slashed, "slashed")
        need(
            seat in settled_round.keys
            and hashed(settled_round.keys[seat]) == settled_round.reveals[seat].key_hash,
            "key",
        )
        body = settled_round.opened_reports.get(id, b"")
        parts = [body[at : at + 35] for at in range(0, len(body), 35)]
        said = [p for p in parts if p[0] == seat and p[1:3] == b"\xff\xff"]
        account = self.member(Role.VERIFIER, id).account
        need(said and said[0][3:] != self.told(round, seat, account), "it is right")
        settled_round.contests[id, seat] = None
        where = (HolderId(id), RoundIndex(round), SeatIndex(seat))
        self.emit(ev.Contested(self.job, by, *where))

    def settle_contest(self, round: int, id: int, seat: int) -> None:
        settled_round = self.settled[round]
        need(self.now >= settled_round.ends["window"], "not final")
        need(
            (id, seat) in settled_round.contests and settled_round.contests[id, seat] is None, "no"
        )
        holder = self.member(Role.PROVIDER, settled_round.holders[seat])
        wrong = round < holder.lost_from
        settled_round.contests[id, seat] = wrong
        where = (HolderId(id), RoundIndex(round), SeatIndex(seat))
        self.emit(ev.ContestSettled(self.job, *where, wrong))
        m = self.member(Role.VERIFIER, id)
        if not wrong:
            self._credit(m.account, self.terms.duty_fee)
        elif (round, MissedDuty.DIGEST) not in m.penalties:
            self._missed(m, round, MissedDuty.DIGEST)

    def _credit(self, account: Address, amount: int) -> None:
        self.credits[account] = self.credits.get(account, 0) + amount
        self.emit(ev.Credited(self.job, account, amount))

    def claim_credit(self, account: Address) -> None:
        amount = self.credits.get(account, 0)
        self.credits[account] = 0
        self.claimed += amount
        self.emit(ev.CreditClaimed(self.job, account, amount))

    # --- money ---

    def worth(self, m: Member, round: int) -> int:
        """What a holder earned in a settled round, slashes apart."""
        settled_round, terms = self.settled[round], self.terms
        if m.role is Role.PROVIDER:
            is_its = settled_round.holders.get(m.index) == m.id and m.index in settled_round.pay
            price = terms.segment_steps * terms.tokens_per_step * terms.price_per_token
            return is_its * settled_round.done.get(m.index, 0) * price
        body = settled_round.opened_reports.get(m.id, b"")
        duties = (body[at : at + 35] for at in range(0, len(body), 35))
        seats = {duty[0] for duty in duties if duty[1:3] == b"\xff\xff"}
        taken = {s for id, s in settled_round.contests if id == m.id}
        signed = settled_round.slots.get(m.index) == m.id and m.index in settled_round.signed
        return signed * terms.sign_fee + len(seats - taken) * terms.duty_fee

    def claim(self, role: Role, id: int, to: int) -> tuple[int, int]:
        m = self.member(role, id)
        need(max(m.claimed_to, m.start) < to <= min(m.to, len(self.settled)), "no such rounds")
        need(self.now >= self.settled[to - 1].ends["window"], "not final")
        paid = burnt = 0
        for round in range(max(m.claimed_to, m.start), to):
            if round < m.lost_from:
                paid += self.worth(m, round)
            else:
                burnt += self.worth(m, round)
        m.claimed_to = to
        self.claimed += paid
        self.burnt += burnt
        where = (role, HolderId(id), RoundIndex(to), paid, burnt)
        self.emit(ev.Claimed(self.job, m.account, *where))
        return paid, burnt

    def burn(self, to: int) -> None:
        need(self.burnt_to < to <= len(self.settled), "no such rounds")
        need(self.now >= self.settled[to - 1].ends["window"], "not over")
        price = self.terms.segment_steps * self.terms.tokens_per_step * self.terms.price_per_token
        amount = sum(
            settled_round.done[s] * price
            for settled_round in self.settled[self.burnt_to : to]
            for s in settled_round.done
            if s not in settled_round.pay | settled_round.unearned
        )
        self.burnt_to = to
        self.burnt += amount
        self.emit(ev.Burnt(self.job, RoundIndex(to), amount))


# --- honest members ---


def checkpoint_commitments_of(name: object, tags: Sequence[Digest], key: Digest) -> bytes:
    """Leaves of a round that nobody trained, whose plain work tags are these."""
    whole = b""
    for j, plain in enumerate(tags):
        masked = bytes(a ^ b for a, b in zip(plain, hashed(key, j), strict=True))
        whole += digest(f"state {name} {j}") + masked
    return whole


def reveal_of(
    name: object, segments: int, words: list[Digest] | None = None
) -> tuple[Reveal, Digest, list[Digest]]:
    """A reveal, its key and its plain work tags, which are made up where none are given."""
    key = digest(f"key {name}")
    words = [digest(f"x {name} {j}") for j in range(segments)] if words is None else words
    checkpoint_commitments = checkpoint_commitments_of(name, words, key)
    root = digest(f"update {name}") if segments else Digest(ZERO)
    return (
        Reveal(root, hashed(key), digest(f"salt {name}"), checkpoint_commitments, cid(name)),
        key,
        words,
    )


def changed(reveal: Reveal, **fields: Digest) -> Reveal:
    return replace(reveal, **fields)
