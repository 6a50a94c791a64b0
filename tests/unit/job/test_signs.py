"""What speaks against a job's models: who was merged and found false, what moved nothing, rises."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.support.identities import digest
from tests.support.manifests import make_terms
from tests.unit.dashboard.jobs import LIAR, finished, play
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.job.signs import RoundSigns, Signs, found_false, listed, merged_seats
from atoll.protocol import events as ev
from atoll.protocol.game_records import bond_set
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.losses import loss_bytes
from atoll.protocol.round_list import RoundList
from atoll.protocol.types import (
    ZERO_DIGEST,
    Bitmap,
    Digest,
    HolderId,
    JobId,
    MissedDuty,
    Role,
    RoundIndex,
    SeatIndex,
)


def rounds(count: int, **terms: int) -> Script:
    """So many settled rounds of four honest seats."""
    script = Script.ready(make_terms(rounds=count + 1, **terms))
    for _ in range(count):
        script.honest_round()
    return script


def lose(script: Script, seat: int, round: int, role: Role = Role.PROVIDER) -> None:
    """A game about what a seat or an auditor said of a round, which its holder loses."""
    net, game = script.net, len(script.net.view.games) + 1
    holder = net.at(role, seat, round)
    claim = Claim(
        holder=holder.account,
        set=bond_set(net.job, role, HolderId(holder.id)),
        position=Digest(bytes(28) + round.to_bytes(4, "big")),
        program=ZERO_DIGEST,
        is_update_proof=False,
        seat=seat,
        round=round,
        segment=2,
        data_seed=net.seed,
        initial_state=net.seed,
    )
    net.emit(ev.Challenged(game, holder.account, WATCHER, 10**19, claim, b""))
    net.emit(ev.Began(game, holder.account))
    net.emit(ev.Ended(game, Outcome.HOLDER_LOST))
    net.slash(role, holder.id, WATCHER, round)


def losses(*values: float) -> list[bytes | None]:
    return [loss_bytes(value) for value in values]


# --- tainted ---


def test_where_nobody_was_slashed_nothing_is_tainted() -> None:
    signs = Signs.of(rounds(3).net.view)
    assert (signs.tainted, signs.clean_before, signs.lines()) == ([], 3, [])
    assert signs.to_json_value()["clean"] is None


def test_who_lost_a_game_taints_every_round_that_merged_it_final_ones_too() -> None:
    script = Script.ready(make_terms(train_seconds=2_000))  # longer than an audit and its window
    script.honest_round()
    script.net.wait_until(script.net.settled[0].ends["window"])
    script.honest_round()
    script.honest_round()
    lose(script, 2, 1)
    view = script.net.view
    (holder,) = (held for held in view.providers.values() if held.is_slashed)
    assert holder.lost_from == 1  # the first round is FINAL, and paid
    signs = Signs.of(view)
    assert signs.tainted == [0, 1, 2]
    assert [item.tainted for item in signs.rounds] == [0b0100] * 3
    assert (signs.clean_before, signs.clean_model) == (0, None)
    assert "is the one that the job began with" in signs.lines()[1]


def test_the_last_clean_model_is_the_one_before_it_was_first_merged() -> None:
    script = Script.ready(make_terms(rounds=5), seats=3)
    script.honest_round()
    script.net.join(PROVIDERS[3], 3)
    for _ in range(2):
        script.honest_round()
    assert 3 not in script.net.view.settled[0].seats
    first = min(
        settled_round.round for settled_round in script.net.view.settled if 3 in settled_round.seats
    )
    lose(script, 3, 2)
    view = script.net.view
    signs = Signs.of(view)
    assert signs.tainted == list(range(first, 3))
    model = view.settled[first - 1].verdict.state
    assert (signs.clean_before, signs.clean_model) == (first, model)
    assert signs.to_json_value()["clean"] == {"before": first, "digest": model.hex()}
    assert f"that after round {first - 1}, {model.hex()}" in signs.lines()[1]
    assert f"`atoll job result {view.job_id} DIR --clean`" in signs.lines()[1]


def test_a_game_about_an_earlier_round_taints_later_ones() -> None:
    view = finished(through_round=1).net.view
    signs = Signs.of(view)
    assert [(item.round, item.tainted) for item in signs.rounds] == [(0, 8), (1, 8)]


def test_two_that_are_slashed_are_both_named() -> None:
    script = rounds(2)
    lose(script, 0, 1)
    lose(script, 3, 0)
    signs = Signs.of(script.net.view)
    assert [item.tainted for item in signs.rounds] == [0b1001, 0b1001]
    assert signs.lines()[0].startswith("rounds 0, 1 are tainted: what seats 0, 3 sent was merged")


def test_a_slash_for_a_key_that_nobody_asked_about_taints_nothing() -> None:
    script = rounds(2)
    holder = script.net.at(Role.PROVIDER, 1, 0)
    script.net.slash(Role.PROVIDER, holder.id, WATCHER, 0)
    assert script.net.view.providers[HolderId(holder.id)].is_slashed
    assert Signs.of(script.net.view).tainted == []


@pytest.mark.parametrize("is_open", [True, False])
def test_who_hides_a_key_to_lose_no_game_taints_all_the_same(is_open: bool) -> None:
    """The game about it is still open, or was sent home since its holder is gone."""
    script = rounds(1)
    play(script, 1, VERIFIERS[0], ends=False)
    liar = script.net.at(Role.PROVIDER, LIAR, 0)
    script.net.slash(Role.PROVIDER, liar.id, WATCHER, 0)
    if not is_open:
        script.net.emit(ev.Ended(1, Outcome.SENT_HOME))
    assert found_false(script.net.view) == {liar.account}
    assert Signs.of(script.net.view).tainted == [0]


def test_who_hides_a_key_from_its_accuser_taints_unless_that_one_does_not_play() -> None:
    script = Script.ready(make_terms(rounds=1))  # whose seats are all audited
    net, round = script.net, script.honest_round()
    for id in script.auditors(round):
        mismatch = {3: 5} if 3 in net.duties(round, id) else None
        script.audit_report(round, id, script.body(round, id, mismatch))
    net.wait_until(net.settled[round].ends["audit"])
    for id in script.auditors(round):
        script.open(round, id)
    net.slash(Role.PROVIDER, net.at(Role.PROVIDER, 3, 0).id, VERIFIERS[0], 0)
    view = net.view
    assert Signs.of(view).tainted == [0]
    (settled_round,) = view.settled
    dropped = frozenset((id, SeatIndex(3)) for id in settled_round.opened_reports)
    other = RoundList([replace(settled_round, dropped=dropped)])
    assert Signs.of(replace(view, settled=other)).tainted == []


def test_who_won_its_game_and_was_slashed_for_a_key_taints_nothing() -> None:
    script = rounds(1)
    play(script, 1, VERIFIERS[0], ends=False)
    script.net.emit(ev.Ended(1, Outcome.CHALLENGER_LOST))
    script.net.slash(Role.PROVIDER, script.net.at(Role.PROVIDER, LIAR, 0).id, WATCHER, 0)
    assert Signs.of(script.net.view).tainted == []


def test_a_missed_duty_taints_nothing() -> None:
    script = rounds(1)
    net = script.net
    holder = net.at(Role.PROVIDER, 2, 0)
    who = (holder.account, Role.PROVIDER, HolderId(holder.id), RoundIndex(0))
    net.emit(ev.Missed(net.job, *who, MissedDuty.KEY, 10))
    assert Signs.of(net.view).tainted == []


def test_an_auditor_that_falls_for_its_valid_entry_taints_nothing() -> None:
    script = rounds(1)
    lose(script, 1, 0, Role.VERIFIER)
    assert any(held.is_slashed for held in script.net.view.verifiers.values())
    assert Signs.of(script.net.view).tainted == []


@pytest.mark.parametrize(
    ("has", "out", "merged"),
    [(0b0111, set(), 3), (0b1111, {3}, 3), (0b1111, set(), 0)],
    ids=["not available", "excluded", "nothing merged"],
)
def test_who_was_not_merged_taints_nothing(has: int, out: set[int], merged: int) -> None:
    script = Script.ready()
    script.train()
    script.say(has=has)
    script.net.wait(1)
    script.settle(out, merged=merged)
    lose(script, 3, 0)
    assert found_false(script.net.view) == {PROVIDERS[3]}
    assert Signs.of(script.net.view).tainted == []


def test_a_short_seat_was_not_merged() -> None:
    script = Script.ready()
    whole = script.net.terms.segments
    script.train({3: whole // 2, 2: whole - 1})
    script.say()
    script.net.wait(1)
    script.settle()
    (settled_round,) = script.net.view.settled
    assert merged_seats(script.net.view, settled_round) == [0, 1, 2]
    lose(script, 3, 0)
    assert Signs.of(script.net.view).tainted == []


def test_a_result_that_was_merged_again_without_them_has_nothing_of_them() -> None:
    script = rounds(1)
    lose(script, 3, 0)
    signs = Signs.of(script.net.view)
    assert signs.merged_again(0, Bitmap(0b1000)).lines() == []
    assert signs.merged_again(0, Bitmap(0b0100)) == signs
    assert signs.merged_again(1, Bitmap(0b1000)) == signs
    assert signs.after(0).lines() == []


# --- what losses say ---


def test_a_round_that_merged_nothing_moved_nothing() -> None:
    script = Script.ready()
    script.honest_round()
    script.train()
    script.say()
    script.net.wait(1)
    script.settle(merged=0)
    signs = Signs.of(script.net.view)
    assert signs.still == [1]
    assert signs.lines() == ["round 1 moved nothing: no update was merged"]


def test_a_merge_after_which_the_loss_is_the_same_to_the_last_bit_moved_nothing() -> None:
    view = rounds(4).net.view
    known = losses(5.5, 5.5, 5.25, math.nextafter(5.25, 0))
    signs = Signs.of(view, known)
    assert signs.still == [0]
    (line,) = signs.lines()
    assert line.startswith("round 0 moved nothing: updates were merged, and the held-out loss")
    assert Signs.of(view, [known[0], None, *known[1:3]]).still == []
    assert Signs.of(view, losses(math.nan, math.nan)).still == []  # it diverged, and may move


def test_a_loss_that_rose_three_times_running_is_a_sign() -> None:
    view = rounds(6).net.view
    assert Signs.of(view, losses(5, 5.1, 5.2, 5.1, 5.2, 5.3)).rising == []
    signs = Signs.of(view, losses(5, 4, 4.1, 4.2, 4.3, 4.4, 4.3))
    assert [item.rises for item in signs.rounds] == [0, 1, 2, 3, 4, 0]
    assert signs.rising == [(1, 4)]
    assert signs.lines() == ["the held-out loss rose 4 times running, in rounds 1 to 4"]
    assert [bool(item.text()) for item in signs.rounds] == [False, False, False, True, True, False]
    assert signs.to_json_value()["rose"] == [{"from": 1, "to": 4}]


def test_a_loss_that_is_not_known_or_the_same_ends_a_rise() -> None:
    view = rounds(6).net.view
    a, b, c, d = losses(1, 2, 3, 4)
    assert Signs.of(view, [a, b, None, c, d]).rising == []
    assert Signs.of(view, [a, b, c, c, d]).rising == []
    assert Signs.of(view, [a, b, c, d]).rising == [(0, 2)]


def test_a_model_that_diverges_gets_worse() -> None:
    view = rounds(4).net.view
    assert Signs.of(view, losses(5, 6, 7, math.nan)).rising == [(0, 2)]
    assert Signs.of(view, losses(5, math.nan, math.nan, math.nan)).rising == [(0, 2)]
    assert Signs.of(view, losses(math.nan, 5, 6, 7)).rising == []


def test_losses_beyond_the_settled_rounds_are_not_needed() -> None:
    assert Signs.of(Script.ready().net.view, losses(5)).rounds == ()


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([4], "4"), ([1, 2], "1, 2"), ([0, 1, 2, 5, 7, 8, 9], "0 to 2, 5, 7 to 9")],
)
def test_rounds_are_listed_shortly(numbers: list[int], text: str) -> None:
    assert listed(numbers) == text


def test_two_rises_are_told_apart() -> None:
    found = tuple(
        RoundSigns(r, digest(f"model {r}"), 4, rises=n) for r, n in enumerate([1, 2, 3, 0, 1, 2, 3])
    )
    assert Signs(JobId(1), found).rising == [(0, 2), (4, 6)]
