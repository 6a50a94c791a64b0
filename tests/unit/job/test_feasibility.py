"""Whether a machine keeps up with a job: each limit is just kept, and just missed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from tests.support.manifests import make_manifest, make_terms

from atoll.errors import ConfigError
from atoll.job.feasibility import Feasibility, Requirement, feasibility_of
from atoll.job.feasibility_trial import pace_of
from atoll.job.role_needs import member_needs, round_seconds
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import TOKEN
from atoll.service.needs import Machine
from atoll.service.pace import Pace

MANIFEST = make_manifest()
PACE = Pace(0.5, 0.25, 200_000, 200_000, 400_000)
LARGE = Machine(1 << 40, 1 << 40)
STEPS = 40 * 0.5 + 8 * 0.25
"""Seconds of a round's steps and segments."""


def check(found: Feasibility, name: str) -> Requirement:
    (one,) = [check for check in found.checks if check.name == name]
    return one


def with_terms(**changes: int) -> Manifest:
    terms = make_terms(**changes)
    return MANIFEST.model_copy(update={"terms": terms})


def test_a_round_is_its_steps_and_its_segments() -> None:
    found = feasibility_of("provider", MANIFEST, PACE, LARGE)
    assert (found.round_seconds, check(found, "train").needed) == (STEPS, STEPS)
    assert found.fits
    assert found.lines()[-1] == "fits"


@pytest.mark.parametrize(("window", "level"), [(22, "tight"), (21, "no"), (30, "ok")])
def test_training_has_to_fit_its_window(window: int, level: str) -> None:
    found = feasibility_of("provider", with_terms(train_seconds=window), PACE, LARGE)
    assert check(found, "train").level == level
    assert found.fits == (level != "no")
    assert found.lines()[-1].startswith("fits" if found.fits else "does not fit")


@pytest.mark.parametrize(("window", "fits"), [(44, True), (43, False)])
def test_a_verifiers_replays_have_to_fit_audit(window: int, fits: bool) -> None:
    """By chance all four seats, of three verifiers: two of one."""
    found = feasibility_of("verifier", with_terms(audit_seconds=window), PACE, LARGE)
    assert found.fits is fits
    assert "to replay 2 seats of a round" in check(found, "audit").text


def test_fewer_verifiers_replay_more() -> None:
    found = feasibility_of("verifier", with_terms(min_verifiers=1), PACE, LARGE)
    assert check(found, "audit").needed == 4 * STEPS


@pytest.mark.parametrize("role", ["provider", "verifier"])
@pytest.mark.parametrize(("reset_period", "seconds"), [(1, 34.75), (3, 78.75)])
def test_a_run_for_a_game_has_to_fit_its_clock(
    role: str, reset_period: int, seconds: float
) -> None:
    """Who is to move and has no time left loses its bond, whoever is right: the rounds of a reset
    period, a segment of five steps once more, and a trace that takes twenty steps.
    """
    for game, fits in ((ceil(seconds), True), (ceil(seconds) - 1, False)):
        terms = with_terms(game_seconds=game, audit_seconds=200)
        manifest = terms.model_copy(update={"reset_period": reset_period})
        found = feasibility_of(role, manifest, PACE, LARGE)
        assert (check(found, "game").needed, found.fits) == (seconds, fits)


@pytest.mark.parametrize("name", ["memory", "disk"])
@pytest.mark.parametrize("role", ["provider", "verifier"])
def test_memory_and_disk_are_those_of_the_quote(role: str, name: str) -> None:
    needed = getattr(member_needs(role, MANIFEST, PACE), name)
    just, short = (replace(LARGE, **{name: needed - less}) for less in (0, 1))
    assert feasibility_of(role, MANIFEST, PACE, just).fits
    found = feasibility_of(role, MANIFEST, PACE, short)
    assert not found.fits
    assert check(found, name).level == "no"


def test_a_rounds_bytes_are_every_update_down_and_ones_own_up() -> None:
    found = feasibility_of("provider", MANIFEST, PACE, LARGE)
    assert (found.down, found.up) == (4 * 400_000, (4 + 5) * 400_000)
    assert found.megabits[0] == pytest.approx(4 * 400_000 * 8 / 40 / 10**6)
    plain = found.to_json_value()
    assert plain["fits"] is True
    assert plain["checks"][0]["level"] == "ok"
    assert round_seconds(MANIFEST, PACE) > found.round_seconds


async def test_the_pace_is_asked_of_a_process_that_has_torch() -> None:
    async def ask(question: dict[str, str]) -> Any:
        assert Manifest.from_bytes(bytes.fromhex(question["pace"])) == MANIFEST
        return {name: getattr(PACE, name) for name in PACE.__slots__}

    assert await pace_of(MANIFEST, ask) == PACE


async def test_a_machine_that_is_far_too_slow_is_told_so() -> None:
    async def never(question: dict[str, str]) -> Any:
        await asyncio.Event().wait()

    with pytest.raises(ConfigError, match=r"did not finish two steps .* in 0\.01 s"):
        await pace_of(MANIFEST, never, seconds=0.01)


@pytest.mark.parametrize(("role", "name"), [("provider", "million"), ("verifier", "fee")])
def test_the_floor_is_where_an_hour_of_such_a_job_earns_a_token(role: str, name: str) -> None:
    found = feasibility_of(role, MANIFEST, PACE, LARGE)
    assert found.floor_wei is not None
    paid = (
        {"segment_pay": found.floor_wei * MANIFEST.terms.segment_tokens // 10**6}
        if role == "provider"
        else {"duty_fee": found.floor_wei, "sign_fee": found.floor_wei // 2}
    )  # as in the terms
    at_floor = feasibility_of(role, with_terms(**paid), PACE, LARGE)
    assert at_floor.hourly_wei == pytest.approx(TOKEN, rel=1e-6)
    assert f"policy.least_{name}_wei = {found.floor_wei} on" in "\n".join(found.lines())
    assert found.to_json_value()["hourly_wei"] == str(found.hourly_wei)


def test_who_is_paid_nothing_has_no_floor() -> None:
    found = feasibility_of("provider", with_terms(segment_pay=0), PACE, LARGE)
    assert (found.hourly_wei, found.floor_wei) == (0, None)
