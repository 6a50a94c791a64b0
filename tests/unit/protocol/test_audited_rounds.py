"""Rounds behind their settlement: audits, accusations, slashes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.contracts import Refused, bitmap
from tests.support.identities import digest
from tests.support.manifests import make_terms
from tests.unit.protocol.owing import calls, owed
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.protocol import events as ev
from atoll.protocol import pay
from atoll.protocol.audit_reports import AuditEntry, AuditReport
from atoll.protocol.game_records import GameRecord, bond_set, pay_position
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.keeper_calls import KeeperCallKind, keeper_calls
from atoll.protocol.obligations import Duty, obligations_of
from atoll.protocol.rounds import apply
from atoll.protocol.types import (
    MissedDuty,
    Role,
    RoundIndex,
    SeatIndex,
)


def test_an_audit_owes_audit_report_opening_and_key_in_their_windows() -> None:
    script = Script.ready()
    net = script.net
    round = script.honest_round()
    clock, ends = net.view.settled[round].clock, net.settled[round].ends
    auditor = script.auditors(round)[0]
    who = net.member(Role.VERIFIER, auditor).account
    assert (Duty.AUDIT_REPORT, clock.audit_end) in owed(script, who)
    script.audit_report(round, auditor)
    assert Duty.AUDIT_REPORT not in dict(owed(script, who))
    net.wait_until(ends["audit"])
    assert (Duty.OPEN, clock.open_end) in owed(script, who)
    script.open(round, auditor)
    net.wait_until(ends["open"])
    seat = min(net.settled[round].drawn)
    holder = script.net.at(Role.PROVIDER, seat, round).account
    assert (Duty.KEY, clock.keys_end) in owed(script, holder)
    net.wait_until(ends["keys"])
    assert (Duty.KEY, clock.window_end) in owed(script, holder)
    assert KeeperCallKind.REPORT_MISSING_KEY in calls(script)
    script.show_keys(round, [seat])
    assert Duty.KEY not in dict(owed(script, holder))
    assert KeeperCallKind.REPORT_MISSING_KEY in calls(script), "late it gives nothing back"


def test_an_audit_report_sealed_too_late_takes_the_first_away() -> None:
    script = Script.ready()
    net = script.net
    round = script.honest_round()
    auditor = script.auditors(round)[0]
    script.audit_report(round, auditor)
    net.wait_until(net.settled[round].ends["audit"])
    net.audit_report(round, auditor, digest("another"))
    assert auditor not in net.view.settled[round].audit_reports
    with pytest.raises(Refused):
        script.open(round, auditor)


def test_what_is_said_of_no_seat_or_slot_of_the_speaker_changes_nothing() -> None:
    script = Script.ready()
    net, job = script.net, script.net.job
    key, audit_report, far = digest("key"), digest("audit_report"), RoundIndex(9)
    early = apply(net.view, ev.KeyShown(job, PROVIDERS[0], RoundIndex(0), key), net.block)
    assert early == replace(net.view, block=net.block)  # no round is open
    settled_round, running = RoundIndex(script.honest_round()), net.view.round
    net.wait(1)
    for event in (
        ev.AuditReportSealed(job, WATCHER, settled_round, audit_report),
        ev.AuditReportSealed(job, VERIFIERS[0], far, audit_report),
        ev.KeyShown(job, WATCHER, settled_round, key),
        ev.KeyShown(job, WATCHER, running, key),
        ev.KeyShown(job, PROVIDERS[0], far, key),
    ):
        assert apply(net.view, event, net.block) == replace(net.view, block=net.block)


def test_wrong_digests_cost_the_fee_and_half_of_it_is_the_contesters() -> None:
    script = Script.ready()
    net = script.net
    round = script.honest_round()
    settled_round = net.settled[round]
    auditor = script.auditors(round)[0]
    script.audit_report(round, auditor, script.body(round, auditor)[:-1] + b"\0")
    net.wait_until(settled_round.ends["audit"])
    script.open(round, auditor)
    net.wait_until(settled_round.ends["open"])
    script.show_keys(round)
    wrong = [
        each for each in keeper_calls(net.view, net.now) if each.call is KeeperCallKind.CONTEST
    ]
    assert [(each.holder, each.seat) for each in wrong] == [
        (auditor, max(net.duties(round, auditor)))
    ]
    net.contest(round, auditor, wrong[0].seat, WATCHER)
    holder = net.view.verifiers[wrong[0].holder]
    body = net.view.settled[round].opened_reports[holder.id]
    assert pay.duties_paid(net.view.settled[round], holder) == len(body.entries) - 1
    net.wait_until(settled_round.ends["window"])
    assert KeeperCallKind.SETTLE_CONTEST in calls(script)
    net.settle_contest(round, auditor, wrong[0].seat)
    assert WATCHER not in net.view.credits
    assert (round, MissedDuty.DIGEST) in net.view.verifiers[holder.id].penalties


def test_a_mismatch_is_owed_a_challenge_and_leaves_its_seat_out() -> None:
    script = Script.ready()
    net = script.net
    round = script.honest_round()
    ends = net.settled[round].ends
    auditor = script.auditors(round)[0]
    seat = min(net.duties(round, auditor))
    script.audit_report(round, auditor, script.body(round, auditor, {seat: 2}))
    net.wait_until(ends["audit"])
    script.open(round, auditor)
    who = net.member(Role.VERIFIER, auditor).account
    found = obligations_of(net.view, who, net.now)
    accusation = next(each for each in found if each.duty is Duty.CHALLENGE)
    assert (accusation.seats, accusation.at) == ((seat,), 2)
    assert accusation.until == net.view.settled[round].clock.half
    assert net.view.accused(net.now) == {net.view.settled[round].seats[SeatIndex(seat)]}
    net.wait_until(ends["half"])
    assert net.view.accused(net.now) == set()
    assert KeeperCallKind.DROPPED in calls(script)


def test_a_mismatch_stands_as_long_as_its_game_is_open_and_no_longer() -> None:
    script = Script.ready()
    net = script.net
    round = script.honest_round()
    ends = net.settled[round].ends
    auditor = script.auditors(round)[0]
    seat = min(net.duties(round, auditor))
    script.audit_report(round, auditor, script.body(round, auditor, {seat: 2}))
    net.wait_until(ends["audit"])
    script.open(round, auditor)
    about = net.view.settled[round].seats[SeatIndex(seat)]
    claim = Claim(
        holder=net.view.providers[about].account,
        set=bond_set(net.view.job_id, Role.PROVIDER, about),
        position=pay_position(net.view.job_id, Role.PROVIDER, about, round),
        program=digest("program"),
        is_update_proof=False,
        seat=seat,
        round=round,
        segment=2,
        data_seed=digest("seed"),
        initial_state=digest("opening"),
    )
    game = GameRecord(1, net.member(Role.VERIFIER, auditor).account, 1, claim, b"")
    played = replace(net.view, games={1: game})
    ended = replace(net.view, games={1: replace(game, outcome=Outcome.CHALLENGER_LOST)})
    for when in (ends["audit"], ends["half"], ends["window"] + 1):
        assert played.accused(when) == {about}
        assert ended.accused(when) == set()


def test_who_is_accused_when_merge_opens_is_accused_in_the_merge() -> None:
    script = Script.ready(make_terms(train_seconds=1_000, audit_seconds=50))
    net = script.net
    round = script.honest_round()
    ends = net.settled[round].ends
    auditor = script.auditors(round)[0]
    seat = min(net.duties(round, auditor))
    lie = AuditEntry(SeatIndex(seat), 0, digest("own"))
    script.audit_report(round, auditor, AuditReport((lie,)).to_bytes())
    net.wait_until(ends["audit"])
    script.open(round, auditor)
    script.train()
    running = net.view.open
    assert running is not None and running.accused == bitmap({seat})
    assert running.merge_record.accused == running.accused


def test_a_slash_takes_what_is_not_final_and_it_is_burnt_by_the_claim() -> None:
    script = Script.ready()
    net = script.net
    for _ in range(2):
        round = script.honest_round()
    slashed = net.at(Role.PROVIDER, 1, 0).id
    net.slash(Role.PROVIDER, slashed, WATCHER)
    holder = net.view.providers[slashed]  # type: ignore[index]
    assert (holder.bond, holder.lost_from) == (0, 0)
    net.wait_until(net.settled[round].ends["window"])
    whole = net.terms.segments * net.terms.segment_pay
    to = pay.claimable_to(net.view, holder, net.now)
    assert pay.claim(net.view, holder, to) == (0, 2 * whole)
    honest = net.view.providers[net.at(Role.PROVIDER, 0, 0).id]  # type: ignore[index]
    assert pay.claimable(net.view, honest, net.now) == 2 * whole
