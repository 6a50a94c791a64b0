"""What became of each round: who was there, what was merged, who was audited, what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.manifests import make_terms
from tests.unit.dashboard.jobs import finished, ledger_of, play
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.errors import ConfigError
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.job_update import update_text
from atoll.job.ledger.round_rows import round_rows, safe_round
from atoll.job.ledger.seat_rows import SeatRows
from atoll.job.ledger.text import round_line
from atoll.job.signs import Signs
from atoll.protocol import events as ev
from atoll.protocol.round_list import RoundList
from atoll.protocol.rounds import apply
from atoll.protocol.types import HolderId, Role, RoundIndex, SeatIndex, bits
from atoll.protocol.views import JobView


@pytest.fixture
def two_rounds() -> Script:
    script = Script.ready()
    script.honest_round()
    script.honest_round()
    return script


def rows(
    script: Script, now: int | None = None, view: JobView | None = None
) -> list[dict[str, Any]]:
    """Of a job as it stands, or as it would at another time or with another view."""
    ledger = ledger_of(script)
    ledger.now, ledger.view = now or ledger.now, view or ledger.view
    return round_rows(ledger)


def test_a_round_that_runs_says_who_has_done_what() -> None:
    script = Script.ready()
    assert rows(script) == []
    script.net.advance()
    script.commit(2)
    (running,) = rows(script)
    assert (running["phase"], running["until"]) == ("train", script.net.deadline)
    assert (running["seated"], running["committed"], running["available"]) == (
        [0, 1, 2, 3],
        [2],
        [],
    )
    for seat in (0, 1, 3):
        script.commit(seat)
    script.reveal(0)
    (running,) = rows(script)
    assert (running["phase"], running["revealed"]) == ("reveal", [0])
    for seat in (1, 2, 3):
        script.reveal(seat)
    script.say([0, 1, 2], has=0b0011)
    (running,) = rows(script)
    assert (running["phase"], running["revealed"]) == ("merge", [0, 1, 2, 3])
    assert running["available"] == [0, 1]


def test_a_settled_round_goes_through_its_windows_until_it_is_final() -> None:
    script = Script.ready()
    script.train()
    script.say(has=0b0111)
    script.net.wait(1)
    script.settle(excluded={1})
    settled_round, now = script.net.view.settled[0], script.net.now
    told_then = rows(script, now)
    assert len(told_then) == 2  # the next one trains already
    settled = told_then[0]
    assert (settled["available"], settled["excluded"], settled["merged"]) == ([0, 1, 2], [1], 2)
    assert (settled["drawn"], settled["valid"]) == (bits(settled_round.drawn), [])
    assert settled["paid"] == [0, 1, 2]
    assert settled["model_digest"] == settled_round.verdict.state.hex()
    clock = settled_round.clock
    ends = (clock.audit_end, clock.open_end, clock.keys_end, clock.window_end)
    names = ("audit", "open", "keys", "window")
    for name, end in zip(names, ends, strict=True):
        before, after = (rows(script, at)[0] for at in (end - 1, end))
        assert (before["phase"], before["until"]) == (name, end)
        assert after["phase"] != name
    assert rows(script, ends[-1])[0]["phase"] == "final"


def test_what_was_audited_is_told_by_seat_and_costs_its_fees() -> None:
    script = Script.ready()
    round = script.honest_round()
    before = rows(script)[0]
    script.audit(round)
    after, terms = rows(script)[0], script.net.terms
    assert (after["valid"], after["mismatch"]) == (after["drawn"], [])
    cost = 4 * terms.segments * terms.segment_pay + 4 * terms.sign_fee
    assert before["cost_wei"] == str(cost)
    assert after["cost_wei"] == str(cost + len(after["drawn"]) * terms.duty_fee)
    row = round_line(after, script.net.now)
    drawn = ", ".join(map(str, after["drawn"]))
    assert row["audited"] == f"{drawn}: {drawn} valid"


def test_a_seat_with_a_mismatch_is_not_told_to_be_valid() -> None:
    script = Script.ready(make_terms(rounds=1))
    round = script.honest_round()
    settled_round = script.net.view.settled[round]
    first, *others = script.auditors(round)
    seat = script.net.view.settled[round].duties_of(HolderId(first))[0]
    script.audit_report(round, first, script.body(round, first, {seat: 3}))
    for id in others:
        script.audit_report(round, id)
    script.net.wait_until(settled_round.clock.audit_end)
    for id in script.auditors(round):
        script.open(round, id)
    (settled,) = rows(script)
    assert settled["mismatch"] == [seat]
    assert settled["valid"] == [drawn for drawn in settled["drawn"] if drawn != seat]


def test_slashes_are_told_with_the_rounds_that_they_make_unsafe() -> None:
    script = Script.ready()
    script.honest_round()
    view, block = script.net.view, script.net.block
    holders = {seat: view.settled[0].seats[seat] for seat in view.settled[0].seats}
    texts = []
    assert safe_round(view) is None
    for seat in sorted(holders)[:2]:
        whose = (Role.PROVIDER, holders[seat], RoundIndex(0), 10)
        slashed = ev.HolderSlashed(view.job_id, PROVIDERS[seat], WATCHER, *whose)
        view = apply(view, slashed, block)
        texts.append(update_text(slashed, view))
    assert texts[0] is not None and "borne" not in texts[0]
    assert texts[1] is not None and texts[1].endswith("more were slashed than is borne in rounds 0")
    settled = rows(script, view=view)[0]
    assert (settled["slashed"], settled["is_unsafe"]) == ([0, 1], True)
    assert settled["paid"] == [2, 3]
    with pytest.raises(ConfigError, match="no safe model"):
        safe_round(view)
    assert "unsafe" in str(round_line(settled, script.net.now)["phase"])


def test_a_slash_is_told_with_the_rounds_that_it_taints() -> None:
    script = finished()
    texts = [update_text(event, script.net.view) for event, _ in script.net.log]
    (slash,) = (text for text in texts if text is not None and " is slashed and loses " in text)
    assert slash.endswith("; tainted by work that was found false: rounds 0, 1")
    net = script.net
    net.slash(Role.VERIFIER, net.at(Role.VERIFIER, 1, 0).id, WATCHER)
    text = update_text(net.log[-1][0], net.view)
    assert text is not None and "is slashed" in text and "tainted" not in text


def test_a_settlement_of_what_a_seat_sent_that_was_slashed_meanwhile_is_told_to_be_tainted() -> (
    None
):
    """It was slashed too late to be kept out of the merge."""
    script = Script.ready()
    script.honest_round()
    script.train()
    play(script, 1, WATCHER)
    script.say()
    script.net.wait(1)
    script.settle()
    view = script.net.view
    first, second = (e for e, _ in script.net.log if isinstance(e, ev.Settled))
    text = update_text(second, view)
    assert text is not None
    assert text.endswith("; tainted: seat 3 was merged, and found false before")
    assert [item.tainted for item in Signs.of(view).rounds] == [8, 8]
    seen_then = replace(view, providers={}, settled=RoundList(view.settled[:1]), games={})
    assert "tainted" not in str(update_text(first, seen_then))


def test_a_settlement_that_merged_nothing_is_told_to_move_nothing() -> None:
    script = Script.ready()
    script.train()
    script.say()
    script.net.wait(1)
    script.settle(merged=0)
    event = next(e for e, _ in script.net.log if isinstance(e, ev.Settled))
    text = update_text(event, script.net.view)
    assert text is not None and "no update is merged, so it moves nothing" in text


def test_a_job_goes_on_from_before_its_first_unsafe_round() -> None:
    script = Script.ready()
    for _ in range(2):
        script.honest_round()
    view, block = script.net.view, script.net.block
    for seat in (0, 1):
        holder = view.settled[1].seats[SeatIndex(seat)]
        slashed = ev.HolderSlashed(view.job_id, PROVIDERS[seat], WATCHER, Role.PROVIDER, holder,
                       RoundIndex(1), 10)  # fmt: skip
        view = apply(view, slashed, block)
    assert safe_round(view) == 0


def test_a_settlement_is_told_with_who_is_audited() -> None:
    script = Script.ready()
    script.honest_round()
    event = next(e for e, _ in script.net.log if isinstance(e, ev.Settled))
    view = script.net.view
    for drawn, said in ((0, "no seat is"), (2, "seat 1 is"), (6, "seats 1, 2 are")):
        settled_round = replace(view.settled[0], drawn=drawn)
        text = update_text(event, replace(view, settled=RoundList([settled_round])))
        assert text is not None and text.endswith(f"; {said} audited")
    assert update_text(replace(event, job_id=event.job_id + 1), script.net.view) is None  # type: ignore[arg-type]


def test_who_comes_is_told_with_what_a_job_that_waits_still_lacks() -> None:
    net = Network(make_terms(seats=4, min_providers=2, f=1, min_verifiers=1))
    for seat in range(2):
        net.join(PROVIDERS[seat], seat)
    net.leave_seat(PROVIDERS[1])
    net.enrol(VERIFIERS[0], 0, net.terms.verifier_bond)
    net.say_ready(VERIFIERS[0])
    for seat in range(1, 3):
        net.join(PROVIDERS[seat + 1], seat)
    view, ends = JobView.of(net.domain, net.job), []
    for event, block in net.log:
        view = apply(view, event, block)
        ends.append((update_text(event, view) or "").partition("; so far ")[2])
    assert ends == [
        f"{seats} of 3 seats are held, {ready} of 1 verifiers are ready" if seats < 3 else ""
        for seats, ready in [(0, 0), (1, 0), (2, 0), (1, 0), (1, 0), (1, 1), (2, 1), (3, 1)]
    ]


def test_more_verifiers_than_are_needed_are_not_counted_of_them() -> None:
    waits = JobSnapshot.of(Script.ready(seats=2, slots=3).net.view)
    many = replace(waits, providers=1, enough_providers=3, ready=3, enough_ready=1)
    assert many.lacking == "1 of 3 seats are held, 3 verifiers are ready"


def test_a_round_that_runs_is_not_waited_for() -> None:
    script = Script.ready(seats=3)
    script.net.advance()
    script.net.join(PROVIDERS[3], 3)
    text = update_text(script.net.log[-1][0], script.net.view)
    assert text is not None and "so far" not in text
    assert JobSnapshot.of(script.net.view).lacking == ""


def test_seats_are_told_with_who_trained_and_what_it_is_paid(two_rounds: Script) -> None:
    net = two_rounds.net
    net.slash(Role.PROVIDER, net.at(Role.PROVIDER, 2, 0).id, VERIFIERS[0], 1)
    first, second = (SeatRows(ledger_of(two_rounds), str).of(round) for round in (0, 1))
    # Both windows are open: a slash takes the pay of every round that is not FINAL.
    pay = net.terms.segments * net.terms.segment_pay
    assert [seat.paid_wei for seat in first] == [pay, pay, 0, pay]
    assert [seat.account for seat in second] == PROVIDERS[:4]
    assert {seat.segments for seat in second} == {net.terms.segments}


def test_what_was_committed_is_told_of_settled_rounds_too(two_rounds: Script) -> None:
    first, second, *_ = rows(two_rounds)
    assert first["committed"] == second["committed"] == second["revealed"] == [0, 1, 2, 3]


def test_a_round_that_nobody_took_part_in_is_void() -> None:
    script = Script.ready()
    script.net.advance()
    script.net.pass_deadline()
    (row,) = rows(script)
    assert (row["phase"], row["status"], row["voids"]) == ("void", "void", 1)
    assert row["accusations"] == []
