"""What became of each round: who was there, what was merged, who was audited, what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.manifests import make_terms
from tests.unit.dashboard.jobs import finished, play
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.errors import ConfigError
from atoll.job.event_text import JobSnapshot, told
from atoll.job.signs import Signs
from atoll.job.story import RoundStory, safe_round, tell_rounds
from atoll.protocol import events as ev
from atoll.protocol.rounds import apply
from atoll.protocol.views import JobView
from atoll.protocol.words import HolderId, Role, RoundIndex, SeatIndex, bits, to_bitmap


def story(script: Script) -> list[RoundStory]:
    return tell_rounds(script.net.view, script.net.now)


def test_a_round_that_runs_says_who_has_done_what() -> None:
    script = Script.ready()
    assert story(script) == []
    script.net.advance()
    script.commit(2)
    (running,) = story(script)
    assert (running.phase, running.until) == ("train", script.net.deadline)
    assert (running.seated, running.done, running.had) == (0b1111, 0b0100, 0)
    for seat in (0, 1, 3):
        script.commit(seat)
    script.reveal(0)
    (running,) = story(script)
    assert (running.phase, running.done) == ("reveal", 0b0001)
    for seat in (1, 2, 3):
        script.reveal(seat)
    script.say([0, 1, 2], has=0b0011)
    (running,) = story(script)
    assert (running.phase, running.done, running.had) == ("merge", 0b1111, 0b0011)


def test_a_settled_round_goes_through_its_windows_until_it_is_final() -> None:
    script = Script.ready()
    script.train()
    script.say(has=0b0111)
    script.net.wait(1)
    script.settle(excluded={1})
    past, now = script.net.view.settled[0], script.net.now
    told_then = tell_rounds(script.net.view, now)
    assert len(told_then) == 2  # the next one trains already
    settled = told_then[0]
    assert (settled.had, settled.excluded, settled.merged) == (0b0111, 0b0010, 2)
    assert (settled.drawn, settled.fine, settled.paid) == (past.drawn, 0, 0b0111)
    assert settled.model == past.verdict.state.hex()
    clock = past.clock
    ends = (clock.audit_end, clock.open_end, clock.keys_end, clock.window_end)
    names = ("audit", "open", "keys", "window")
    for name, end in zip(names, ends, strict=True):
        before, after = (tell_rounds(script.net.view, at)[0] for at in (end - 1, end))
        assert (before.phase, before.until) == (name, end)
        assert after.phase != name
    assert tell_rounds(script.net.view, ends[-1])[0].phase == "final"


def test_what_was_audited_is_told_by_seat_and_costs_its_fees() -> None:
    script = Script.ready()
    round = script.honest_round()
    before = story(script)[0]
    script.audit(round)
    after, terms = story(script)[0], script.net.terms
    assert (after.fine, after.differs) == (after.drawn, 0)
    assert after.cost_wei - before.cost_wei == after.drawn.bit_count() * terms.duty_fee
    assert before.cost_wei == (4 * terms.segments * terms.segment_pay + 4 * terms.sign_fee)
    row = after.row(script.net.now)
    assert row["audited"] == f"{', '.join(map(str, bits(after.drawn)))}: " + (
        f"{', '.join(map(str, bits(after.drawn)))} fine"
    )


def test_a_seat_that_differs_is_not_told_to_be_fine() -> None:
    script = Script.ready(make_terms(rounds=1))
    round = script.honest_round()
    past = script.net.view.settled[round]
    first, *others = script.auditors(round)
    seat = script.net.view.settled[round].duties_of(HolderId(first))[0]
    script.audit_report(round, first, script.body(round, first, {seat: 3}))
    for id in others:
        script.audit_report(round, id)
    script.net.wait_until(past.clock.audit_end)
    for id in script.auditors(round):
        script.open(round, id)
    (settled,) = story(script)
    assert settled.differs == 1 << seat
    assert settled.fine == settled.drawn & ~settled.differs


def test_falls_are_told_with_the_rounds_that_they_make_unsafe() -> None:
    script = Script.ready()
    script.honest_round()
    view, block = script.net.view, script.net.block
    holders = {seat: view.settled[0].seats[seat] for seat in view.settled[0].seats}
    texts = []
    assert safe_round(view) is None
    for seat in sorted(holders)[:2]:
        fell = ev.Fell(view.job_id, PROVIDERS[seat], WATCHER, Role.PROVIDER, holders[seat],
                       RoundIndex(0), 10)  # fmt: skip
        view = apply(view, fell, block)
        texts.append(told(fell, view))
    assert texts[0] is not None and "borne" not in texts[0]
    assert texts[1] is not None and texts[1].endswith("more fell than is borne in rounds 0")
    settled = tell_rounds(view, script.net.now)[0]
    assert (settled.fell, settled.is_unsafe) == (0b0011, True)
    assert settled.paid == to_bitmap(seat for seat in (2, 3))
    with pytest.raises(ConfigError, match="no safe model"):
        safe_round(view)
    assert "unsafe" in str(settled.row(script.net.now)["phase"])


def test_a_fall_is_told_with_the_rounds_that_it_taints() -> None:
    script = finished()
    texts = [told(event, script.net.view) for event, _ in script.net.log]
    (fall,) = (text for text in texts if text is not None and " falls and loses " in text)
    assert fall.endswith("; tainted by work that was found false: rounds 0, 1")
    net = script.net
    net.fall(Role.VERIFIER, net.at(Role.VERIFIER, 1, 0).id, WATCHER)
    text = told(net.log[-1][0], net.view)
    assert text is not None and "falls" in text and "tainted" not in text


def test_a_settlement_of_what_a_seat_sent_that_fell_meanwhile_is_told_to_be_tainted() -> None:
    """It fell too late to be kept out of the merge."""
    script = Script.ready()
    script.honest_round()
    script.train()
    play(script, 1, WATCHER)
    script.say()
    script.net.wait(1)
    script.settle()
    view = script.net.view
    first, second = (e for e, _ in script.net.log if isinstance(e, ev.Settled))
    text = told(second, view)
    assert text is not None
    assert text.endswith("; tainted: seat 3 was merged, and found false before")
    assert [item.tainted for item in Signs.of(view).rounds] == [8, 8]
    seen_then = replace(view, providers={}, settled=view.settled[:1], games={})
    assert "tainted" not in str(told(first, seen_then))


def test_a_settlement_that_merged_nothing_is_told_to_move_nothing() -> None:
    script = Script.ready()
    script.train()
    script.say()
    script.net.wait(1)
    script.settle(merged=0)
    event = next(e for e, _ in script.net.log if isinstance(e, ev.Settled))
    text = told(event, script.net.view)
    assert text is not None and "no update is merged, so it moves nothing" in text


def test_a_job_goes_on_from_before_its_first_unsafe_round() -> None:
    script = Script.ready()
    for _ in range(2):
        script.honest_round()
    view, block = script.net.view, script.net.block
    for seat in (0, 1):
        holder = view.settled[1].seats[SeatIndex(seat)]
        fell = ev.Fell(view.job_id, PROVIDERS[seat], WATCHER, Role.PROVIDER, holder,
                       RoundIndex(1), 10)  # fmt: skip
        view = apply(view, fell, block)
    assert safe_round(view) == 0


def test_a_settlement_is_told_with_who_is_audited() -> None:
    script = Script.ready()
    script.honest_round()
    event = next(e for e, _ in script.net.log if isinstance(e, ev.Settled))
    view = script.net.view
    for drawn, said in ((0, "no seat is"), (2, "seat 1 is"), (6, "seats 1, 2 are")):
        past = replace(view.settled[0], drawn=drawn)
        text = told(event, replace(view, settled=(past,)))
        assert text is not None and text.endswith(f"; {said} audited")
    assert told(replace(event, job_id=event.job_id + 1), script.net.view) is None  # type: ignore[arg-type]


def test_who_comes_is_told_with_what_a_job_that_waits_still_lacks() -> None:
    net = Network(make_terms(seats=4, min_providers=2, f=1, min_verifiers=1))
    for seat in range(2):
        net.sit(PROVIDERS[seat], seat)
    net.leave_seat(PROVIDERS[1])
    net.enrol(VERIFIERS[0], 0, net.terms.verifier_bond)
    net.say_ready(VERIFIERS[0])
    for seat in range(1, 3):
        net.sit(PROVIDERS[seat + 1], seat)
    view, ends = JobView.of(net.domain, net.job), []
    for event, block in net.log:
        view = apply(view, event, block)
        ends.append((told(event, view) or "").partition("; so far ")[2])
    assert ends == [
        f"{seats} of 3 seats are held, {ready} of 1 verifiers are ready" if seats < 3 else ""
        for seats, ready in [(0, 0), (1, 0), (2, 0), (1, 0), (1, 0), (1, 1), (2, 1), (3, 1)]
    ]


def test_more_verifiers_than_are_needed_are_not_counted_of_them() -> None:
    waits = JobSnapshot.of(Script.ready(seats=2, places=3).net.view)
    many = replace(waits, providers=1, enough_providers=3, ready=3, enough_ready=1)
    assert many.lacking == "1 of 3 seats are held, 3 verifiers are ready"


def test_a_round_that_runs_is_not_waited_for() -> None:
    script = Script.ready(seats=3)
    script.net.advance()
    script.net.sit(PROVIDERS[3], 3)
    text = told(script.net.log[-1][0], script.net.view)
    assert text is not None and "so far" not in text
    assert JobSnapshot.of(script.net.view).lacking == ""


def test_json_has_lists_and_amounts_as_text() -> None:
    script = Script.ready()
    script.honest_round()
    plain = story(script)[0].to_plain()
    assert plain["seated"] == [0, 1, 2, 3]
    assert plain["cost_wei"] == str(story(script)[0].cost_wei)
