"""Calls that audits make due: absent auditors, keys, leaks, contests, dropped accusations."""

from __future__ import annotations

import pytest
from tests.support.contracts import Refused
from tests.support.identities import digest
from tests.support.manifests import make_terms
from tests.unit.protocol.due_calls import FIRST, due, seat_holder, settled
from tests.unit.protocol.script import VERIFIERS, WATCHER, Script

from atoll.chain.contract_calls import Calls
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.protocol import events as ev
from atoll.protocol import pay
from atoll.protocol.audits import with_settled
from atoll.protocol.checkpoint_commitments import key_hash
from atoll.protocol.keeper_calls import (
    KeeperCall,
    KeeperCallKind,
    Shown,
    keeper_calls,
    leaked_keys,
)
from atoll.protocol.pay import duties_paid
from atoll.protocol.types import (
    Digest,
    HolderId,
    Role,
    RoundIndex,
    SeatIndex,
)


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
