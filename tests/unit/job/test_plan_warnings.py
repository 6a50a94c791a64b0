"""What a quote says of a planned job, and warns of."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.support.jobs import PLAIN
from tests.unit.job.plans import NANO, PACE, completed, cost, warnings_of
from tests.unit.job.test_spec import DATA, NOW, NUMERICS

from atoll.errors import ManifestError
from atoll.job.draft import Draft
from atoll.job.plan import (
    BondFloors,
    complete,
    drawn_seats,
    filled,
)
from atoll.job.presets import PRESETS
from atoll.job.quote import quote
from atoll.job.quote_report import report
from atoll.job.quote_warnings import _replayed
from atoll.protocol.certificates import is_enough
from atoll.protocol.types import TOKEN
from atoll.service.pace import EVALUATED_PART
from atoll.train.corpus.options import PUBLIC_NOTICE


def test_a_quote_agrees_with_the_manifest() -> None:
    spec, figures = complete(NANO, PACE)
    draft = Draft("key", spec, spec.resolve(DATA, None, NUMERICS, NOW), figures, PACE)
    look = quote(draft, PACE, fee_cap=10**9)
    assert look.budget_wei == cost(spec) == look.training_wei + look.fees_wei
    assert look.gas_wei == look.gas * 10**9
    assert 0 < look.seconds_expected < look.seconds_at_most
    assert [role.name for role in look.roles] == ["submitter", "provider", "verifier"]
    assert all(min(r.down, r.up, r.memory, r.disk) > 0 for r in look.roles)
    text = report(draft, look)
    assert "windows.train" in text
    assert PUBLIC_NOTICE in text
    noted = replace(draft, notes=("half of it is unknown",))
    assert "warning: half of it is unknown" in report(noted, quote(noted, PACE, fee_cap=1))


def test_a_quote_says_what_is_left_of_an_update_and_warns_where_it_is_little() -> None:
    spec, figures = complete(NANO, PACE)
    draft = Draft("key", spec, spec.resolve(DATA, None, NUMERICS, NOW), figures, PACE)
    for kept, warned in ((0.8, False), (0.79, True), (0.0, True)):
        look = quote(draft, replace(PACE, kept=kept), fee_cap=1)
        assert look.kept_share == kept
        assert any("squared length" in warning for warning in look.warnings) == warned
        assert f"updates    {kept:.0%} of a first one's squared length" in report(draft, look)
    unasked = quote(draft, replace(PACE, kept=None), fee_cap=1)
    assert "squared length" not in report(draft, unasked)


def test_a_quote_says_when_pay_and_result_are_final() -> None:
    draft = Draft("key", PLAIN, PLAIN.resolve(DATA, None, NUMERICS, NOW), (), PACE)
    look = quote(draft, PACE, fee_cap=1)
    # audit, open, key, window; 4 seats audited by 2 verifiers take 2 audits
    assert look.pay_final_seconds == 100 + 30 + 30 + 400
    assert look.result_final_seconds == 2 * 100 + 30 + 30 + 400
    text = report(draft, look)
    assert "1m to train, 30s to reveal, 40s to merge at most" in text
    assert "9m20s after a round is settled its pay, 11m after the last one the result" in text
    assert "2m30s of each side and 5s a move: 8m20s at most for one" in text


def test_a_window_or_a_lifetime_that_this_machine_does_not_keep_is_said() -> None:
    trains = 50 * 2 + 10 * 0.5
    lasts = 8 * (trains + 2 + 4 * 12)  # with merges and blocks
    replays = 2 * trains  # of 4 seats, by chance, each of 2 verifiers
    enoughs = (("windows.train", trains), ("windows.audit", replays), ("lifetime", lasts))
    for path, enough in enoughs:
        assert f"{path} is " in warnings_of({path: int(enough) - 1})
        assert f"{path} is " not in warnings_of({path: int(enough)})
        assert f"{path} is " not in warnings_of({})


def test_a_line_that_brings_no_update_in_time_is_said() -> None:
    slow = {"windows.megabits": 1}  # 80 s for an update of ten million bytes
    reveal = {"windows.reveal": 20, "windows.merge": 76}
    assert "three quarters of windows.merge are 1m17s" in warnings_of(slow | reveal)
    assert "three quarters of windows.merge" not in warnings_of(
        slow | reveal | {"windows.merge": 80}
    )
    assert "three quarters of windows.merge" not in warnings_of(slow | {"members.seats": 1})


def test_who_can_keep_a_small_committee_from_signing_is_trusted_to_be_there() -> None:
    for members in range(1, 33):
        is_said = f"it can begin with {members} of" in warnings_of(
            {"members.slots": 32, "members.min_verifiers": members}
        )
        assert is_said != is_enough(members - 2, members)


def simulated(reset_period: int, verifiers: int) -> float:
    """Rounds run for a duty, where one of so many audits a seat in each round of many reset
    periods.
    """
    draw, ran, duties = random.Random(0), 0, 0
    for _ in range(4_000):
        kept = [0] * verifiers
        for done in range(1, reset_period + 1):
            auditor = draw.randrange(verifiers)
            ran, duties = ran + done - kept[auditor], duties + 1
            kept[auditor] = done
    return ran / duties


@pytest.mark.parametrize(("reset_period", "verifiers"), [(64, 10), (64, 100), (8, 4), (1, 3)])
def test_who_audits_a_seat_again_goes_on_from_there(reset_period: int, verifiers: int) -> None:
    assert _replayed(reset_period, 1 / verifiers) == pytest.approx(
        simulated(reset_period, verifiers), rel=0.02
    )


def test_verifiers_that_fall_behind_from_round_to_round_are_said() -> None:
    """32 seats of 2.5 s each are more than a round of 67 s has for one who replays all of them."""
    many = {"members.seats": 32, "members.slots": 40, "rounds": 10_000}
    steps = many | {"method.name": "demo"}
    assert "fewer than 10 verifiers fall behind" in warnings_of(steps)
    assert "fall behind" in warnings_of(steps | {"members.min_verifiers": 11})  # a shorter window
    assert "fall behind" not in warnings_of(steps | {"members.min_verifiers": 12})
    # One machine keeps up with half of the seats; what waits at the end fits into its window.
    for less in ({"members.seats": 16}, {"method.reset_period": 1}, {"rounds": 16}):
        assert "fall behind" not in warnings_of(steps | less)
    assert "fewer than 10 verifiers fall behind" in warnings_of(many)


def test_bonds_that_deter_nobody_are_said() -> None:
    spec = completed({})
    assert "deter nobody" not in warnings_of({})
    weak = {"money.provider_bond": (spec.money.provider_bond or 0) // 1000}
    assert "leaving out a round's work saves up to" in warnings_of(weak)
    manifest = spec.resolve(DATA, None, NUMERICS, NOW)
    draft = Draft("key", spec, manifest, (), PACE, floors=BondFloors(winner_share_bps=10_000))
    look = quote(draft, PACE, 1)
    assert look.deterred_wei < 0 == look.cheat_cost_wei  # who wins takes all, and may be the cheat
    assert "\ndeters" not in report(draft, look)


def test_a_report_says_what_bonds_deter_and_what_permanent_cheats_pay() -> None:
    spec = completed({})
    draft = Draft("key", spec, spec.resolve(DATA, None, NUMERICS, NOW), (), PACE)
    text = report(draft, quote(draft, PACE, 1))
    assert "deters     a false round is found with" in text
    assert "cheating   a seat that lies in every round lasts 3 rounds; 1 permanent cheat" in text
    assert "docs/attacks.md" in text


def test_a_quote_says_whom_so_few_members_trust() -> None:
    many = {"members.seats": 16, "members.slots": 20, "members.min_verifiers": 6}
    assert warnings_of(many) == ""
    assert "one seat can move the model" in warnings_of(many | {"members.seats": 3})
    assert "one seat can move the model" in warnings_of(many | {"method.codec": "fp32"})
    for method in ("sparseloco", "demo"):
        assert "one seat can move the model" in warnings_of(many | {"method.name": method})


def test_rounds_that_no_network_takes_are_refused_in_numbers() -> None:
    spec, _ = complete(NANO, replace(PACE, step_seconds=40_000.0))
    with pytest.raises(ManifestError, match=r"windows of [0-9]+ s, above 5184000"):
        spec.resolve(DATA, None, NUMERICS, NOW)


@pytest.mark.parametrize("name", ["nano", "gpt2-small", "llama-1b"])
def test_a_job_can_be_timed_before_anything_is_computed(name: str) -> None:
    data = DATA.model_copy(update={"dtype": "uint16"})
    for changes in ({}, {"windows.game": 900}, {"windows.window": 7}):
        filled(PRESETS[name].but(changes)).resolve(data, None, NUMERICS, NOW)


def test_who_bears_nobody_audits_everybody() -> None:
    for changes in ({"members.seats": 3}, {"method.codec": "fp32"}):
        spec = completed({"money.budget": TOKEN, **changes})
        assert drawn_seats(spec) == spec.members.seats
        assert 0.99 * TOKEN < cost(spec) <= TOKEN


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"windows.move": 59}, "move window 59 s < 60 s"),
        ({"windows.game": 599}, "game window 599 s < 600 s"),
        ({"money.duty_fee": 0}, "pays 0 wei a replay"),
        ({"windows.audit": 259_200, "lifetime": "1800d"}, "may lock bonds for "),
    ],
)
def test_what_members_refuse_by_themselves_is_said_before_it_is_paid_for(
    changes: dict[str, object], why: str
) -> None:
    assert "members refuse such a job by themselves" not in warnings_of({})
    assert f"members refuse such a job by themselves: {why}" in warnings_of(changes)


def test_the_loss_of_many_batches_has_its_time_in_the_merge() -> None:
    """Which a submitter chooses, and a verifier's machine pays for."""
    few, many = (completed({"evaluate.batches": count}) for count in (0, 1000))
    added = 1000 * EVALUATED_PART * 3 * PACE.step_seconds
    assert (many.windows.merge or 0) - (few.windows.merge or 0) >= added
