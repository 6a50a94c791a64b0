"""Any job at all: the view folded from the events is the network, and knows what can be done.

The network is `tests/support/contracts/`, written from the text and without the law's
functions.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.contracts import Refused, bitmap, hashed, numbers
from tests.support.manifests import make_terms
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.protocol import missed_duties, pay
from atoll.protocol.holders import Holder
from atoll.protocol.keeper_calls import KeeperCall, KeeperCallKind, keeper_calls
from atoll.protocol.obligations import Duty, Obligation, obligations_of
from atoll.protocol.types import NO_ROUND, Phase, Role, SeatIndex

WAITS = st.sampled_from([1, 5, 20, 30, 40, 60, 100, 250, 600])
TERMS = st.sampled_from(
    [
        {},
        {"f": 0, "min_providers": 1, "min_verifiers": 1},
        {"rounds": 2, "audit_rate": 0},
        {"audit_rate": 1, "rate_steps": 2, "provider_bond": 25_000 * 10**12},
        {"expiry": 1_000_900},
        {"slots": 2, "min_verifiers": 1, "seats": 6, "audit_rate": 13},
    ]
)


class AnyJob(RuleBasedStateMachine):
    @initialize(
        terms=TERMS, seats=st.integers(2, 4), slots=st.integers(1, 4), done=st.integers(0, 2)
    )
    def create(self, terms: dict[str, Any], seats: int, slots: int, done: int) -> None:
        made = make_terms(**terms)
        self.s = Script.ready(made, seats, min(slots, made.slots))
        self.net = self.s.net
        for _ in range(done):
            for _ in range(4):
                if self.net.phase is not Phase.CLOSED:
                    self.do_the_next_thing()

    def attempt(self, action: Any, *arguments: Any) -> None:
        """What is refused changes nothing: the fold below would tell."""
        before = len(self.net.log)
        try:
            action(*arguments)
        except Refused:
            assert len(self.net.log) == before

    # --- time and members ---

    @rule(seconds=WAITS)
    def wait(self, seconds: int) -> None:
        self.net.wait(seconds)

    @rule(who=st.sampled_from(PROVIDERS), seat=st.integers(0, 5))
    def join(self, who: Any, seat: int) -> None:
        self.attempt(self.net.join, who, seat)

    @rule(who=st.sampled_from(PROVIDERS))
    def leave_seat(self, who: Any) -> None:
        self.attempt(self.net.leave_seat, who)

    @rule(who=st.sampled_from(PROVIDERS))
    def disagree(self, who: Any) -> None:
        self.attempt(self.net.disagree, who)

    @rule(who=st.sampled_from(VERIFIERS), slot=st.integers(0, 5), more=st.integers(9, 12))
    def enrol(self, who: Any, slot: int, more: int) -> None:
        self.attempt(self.net.enrol, who, slot, self.net.terms.verifier_bond * more // 10)

    @rule(who=st.sampled_from(VERIFIERS))
    def say_ready(self, who: Any) -> None:
        self.attempt(self.net.say_ready, who)

    @rule(who=st.sampled_from(VERIFIERS))
    def leave_pool(self, who: Any) -> None:
        self.attempt(self.net.leave_pool, who)

    @rule()
    def cancel(self) -> None:
        if self.net.round:
            self.attempt(self.net.cancel)

    # --- a round ---

    @precondition(lambda self: self.net.phase is Phase.WAITING)
    @rule()
    def advance(self) -> None:
        self.attempt(self.net.advance)

    @precondition(lambda self: self.net.phase is Phase.TRAIN)
    @rule(count=st.integers(1, 4), segments=st.sampled_from([None, None, None, 0, 5, 6]))
    def commit(self, count: int, segments: int | None) -> None:
        for seat in sorted(self.net.waited)[:count]:
            self.attempt(self.s.commit, seat, segments)

    @precondition(lambda self: self.net.phase is Phase.REVEAL)
    @rule(count=st.integers(1, 4))
    def reveal(self, count: int) -> None:
        for seat in sorted(self.net.waited)[:count]:
            self.attempt(self.s.reveal, seat)

    @precondition(lambda self: self.net.phase is Phase.MERGE)
    @rule(count=st.integers(1, 4), has=st.none() | st.integers(0, 63))
    def say(self, count: int, has: int | None) -> None:
        silent = self.net.committee - set(self.net.votes)
        self.attempt(self.s.say, sorted(silent)[:count], has)

    @precondition(lambda self: self.net.phase is Phase.MERGE)
    @rule(left=st.integers(0, 2), merged=st.sampled_from([None, None, 0]), most=st.booleans())
    def settle(self, left: int, merged: int | None, most: bool) -> None:
        signers = sorted(self.net.committee)[: len(self.net.committee) - (not most)]
        out = set(sorted(self.net.available())[:left])
        self.attempt(self.net.settle, set(signers), out, merged)

    @rule()
    def do_the_next_thing(self) -> None:
        """What an honest network would do, so that jobs come far."""
        net = self.net
        match net.phase:
            case Phase.WAITING:
                self.attempt(net.advance)
            case Phase.TRAIN:
                for seat in sorted(net.waited):
                    self.attempt(self.s.commit, seat)
            case Phase.REVEAL:
                for seat in sorted(net.waited):
                    self.attempt(self.s.reveal, seat)
            case Phase.MERGE:
                self.attempt(self.s.say, sorted(net.committee - set(net.votes)))
                self.attempt(self.s.settle)

    @precondition(lambda self: self.net.settled)
    @rule()
    def finish_an_audit(self) -> None:
        round = len(self.net.settled) - 1
        if self.net.now < self.net.settled[round].ends["audit"]:
            done = set(self.net.settled[round].audit_reports)
            for id in set(self.s.auditors(round)) - done:
                self.s.audit_report(round, id)

    @precondition(lambda self: self.net.settled)
    @rule(back=st.integers(0, 2), what=st.sampled_from(["audit_report", "open", "key", "forge"]))
    def audit(self, back: int, what: str) -> None:
        round = len(self.net.settled) - 1 - back
        if round < 0:
            return
        for id in self.s.auditors(round):
            if what == "audit_report":
                self.attempt(self.s.audit_report, round, id)
            elif what == "forge":
                self.attempt(self.s.audit_report, round, id, self.s.body(round, id)[:-1] + b"\0")
            elif what == "open" and (round, id) in self.s.salts:
                self.attempt(self.s.open, round, id)
        for seat in sorted(self.net.settled[round].drawn) if what == "key" else ():
            self.attempt(self.s.show_keys, round, [seat])

    @precondition(lambda self: self.net.settled)
    @rule(back=st.integers(0, 2), seat=st.integers(0, 5))
    def slash(self, back: int, seat: int) -> None:
        round = len(self.net.settled) - 1 - back
        if round < 0 or seat not in self.net.settled[round].holders:
            return
        if self.net.now < self.net.settled[round].ends["window"]:
            holder = self.net.settled[round].holders[seat]
            self.attempt(self.net.slash, Role.PROVIDER, holder, WATCHER)

    # --- what the view says can be done ---

    @rule(data=st.data())
    def do_what_anybody_may(self, data: st.DataObject) -> None:
        calls = list(keeper_calls(self.net.view, self.net.now))
        if calls:
            self.call(data.draw(st.sampled_from(calls)))

    def call(self, one: KeeperCall) -> None:
        """It must not be refused."""
        net, round, id, seat = self.net, one.round, one.holder, one.seat
        match one.call:
            case KeeperCallKind.ADVANCE:
                net.advance()
            case KeeperCallKind.SEED_AUDIT:
                net.seed_audit()
            case KeeperCallKind.SETTLE_LATE:
                net.settle_late()
            case KeeperCallKind.PENALISE_SEAT:
                net.penalise_seat(seat)
            case KeeperCallKind.PENALISE_MEMBER:
                net.penalise_member(round, id)
            case KeeperCallKind.ABSENT:
                net.report_absent(round, id)
            case KeeperCallKind.REPORT_MISSING_KEY:
                net.report_missing_key(round, seat)
            case _:
                self.pay_or_contest(one)

    def pay_or_contest(self, one: KeeperCall) -> None:
        net, id = self.net, one.holder
        match one.call:
            case KeeperCallKind.CONTEST:
                net.contest(one.round, id, one.seat, WATCHER)
            case KeeperCallKind.SETTLE_CONTEST:
                net.settle_contest(one.round, id, one.seat)
            case KeeperCallKind.CLAIM:
                holder = net.view.holders(one.role)[id]
                expected = pay.claim(net.view, holder, one.round)
                assert net.claim(one.role, id, one.round) == expected
            case KeeperCallKind.BURN:
                unpaid = net.view.settled[net.view.burnt_to : one.round]
                expected_burnt = sum(
                    pay.unpaid(net.terms, settled_round) for settled_round in unpaid
                )
                before = net.burnt
                net.burn(one.round)
                assert net.burnt - before == expected_burnt
            case KeeperCallKind.RELEASE:
                net.release(one.role, id)
            case KeeperCallKind.LEAK:  # which would take pay that the invariants below speak of
                settled_round = net.settled[one.round]
                assert one.seat in settled_round.pay
                assert net.now < settled_round.ends["audit"]
                key = net.view.settled[one.round].known_key(SeatIndex(one.seat))
                assert key is not None  # of the settlement's own block, too: early, but known
                assert hashed(key) == settled_round.reveals[one.seat].key_hash
            case _:
                raise AssertionError(one)

    @rule(data=st.data(), who=st.sampled_from([*PROVIDERS, *VERIFIERS]))
    def do_what_is_owed(self, data: st.DataObject, who: Any) -> None:
        owed = obligations_of(self.net.view, who, self.net.now)
        if owed:
            self.give(who, data.draw(st.sampled_from(owed)))

    def give(self, who: Any, owed: Obligation) -> None:
        """It must be taken, and be owed no more."""
        net, s, round, id = self.net, self.s, owed.round, owed.holder
        assert net.now < owed.until
        match owed.duty:
            case Duty.COMMIT:
                s.commit(owed.seats[0])
            case Duty.REVEAL:
                s.reveal(owed.seats[0])
            case Duty.READY:
                net.say_ready(who)
            case Duty.VOTE:
                net.say(who, int(bitmap(net.seated)))
            case Duty.SIGN if net.phase is Phase.MERGE and round == net.round:
                return
            case Duty.SIGN:
                net.sign(id)
            case Duty.AUDIT_REPORT:
                assert set(owed.seats) == net.duties(round, id)
                s.audit_report(round, id)
            case Duty.OPEN:
                s.open(round, id)
            case Duty.KEY:
                s.show_keys(round, owed.seats)
            case _:
                raise AssertionError(owed)
        left = obligations_of(net.view, who, net.now)
        assert (owed.duty, round) not in {(each.duty, each.round) for each in left}

    # --- the view is the network ---

    @invariant()
    def the_machine_is_the_same(self) -> None:
        if not hasattr(self, "net"):
            return
        net, view = self.net, self.net.view
        assert (view.phase, view.status, view.round) == (net.phase, net.status, net.round)
        assert numbers(view.held) == net.held
        unpenalised = {h.index: h.missed for h in view.providers.values() if h.missed != NO_ROUND}
        assert set(unpenalised) == set(net.owing)
        if view.open is None:
            assert net.phase in {Phase.WAITING, Phase.CLOSED}
            if net.phase is Phase.WAITING:
                assert numbers(view.ready_slots(net.round)) == net.ready
            return
        running = view.open
        assert (running.seed, running.deadline) == (net.seed, net.deadline)
        assert numbers(running.ready) == net.ready
        assert numbers(running.committee) == net.committee
        assert (running.committee_draw, running.committee_seed) == (
            net.committee_draw,
            net.committee_seed,
        )
        assert running.reveal_accumulator == net.reveals_acc
        assert running.votes_accumulator == net.votes_acc
        assert running.audit_seed == net.audit_seed
        if net.phase is Phase.TRAIN:
            assert numbers(running.counting & ~running.committed) == net.waited
        if net.phase is Phase.REVEAL:
            assert numbers(running.committed & ~running.revealed) == net.waited
        if net.phase is Phase.MERGE:
            assert numbers(running.available) == net.available()
            missing = len(net.committee) - len(net.votes)
            assert running.is_merge_over == (net.available(missing) == net.available())

    @invariant()
    def members_are_the_same(self) -> None:
        if not hasattr(self, "net"):
            return
        for (role, id), m in self.net.members.items():
            seen: Holder = self.net.view.holders(role)[id]  # type: ignore[index]
            assert (seen.account, seen.index, seen.start) == (m.account, m.index, m.start)
            assert (seen.bond, seen.is_slashed) == (m.bond, m.slashed)
            assert seen.is_released == m.released
            if m.slashed:
                assert seen.lost_from == m.lost_from
            record = self.net.view.miss_records.get((role, m.account), missed_duties.MissRecord())
            rounds = (round for round, n in record.counts.items() for _ in range(n))
            assert sorted(rounds) == sorted(self.net.misses.get((role, m.account), []))
            assert seen.penalised == m.penalised <= self.net.terms.provider_bond // 8

    @invariant()
    def rounds_are_the_same(self) -> None:
        if not hasattr(self, "net"):
            return
        for settled_round, seen in zip(self.net.settled, self.net.view.settled, strict=True):
            assert seen.is_consistent
            assert seen.record == settled_round.record
            clock = seen.clock
            ends = (clock.audit_end, clock.open_end, clock.keys_end, clock.half, clock.window_end)
            assert ends == tuple(settled_round.ends.values())
            assert numbers(seen.drawn) == settled_round.drawn
            pairs = {(s, p) for p, seats in seen.duties.items() for s in seats}
            assert pairs == {(s, p) for s, slots in settled_round.auditors.items() for p in slots}
            assert (numbers(seen.pay), numbers(seen.unearned)) == (
                settled_round.pay,
                settled_round.unearned,
            )
            assert numbers(seen.signers) == settled_round.signed
            assert dict(seen.seats) | settled_round.holders == dict(seen.seats)
            assert numbers(seen.silent) == settled_round.absent
            assert set(seen.keys) | set(seen.late_keys) == set(settled_round.keys)
            assert numbers(seen.in_time) == settled_round.in_time

    @invariant()
    def money_is_the_same_and_never_too_much(self) -> None:
        if not hasattr(self, "net"):
            return
        net, view = self.net, self.net.view
        worth = 0
        for (role, id), m in net.members.items():
            for round in range(len(net.settled)):
                if max(m.start, m.claimed_to) <= round:
                    holder = view.holders(role)[id]  # type: ignore[index]
                    earned = net.worth(m, round)
                    assert pay.round_pay(net.terms, view.settled[round], holder) == earned
                    worth += earned
        owed = worth + sum(net.credits.values())
        for settled_round in net.settled[net.burnt_to :]:
            lost = set(settled_round.done) - settled_round.pay - settled_round.unearned
            owed += sum(settled_round.done[s] for s in lost) * net.terms.segment_pay
        reserved = net.funded - pay.refundable(view)
        assert net.claimed + net.burnt + owed <= reserved
        assert sum(view.paid.values()) == net.claimed
        assert view.burnt == net.burnt


TestAnyJob = AnyJob.TestCase
TestAnyJob.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
