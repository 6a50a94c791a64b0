"""What anybody may call when: each call is due from its second on, and only while it succeeds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.contracts import Refused
from tests.support.identities import digest
from tests.support.manifests import make_terms
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.chain.contract_calls import Calls
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.protocol import events as ev
from atoll.protocol import pay
from atoll.protocol.audits import with_settled
from atoll.protocol.checkpoint_commitments import key_hash
from atoll.protocol.clocks import last_moment
from atoll.protocol.holders import Holder
from atoll.protocol.keeper_calls import (
    KeeperCall,
    KeeperCallKind,
    Shown,
    burnable_to,
    is_releasable,
    keeper_calls,
    leaked_keys,
)
from atoll.protocol.obligations import Duty, obligations_of
from atoll.protocol.pay import duties_paid
from atoll.protocol.types import (
    NO_ROUND,
    Digest,
    HolderId,
    Phase,
    Role,
    RoundIndex,
    SeatIndex,
)

FIRST = RoundIndex(0)


def due(script: Script, call: KeeperCallKind) -> list[KeeperCall]:
    return [each for each in keeper_calls(script.net.view, script.net.now) if each.call is call]


def seat_holder(script: Script, seat: int, round: int = 0) -> Holder:
    return script.net.view.providers[HolderId(script.net.at(Role.PROVIDER, seat, round).id)]


def settled(seats: int = 4) -> Script:
    """One round that everybody met."""
    script = Script.ready(seats=seats)
    script.honest_round()
    return script


def test_the_audit_seed_is_anybodys_when_nobody_spoke_for_a_while() -> None:
    script = Script.ready()
    net = script.net
    script.train()
    running = net.view.open
    assert running is not None
    assert running.seed_due == net.now + min(30, net.terms.merge_seconds // 2)
    net.wait_until(running.seed_due - 1)
    assert due(script, KeeperCallKind.SEED_AUDIT) == []
    net.wait(1)
    assert due(script, KeeperCallKind.SEED_AUDIT) == [KeeperCall(KeeperCallKind.SEED_AUDIT, FIRST)]
    net.seed_audit()
    assert due(script, KeeperCallKind.SEED_AUDIT) == []


def test_a_vote_draws_the_audit_seed() -> None:
    script = Script.ready()
    script.train()
    running = script.net.view.open
    assert running is not None
    script.say([0])
    script.net.wait_until(running.seed_due)
    assert due(script, KeeperCallKind.SEED_AUDIT) == []


def test_a_job_that_expired_in_merge_is_settled_without_certificate() -> None:
    script = Script.ready(make_terms(expiry=1_000_200))
    net = script.net
    script.train()
    running = net.view.open
    assert running is not None
    net.wait_until(max(net.terms.expiry, running.deadline) - 1)
    assert due(script, KeeperCallKind.SETTLE_LATE) == []
    net.wait(1)
    assert due(script, KeeperCallKind.SETTLE_LATE) == [
        KeeperCall(KeeperCallKind.SETTLE_LATE, FIRST)
    ]
    net.settle_late()
    assert due(script, KeeperCallKind.SETTLE_LATE) == []


def test_from_the_last_moment_on_a_job_is_closed_and_nothing_is_signed() -> None:
    script = Script.ready(make_terms(expiry=1_000_200))
    net = script.net
    script.train()
    script.say()
    for wait, calls, owes in (
        (-1, [KeeperCallKind.SETTLE_LATE], 1),
        (0, [KeeperCallKind.ADVANCE], 0),
    ):
        net.wait_until(last_moment(net.terms) + wait)
        assert [each.call for each in keeper_calls(net.view, net.now)] == calls
        for account in VERIFIERS[:4]:
            signing = [o for o in obligations_of(net.view, account, net.now) if o.duty is Duty.SIGN]
            assert len(signing) == owes
    with pytest.raises(Refused):
        net.settle_late()
    with pytest.raises(Refused):
        net.settle({0, 1, 2, 3})


def test_without_a_certificate_the_silent_miss_and_nobody_owes_a_signature() -> None:
    script = Script.ready(make_terms(expiry=1_000_200))
    net = script.net
    script.train()
    script.say([0, 2])
    net.wait_until(max(net.terms.expiry, net.deadline))
    net.settle_late()
    silent = [HolderId(net.at(Role.VERIFIER, slot, 0).id) for slot in (1, 3)]
    assert net.view.settled[0].silent == 0b1010
    assert [each.holder for each in due(script, KeeperCallKind.PENALISE_MEMBER)] == silent
    for id in silent:
        net.penalise_member(0, id)
    net.wait_until(net.settled[0].ends["audit"])
    assert due(script, KeeperCallKind.PENALISE_MEMBER) == []
    for id in range(1, 5):
        with pytest.raises(Refused):
            net.penalise_member(0, id)


@pytest.mark.parametrize("late", [0, 1])
def test_who_says_nothing_misses_once_votes_are_over(late: int) -> None:
    script = Script.ready()
    net = script.net
    script.train()
    script.say([0, 1, 2])
    net.wait_until(net.votes_end - 1 + late)
    net.settle({0, 1, 2})
    settled_round = net.view.settled[0]
    assert (settled_round.unsigned, settled_round.silent) == (0b1000, late << 3)
    holder = HolderId(net.at(Role.VERIFIER, 3, 0).id)
    missed = [KeeperCall(KeeperCallKind.PENALISE_MEMBER, FIRST, Role.VERIFIER, holder)] * late
    assert due(script, KeeperCallKind.PENALISE_MEMBER) == missed
    if late:
        net.penalise_member(0, holder)
        assert due(script, KeeperCallKind.PENALISE_MEMBER) == []


def test_nobody_misses_a_signature() -> None:
    """The last round's is taken until its AUDIT ends."""
    script = Script.ready(make_terms(rounds=1))
    net = script.net
    script.train()
    script.say()
    net.wait(1)
    net.settle({0, 1, 2})
    assert net.view.phase is Phase.CLOSED
    net.wait_until(net.settled[0].ends["audit"])
    assert net.view.settled[0].unsigned == 0b1000
    assert due(script, KeeperCallKind.PENALISE_MEMBER) == []


def test_an_auditor_without_audit_report_is_absent_and_one_that_left_a_seat_out() -> None:
    script = settled()
    net = script.net
    auditors = script.auditors(0)
    whole = script.body(0, auditors[0])
    kept = len(whole) // 35 > 1
    script.audit_report(0, auditors[0], whole[: 35 if kept else None])
    net.wait_until(net.settled[0].ends["audit"])
    script.open(0, auditors[0])
    net.wait_until(net.settled[0].ends["open"] - 1)
    assert due(script, KeeperCallKind.ABSENT) == []
    net.wait(1)
    absent = {each.holder: each.seat for each in due(script, KeeperCallKind.ABSENT)}
    assert set(absent) == set(auditors[0 if kept else 1 :])
    for id, seat in absent.items():
        left = net.duties(0, id) - ({whole[0]} if id == auditors[0] else set())
        assert seat == min(left)
        net.report_absent(0, id)
    assert due(script, KeeperCallKind.ABSENT) == []


def test_an_auditor_that_is_alone_has_three_excuses_and_pays_from_the_fourth_on() -> None:
    """As the contract has it: from the end of KEYS on, where most keys were shown."""
    script = Script.ready(make_terms(rounds=8, f=0, min_verifiers=1, train_seconds=2_000), slots=1)
    net, penalty = script.net, 0
    auditor = HolderId(net.at(Role.VERIFIER, 0, 0).id)
    bond = net.terms.verifier_bond
    for count in range(1, 5):
        round = RoundIndex(script.honest_round())
        net.wait_until(net.settled[round].ends["open"])
        script.show_keys(round)
        assert due(script, KeeperCallKind.ABSENT) == []
        net.wait_until(net.settled[round].ends["keys"])
        (call,) = due(script, KeeperCallKind.ABSENT)
        assert (call.round, call.holder) == (round, auditor)
        net.report_absent(round, auditor)
        assert due(script, KeeperCallKind.ABSENT) == []
        with pytest.raises(Refused):
            net.report_absent(round, auditor)
        holder = net.view.verifiers[auditor]
        penalty = bond - holder.bond
        assert (penalty > 0) == (count == 4)
    assert len(net.view.miss_record(Role.VERIFIER, VERIFIERS[0]).excuses) == 3
    assert penalty == -(-bond * net.view.params.penalty_bps // 10_000)  # type: ignore[union-attr]


def test_keys_that_are_missing_too_show_a_standstill_which_uses_no_excuse_up() -> None:
    script = Script.ready(make_terms(rounds=8, f=0, min_verifiers=1, train_seconds=2_000), slots=1)
    net = script.net
    auditor = net.at(Role.VERIFIER, 0, 0).id
    for _ in range(5):
        round = script.honest_round()
        net.wait_until(net.settled[round].ends["keys"])
        assert due(script, KeeperCallKind.ABSENT) == []
        with pytest.raises(Refused):
            net.report_absent(round, auditor)
    assert not net.view.miss_record(Role.VERIFIER, VERIFIERS[0]).excuses


def test_a_standstill_in_which_many_rounds_end_is_one_excuse() -> None:
    script = Script.ready(make_terms(rounds=8, f=0, min_verifiers=1, train_seconds=2_000), slots=1)
    net = script.net
    auditor = net.at(Role.VERIFIER, 0, 0).id
    rounds = [script.honest_round() for _ in range(7)]
    apart = net.settled[rounds[-1]].at - net.settled[rounds[0]].at
    assert apart < net.terms.key_seconds
    net.wait_until(net.settled[rounds[-1]].ends["open"])
    for round in rounds:
        script.show_keys(round)
    net.wait_until(net.settled[rounds[-1]].ends["keys"])
    assert len(due(script, KeeperCallKind.ABSENT)) == len(rounds)
    net.report_absent(rounds[3], auditor)
    assert due(script, KeeperCallKind.ABSENT) == []
    assert net.view.verifiers[HolderId(auditor)].bond == net.terms.verifier_bond


def test_a_drawn_seat_without_key_in_time_is_struck_and_not_slashed() -> None:
    script = settled()
    net = script.net
    seat = max(net.settled[0].drawn)
    net.wait_until(net.settled[0].ends["keys"] - 1)
    script.show_keys(0, net.settled[0].drawn - {seat})
    assert due(script, KeeperCallKind.REPORT_MISSING_KEY) == []
    net.wait(1)
    about = (FIRST, Role.PROVIDER, seat_holder(script, seat).id, SeatIndex(seat))
    assert due(script, KeeperCallKind.REPORT_MISSING_KEY) == [
        KeeperCall(KeeperCallKind.REPORT_MISSING_KEY, *about)
    ]
    script.show_keys(0, [seat])
    assert net.view.settled[0].known_key(SeatIndex(seat)) == script.secrets[0, seat][0]
    assert due(script, KeeperCallKind.REPORT_MISSING_KEY) == [
        KeeperCall(KeeperCallKind.REPORT_MISSING_KEY, *about)
    ], "late it scores auditors, and gives nothing back"
    net.report_missing_key(0, seat)
    assert due(script, KeeperCallKind.REPORT_MISSING_KEY) == []
    assert not seat_holder(script, seat).is_slashed
    lost = net.terms.provider_bond - seat_holder(script, seat).bond
    assert net.terms.duty_fee <= lost <= net.terms.provider_bond // 8


def test_another_key_than_the_committed_one_is_none() -> None:
    script = settled()
    net = script.net
    seat = min(net.settled[0].drawn)
    net.wait_until(net.settled[0].ends["keys"] - 1)
    script.show_keys(0, net.settled[0].drawn - {seat})
    net.wait_until(net.settled[0].ends["half"])
    net.show_key(0, seat, digest("another"))
    about = (FIRST, Role.PROVIDER, seat_holder(script, seat).id, SeatIndex(seat))
    assert due(script, KeeperCallKind.REPORT_MISSING_KEY) == [
        KeeperCall(KeeperCallKind.REPORT_MISSING_KEY, *about)
    ]
    net.report_missing_key(0, seat)
    assert due(script, KeeperCallKind.REPORT_MISSING_KEY) == []


def test_a_key_that_is_shown_early_is_a_leak() -> None:
    script = settled()
    net, key = script.net, script.secrets[0, 2][0]
    net.show_key(0, 1, digest("another"))
    assert due(script, KeeperCallKind.LEAK) == []
    net.show_key(0, 2, key)
    about = (FIRST, Role.PROVIDER, seat_holder(script, 2).id, SeatIndex(2))
    assert due(script, KeeperCallKind.LEAK) == [KeeperCall(KeeperCallKind.LEAK, *about)]
    settled_round = net.view.settled[0]
    assert list(leaked_keys(settled_round, net.now)) == [Shown(SeatIndex(2), key)]
    heard = script.secrets[0, 1][0]
    assert key_hash(heard) == settled_round.reveals[SeatIndex(1)].reveal.key_hash
    found = list(leaked_keys(settled_round, net.now, [digest("noise"), heard]))
    assert found == [Shown(SeatIndex(1), heard), Shown(SeatIndex(2), key)]
    assert list(leaked_keys(settled_round, net.settled[0].ends["audit"], [heard])) == []
    net.leak(0, 2, key, WATCHER)
    assert due(script, KeeperCallKind.LEAK) == []
    net.wait_until(net.settled[0].ends["audit"])
    net.show_key(0, 1, heard)
    shown = net.view.settled[0]
    assert shown.known_key(SeatIndex(1)) == shown.key_of(SeatIndex(1)) == heard
    net.wait_until(net.settled[0].ends["window"])
    assert due(script, KeeperCallKind.SETTLE_CONTEST) == []
    assert pay.unpaid(net.terms, net.view.settled[0]) == 8 * net.terms.segment_pay
    (burn,) = due(script, KeeperCallKind.BURN)
    net.burn(burn.round)
    assert net.view.credits == {}


def test_no_digests_of_a_leaked_seat_are_contested() -> None:
    script = settled()
    net = script.net
    auditor = script.auditors(0)[0]
    seat = max(net.duties(0, auditor))
    script.audit_report(0, auditor, script.body(0, auditor)[:-1] + b"\0")
    net.leak(0, seat, script.secrets[0, seat][0], WATCHER)
    net.wait_until(net.settled[0].ends["audit"])
    script.open(0, auditor)
    net.wait_until(net.settled[0].ends["open"])
    assert due(script, KeeperCallKind.CONTEST) == []


def test_digests_are_contested_while_their_seat_stands() -> None:
    script = settled()
    net = script.net
    auditor = script.auditors(0)[0]
    seat = max(net.duties(0, auditor))
    script.audit_report(0, auditor, script.body(0, auditor)[:-1] + b"\0")
    net.wait_until(net.settled[0].ends["audit"])
    script.open(0, auditor)
    net.wait_until(net.settled[0].ends["open"])
    script.show_keys(0)
    about = (FIRST, Role.VERIFIER, HolderId(auditor), SeatIndex(seat))
    assert due(script, KeeperCallKind.CONTEST) == [KeeperCall(KeeperCallKind.CONTEST, *about)]
    net.slash(Role.PROVIDER, seat_holder(script, seat).id, WATCHER)
    assert due(script, KeeperCallKind.CONTEST) == []
    with pytest.raises(Refused):
        net.contest(0, auditor, seat, WATCHER)


def test_a_mismatch_about_who_fell_is_not_dropped() -> None:
    script = settled()
    net = script.net
    auditor = script.auditors(0)[0]
    seat = min(net.duties(0, auditor))
    script.audit_report(0, auditor, script.body(0, auditor, {seat: 1}))
    net.wait_until(net.settled[0].ends["audit"])
    script.open(0, auditor)
    net.wait_until(net.settled[0].ends["half"] - 1)
    assert due(script, KeeperCallKind.DROPPED) == []
    net.wait(1)
    about = (FIRST, Role.VERIFIER, HolderId(auditor), SeatIndex(seat))
    assert due(script, KeeperCallKind.DROPPED) == [KeeperCall(KeeperCallKind.DROPPED, *about)]
    net.slash(Role.PROVIDER, seat_holder(script, seat).id, WATCHER)
    assert due(script, KeeperCallKind.DROPPED) == []


def test_a_mismatch_earns_once_its_seat_has_fallen_and_not_before() -> None:
    script = settled()
    net = script.net
    auditor = script.auditors(0)[0]
    seat = min(net.duties(0, auditor))
    script.audit_report(0, auditor, script.body(0, auditor, {seat: 1}))
    net.wait_until(net.settled[0].ends["audit"])
    script.open(0, auditor)
    member = net.view.verifiers[HolderId(auditor)]
    assert duties_paid(net.view.settled[0], member) == 0
    with pytest.raises(Refused):
        net.prove(0, auditor, seat)
    assert due(script, KeeperCallKind.PROVEN) == []
    net.slash(Role.PROVIDER, seat_holder(script, seat).id, WATCHER)
    about = (FIRST, Role.VERIFIER, HolderId(auditor), SeatIndex(seat))
    assert due(script, KeeperCallKind.PROVEN) == [KeeperCall(KeeperCallKind.PROVEN, *about)]
    net.prove(0, auditor, seat)
    assert due(script, KeeperCallKind.PROVEN) == []
    assert net.view.credits[member.account] == net.terms.duty_fee
    assert duties_paid(net.view.settled[0], member) == 0


def test_every_accusation_that_is_dropped_takes_half_of_what_is_left() -> None:
    script = Script.ready(make_terms(f=0, min_verifiers=1), slots=2)
    net = script.net
    script.honest_round()
    auditor = script.auditors(0)[0]
    seats = sorted(net.duties(0, auditor))
    assert len(seats) == 2
    script.audit_report(0, auditor, script.body(0, auditor, dict.fromkeys(seats, 1)))
    net.wait_until(net.settled[0].ends["audit"])
    script.open(0, auditor)
    net.wait_until(net.settled[0].ends["half"])
    left = net.terms.verifier_bond
    for seat in seats:
        assert seat in [each.seat for each in due(script, KeeperCallKind.DROPPED)]
        net.drop(0, auditor, seat)
        left -= left // 2
        assert net.view.verifiers[HolderId(auditor)].bond == left
        with pytest.raises(Refused):
            net.drop(0, auditor, seat)
    assert due(script, KeeperCallKind.DROPPED) == []


def test_a_key_of_a_stranger_is_not_kept_and_one_before_the_settlement_is_only_known() -> None:
    script = Script.ready()
    net = script.net
    script.train()
    key = script.secrets[0, 2][0]
    holder = net.at(Role.PROVIDER, 2, 0)
    for who, round in ((WATCHER, 0), (holder.account, 1), (holder.account, 0)):
        net.emit(ev.KeyShown(net.job, who, RoundIndex(round), key))
    assert net.view.open is not None and net.view.open.early_keys == {2: key}
    script.say()
    script.settle()
    net.emit(ev.KeyShown(net.job, WATCHER, FIRST, key))
    settled_round = net.view.settled[0]
    assert (settled_round.key_of(SeatIndex(2)), settled_round.known_key(SeatIndex(2))) == (
        None,
        key,
    )
    assert dict(settled_round.keys) == {}
    about = (FIRST, Role.PROVIDER, HolderId(holder.id), SeatIndex(2))
    assert due(script, KeeperCallKind.LEAK) == [KeeperCall(KeeperCallKind.LEAK, *about)]
    net.emit(ev.KeyShown(net.job, holder.account, FIRST, key))
    assert net.view.settled[0].key_of(SeatIndex(2)) is None  # it is the settlement's own block
    net.wait(1)
    net.emit(ev.KeyShown(net.job, holder.account, FIRST, key))
    assert net.view.settled[0].key_of(SeatIndex(2)) == key


def test_an_audit_report_counts_from_the_second_of_the_settlement_on() -> None:
    script = Script.ready()
    net = script.net
    script.train()
    script.say()
    first, second, third = (net.members[1, id].account for id in (1, 2, 3))
    sealed = Digest(bytes([9]) * 32)
    early = ev.AuditReportSealed(net.job, first, FIRST, sealed)
    net.emit(early)
    net.emit(ev.AuditReportSealed(net.job, second, FIRST, sealed))
    net.wait(1)
    again = Digest(bytes([8]) * 32)
    for who, audit_report in ((second, sealed), (second, again), (WATCHER, sealed)):
        net.emit(ev.AuditReportSealed(net.job, who, FIRST, audit_report))
    script.settle()
    net.emit(ev.AuditReportSealed(net.job, third, FIRST, sealed))
    ids = (HolderId(2), HolderId(3))
    assert net.view.settled[0].audit_reports == dict(zip(ids, (again, sealed), strict=True))


def test_a_key_in_the_settlements_block_takes_away_one_that_was_told_there() -> None:
    script = Script.ready(make_terms(f=0, min_providers=2))
    net, seat = script.net, SeatIndex(2)
    script.honest_round()
    key, told = script.secrets[0, seat][0], net.view.settled[0].reveals[seat]
    net.emit(ev.Leaked(net.job, WATCHER, seat, FIRST, key))
    assert net.view.settled[0].key_of(seat) == key
    net.emit(ev.KeyShown(net.job, told.account, FIRST, key))  # at its second, which is too early
    settled_round = net.view.settled[0]
    assert (settled_round.key_of(seat), settled_round.known_key(seat)) == (None, key)
    net.wait_until(net.settled[0].ends["keys"] - 1)
    net.emit(ev.KeyShown(net.job, told.account, FIRST, key))
    assert net.view.settled[0].key_of(seat) == key
    net.wait(1)
    net.emit(ev.KeyShown(net.job, told.account, FIRST, key))  # which is too late
    settled_round = net.view.settled[0]
    assert (settled_round.key_of(seat), settled_round.known_key(seat)) == (None, key)
    assert seat in [each.seat for each in due(script, KeeperCallKind.REPORT_MISSING_KEY)]


def test_a_digest_is_contested_with_a_key_that_was_shown_too_early() -> None:
    script = Script.ready()
    script.honest_round()
    guesser, seat = script.guessed(0)
    view, now = script.net.view, script.net.now
    early = with_settled(view, FIRST, keys={}, early_keys=view.settled[0].keys)
    due_of = [
        [one for one in keeper_calls(v, now) if one.call is KeeperCallKind.CONTEST]
        for v in (view, early)
    ]
    about = (FIRST, Role.VERIFIER, HolderId(guesser), seat)
    assert due_of == [[KeeperCall(KeeperCallKind.CONTEST, *about)]] * 2
    calls = Calls(Deployment(1, 0, dict.fromkeys(REQUIRED, WATCHER)))
    sent = [calls.about(v.settled[0]).contest(seat, HolderId(guesser)) for v in (view, early)]
    assert sent[0] == sent[1]


def test_who_disagreed_is_bound_as_long_as_an_audit_takes() -> None:
    script = Script.ready()
    net = script.net
    net.advance()
    gone = net.at(Role.PROVIDER, 1, 0)
    net.disagree(gone.account)
    at, terms = net.now, net.terms
    holder = net.view.providers[HolderId(gone.id)]
    until = at + terms.audit_seconds + terms.open_seconds
    until += terms.key_seconds + terms.window_seconds
    assert (holder.bound_until, holder.to, holder.missed) == (until, 0, NO_ROUND)
    with pytest.raises(Refused):
        net.join(gone.account, 1)  # with another account, and another bond, at once
    net.wait_until(until - 1)
    assert not is_releasable(net.view, holder, net.now)
    with pytest.raises(Refused):
        net.release(Role.PROVIDER, gone.id)
    net.wait(1)
    assert is_releasable(net.view, holder, net.now)
    net.release(Role.PROVIDER, gone.id)


def test_rounds_are_claimed_when_they_are_final_and_only_where_they_are_worth_it() -> None:
    script = Script.ready()
    net = script.net
    script.train()
    script.say(has=0b0111)
    net.wait(1)
    script.settle()
    script.honest_round()
    assert due(script, KeeperCallKind.CLAIM) == []
    net.wait_until(net.settled[0].ends["window"] - 1)
    assert due(script, KeeperCallKind.CLAIM) == []
    assert burnable_to(net.view, net.now) == 0
    net.wait(1)
    claims = {(each.role, each.holder): each.round for each in due(script, KeeperCallKind.CLAIM)}
    seats = {(Role.PROVIDER, seat_holder(script, seat).id) for seat in range(3)}
    slots = {(Role.VERIFIER, HolderId(net.at(Role.VERIFIER, p, 0).id)) for p in range(4)}
    assert set(claims) == seats | slots and set(claims.values()) == {1}
    assert due(script, KeeperCallKind.BURN) == [KeeperCall(KeeperCallKind.BURN, RoundIndex(1))]
    net.burn(1)
    assert due(script, KeeperCallKind.BURN) == []
    for role, id in claims:
        net.claim(role, id, 1)
    assert due(script, KeeperCallKind.CLAIM) == []


def test_what_a_slash_took_is_claimed_too_so_that_it_burns() -> None:
    script = settled()
    net, id = script.net, seat_holder(script, 1).id
    net.slash(Role.PROVIDER, id, WATCHER)
    net.wait_until(net.settled[0].ends["window"])
    assert (Role.PROVIDER, id) in {
        (each.role, each.holder) for each in due(script, KeeperCallKind.CLAIM)
    }
    assert net.claim(Role.PROVIDER, id, 1) == (0, net.terms.segments * net.terms.segment_pay)


def test_a_bond_goes_home_when_nothing_can_be_asked_of_it() -> None:
    script = settled()
    net = script.net
    held = seat_holder(script, 0)
    assert not is_releasable(net.view, held, net.settled[0].ends["window"] + 10**6)
    net.leave_seat(PROVIDERS[0])
    left = seat_holder(script, 0)
    assert left.to == 2
    script.honest_round()
    assert not is_releasable(net.view, left, net.settled[1].ends["window"] - 1)
    assert is_releasable(net.view, left, net.settled[1].ends["window"])
    assert not is_releasable(net.view, replace(left, is_released=True), 10**9)
    assert not is_releasable(net.view, replace(left, missed=FIRST), 10**9)
    new = replace(held, start=RoundIndex(3), to=RoundIndex(3))
    assert is_releasable(net.view, new, net.now)
    net.wait_until(net.settled[1].ends["window"])
    about = (KeeperCallKind.RELEASE, net.view.round, Role.PROVIDER, left.id)
    assert KeeperCall(*about) in due(script, KeeperCallKind.RELEASE)
    net.release(Role.PROVIDER, left.id)
    assert KeeperCall(*about) not in due(script, KeeperCallKind.RELEASE)


def test_a_seats_missed_duty_is_penalised_and_nobody_elses() -> None:
    script = Script.ready()
    net = script.net
    net.advance()
    for seat in range(3):
        script.commit(seat)
    net.wait_until(net.deadline)
    net.advance()
    missed = seat_holder(script, 3)
    expected = KeeperCall(
        KeeperCallKind.PENALISE_SEAT, missed.missed, Role.PROVIDER, missed.id, SeatIndex(3)
    )
    assert due(script, KeeperCallKind.PENALISE_SEAT) == [expected]
    net.penalise_seat(3)
    assert due(script, KeeperCallKind.PENALISE_SEAT) == []


def test_the_silent_of_a_replaced_committee_draw_are_penalised_before_the_settlement() -> None:
    script = Script.ready()
    net = script.net
    script.train()
    script.say([0])
    net.pass_deadline()
    assert due(script, KeeperCallKind.PENALISE_MEMBER) == [], "most were: nobody misses"
    script.say([0, 1])
    net.pass_deadline()
    assert [each.holder for each in due(script, KeeperCallKind.PENALISE_MEMBER)] == [
        net.at(Role.VERIFIER, slot, 0).id for slot in (2, 3)
    ]
    net.penalise_member(0, net.at(Role.VERIFIER, 2, 0).id)
    assert len(due(script, KeeperCallKind.PENALISE_MEMBER)) == 1
    assert net.view.verifiers[HolderId(net.at(Role.VERIFIER, 2, 0).id)].account == VERIFIERS[2]


def test_a_late_signature_counts_until_the_next_settlement() -> None:
    script = Script.ready()
    net = script.net
    script.train()
    script.say()
    net.wait(1)
    net.settle({0, 1, 2})
    late = net.at(Role.VERIFIER, 3, 0).id
    net.sign(late)
    settled_round = net.view.settled[0]
    assert (settled_round.signers, settled_round.unsigned) == (0b1111, 0)
    holder = net.view.verifiers[HolderId(late)]
    assert pay.verifier_pay(net.terms, settled_round, holder) == net.terms.sign_fee
    script.honest_round()
    assert due(script, KeeperCallKind.PENALISE_MEMBER) == []


def test_an_accounts_part_in_a_job_is_its_newest_that_stands() -> None:
    script = settled()
    net = script.net
    assert net.view.holder_of(WATCHER) is None
    first = seat_holder(script, 0)
    assert net.view.holder_of(PROVIDERS[0]) == first
    net.leave_seat(PROVIDERS[0])
    script.honest_round()
    net.wait_until(net.settled[1].ends["window"])
    net.release(Role.PROVIDER, first.id)
    held = net.view.holder_of(PROVIDERS[0])
    assert held is not None and held.is_released
    net.join(PROVIDERS[0], 0)
    again = net.view.holder_of(PROVIDERS[0])
    assert again is not None and again.id > first.id
    assert net.view.ids_of(PROVIDERS[0], Role.PROVIDER) == {first.id, again.id}
    assert net.view.ids_of(PROVIDERS[0], Role.VERIFIER) == set()


def test_a_advance_is_due_when_a_deadline_or_the_last_moment_is_over() -> None:
    script = Script.ready(make_terms(expiry=1_000_500))
    net = script.net
    assert [each.round for each in due(script, KeeperCallKind.ADVANCE)] == [0]
    net.advance()
    net.wait_until(net.deadline - 1)
    assert due(script, KeeperCallKind.ADVANCE) == []
    net.wait(1)
    assert due(script, KeeperCallKind.ADVANCE) == [KeeperCall(KeeperCallKind.ADVANCE, FIRST)]
    for late in (net.terms.expiry, last_moment(net.terms) - 1, last_moment(net.terms)):
        assert net.view.is_advance_due(late)
    again = Script.ready(make_terms(expiry=1_000_500))
    again.train()
    view, terms = again.net.view, again.net.terms
    assert view.open is not None
    times = (view.open.deadline - 1, view.open.deadline, terms.expiry - 1, terms.expiry)
    assert [view.is_advance_due(when) for when in times] == [False, True, True, False]
    assert [view.is_advance_due(last_moment(terms) + d) for d in (-1, 0)] == [False, True]


def test_a_job_with_too_few_waits_until_it_expires() -> None:
    script = Script.ready(seats=2)
    net = script.net
    assert due(script, KeeperCallKind.ADVANCE) == []
    assert [net.view.is_advance_due(net.terms.expiry + d) for d in (-1, 0)] == [False, True]


def test_a_job_begins_with_as_many_as_it_needs_and_no_more() -> None:
    terms = make_terms(min_providers=3, min_verifiers=2, f=0)
    for seats, slots, begins in ((3, 2, True), (2, 2, False), (3, 1, False)):
        assert (
            bool(due(Script.ready(terms, seats=seats, slots=slots), KeeperCallKind.ADVANCE))
            is begins
        )
