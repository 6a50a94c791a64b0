"""A stranger writes the terms: what a node by itself does not take, however well it is paid."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
from tests.support.identities import cid
from tests.support.manifests import make_manifest, make_terms

from atoll.cli.services import POLICY
from atoll.protocol.clocks import absolute_end, longest_leave
from atoll.protocol.terms import MIN_MOVES, MOVES, WINDOWS
from atoll.protocol.types import TOKEN, Role, Terms
from atoll.service.config import PolicySection
from atoll.service.pace import Load, Pace, earned_per_hour, loads_of, promised_per_hour
from atoll.service.policy import (
    DAY,
    MOVE_SECONDS,
    clock_refusal,
    games_refusal,
    least_move,
    lock_refusal,
    pace_refusal,
    terms_refusal,
)

TEMPLATE = PolicySection.model_validate(tomllib.loads(POLICY)["policy"])
"""As `atoll node init` writes it."""
ROLES = list(Role)
CLOCKS = dict.fromkeys((*WINDOWS, "ready_seconds", "move_seconds", "claim_seconds"), MOVE_SECONDS)
PATIENT = make_terms(
    **CLOCKS | {"game_seconds": MIN_MOVES * MOVE_SECONDS, "window_seconds": 20 * MOVE_SECONDS}
)
"""Every clock just leaves the time that transactions take."""


@pytest.mark.parametrize("role", ROLES)
def test_terms_that_leave_a_transaction_its_time_are_taken(role: Role) -> None:
    assert terms_refusal(TEMPLATE, PATIENT, role, MOVE_SECONDS) == ""


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", [*CLOCKS, "game_seconds"])
def test_one_clock_too_short_is_refused_with_both_numbers(name: str, role: Role) -> None:
    """Who is to act then loses its bond, its seat or its pay, and no machine is fast enough."""
    least = getattr(PATIENT, name) if name == "game_seconds" else MOVE_SECONDS
    short = replace(PATIENT, **{name: least - 1})
    why = terms_refusal(TEMPLATE, short, role, MOVE_SECONDS)
    what = name.removesuffix("_seconds")
    assert why == f"{what} window {least - 1} s < {least} s, which transactions take"
    assert clock_refusal(short, 0) == ""


@pytest.mark.parametrize(
    ("chain_id", "urls", "least"),
    [
        (31337, ["http://127.0.0.1:8545"], 0),
        (1337, ["http://localhost:8545", "http://[::1]:8545"], 0),
        (1, ["http://127.0.0.1:8545"], MOVE_SECONDS),
        (31337, ["https://rpc.example.org"], MOVE_SECONDS),
        (31337, ["http://127.0.0.1:8545", "http://10.0.0.1:8545"], MOVE_SECONDS),
    ],
)
def test_a_chain_is_one_for_development_by_its_number_and_its_endpoints(
    chain_id: int, urls: list[str], least: int
) -> None:
    """A number alone may be any network's, whose deployment file somebody hands out."""
    assert least_move(PolicySection(), chain_id, urls) == least
    assert least_move(PolicySection(least_move_s=7), chain_id, urls) == 7


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", ["segment_pay", "sign_fee", "duty_fee"])
def test_a_price_or_fee_of_zero_is_refused_unless_it_is_asked_for(name: str, role: Role) -> None:
    """Whoever is paid nothing does not come, and the job waits with all others' bonds."""
    free = replace(PATIENT, **{name: 0})
    assert "pays 0 wei" in terms_refusal(TEMPLATE, free, role, 0)
    assert terms_refusal(TEMPLATE, replace(PATIENT, **{name: 1}), role, 0) == ""
    volunteers = PolicySection(least_million_wei=0, least_fee_wei=0)
    assert terms_refusal(volunteers, free, role, 0) == ""


def test_the_other_roles_floor_is_none_of_ours() -> None:
    floors = PolicySection(least_million_wei=TOKEN, least_fee_wei=TOKEN)
    cheap = replace(PATIENT, segment_pay=TOKEN, duty_fee=1, sign_fee=1)
    assert terms_refusal(floors, cheap, Role.PROVIDER, 0) == ""
    assert "least_fee_wei" in terms_refusal(floors, cheap, Role.VERIFIER, 0)
    dear = replace(PATIENT, segment_pay=1, duty_fee=TOKEN, sign_fee=1)
    assert terms_refusal(floors, dear, Role.VERIFIER, 0) == ""
    assert "least_million_wei" in terms_refusal(floors, dear, Role.PROVIDER, 0)


def longest_end(terms: Terms) -> int:
    """With the longest games that the terms allow behind it."""
    return absolute_end(terms, 2 * terms.game_seconds + MOVES * terms.move_seconds)


@pytest.mark.parametrize(
    "changes",
    [{}, {"audit_seconds": 3 * DAY}, {"game_seconds": 4 * DAY, "window_seconds": 8 * DAY}],
)
def test_a_lock_lasts_no_longer_than_the_policy_says(changes: dict[str, int]) -> None:
    """To the absolute end: whatever makes it late, expiry, an audit or a game's clocks."""
    terms = replace(PATIENT, audit_seconds=5 * DAY)
    terms = replace(terms, **changes)
    now, policy = longest_end(terms) - DAY, PolicySection(longest_lock=1.0)
    assert lock_refusal(policy, terms, now) == ""
    why = lock_refusal(policy, terms, now - DAY)
    assert why == "may lock bonds for 2.0 days, and policy.longest_lock is 1"


def test_who_asks_to_leave_waits_for_no_expiry() -> None:
    """Five years are no lock: a merge that nobody signs ends where somebody leaves."""
    terms = replace(PATIENT, expiry=1800 * DAY)
    days = longest_leave(terms, 2 * terms.game_seconds + MOVES * terms.move_seconds) / DAY
    assert lock_refusal(TEMPLATE, terms, 0) == ""
    assert lock_refusal(PolicySection(longest_lock=days), terms, 0) == ""
    assert "may lock bonds for" in lock_refusal(PolicySection(longest_lock=days - 1e-6), terms, 0)


def test_thirty_days_are_the_longest_lock_of_who_says_nothing() -> None:
    terms = replace(PATIENT, audit_seconds=3 * DAY, expiry=1800 * DAY)
    assert "may lock bonds for 51." in lock_refusal(TEMPLATE, terms, 0)


# --- loads and earnings ---

PACE = Pace(0.5, 0.25, 200_000, 200_000, 400_000)


def test_evaluation_is_a_load_of_a_verifiers_merge() -> None:
    """As many batches as a submitter likes: whoever merges late signs late, and is paid nothing."""
    manifest, policy = make_manifest(), PolicySection(most_of_window=1)
    loads = {load.name: load for load in loads_of(Role.VERIFIER, manifest, PACE)}
    changes = {"eval_cid": cid("held out"), "eval_batches": 1 << 16}
    data = manifest.data.model_copy(update=changes)
    swamped = manifest.model_copy(update={"data": data})
    assert loads["merge"].window == manifest.terms.merge_seconds
    assert pace_refusal(policy, Role.VERIFIER, manifest, PACE) == ""
    why = pace_refusal(policy, Role.VERIFIER, swamped, PACE)
    assert why.startswith(f"merge window {manifest.terms.merge_seconds} s < 16385 s")
    assert pace_refusal(policy, Role.PROVIDER, swamped, PACE) == ""  # it evaluates nothing


def test_runs_in_all_jobs_at_once_have_to_fit_into_the_shortest_clock() -> None:
    policy = PolicySection(most_of_window=0.5)
    game, other = Load("game", 30, 100, ""), Load("game", 20, 1000, "")
    assert games_refusal(policy, game, [other]) == ""
    slower = replace(other, needed=20.1)
    why = games_refusal(policy, game, [slower])
    assert why.startswith("game window 100 s < 101 s, of which runs in this job and 1 more would")
    assert games_refusal(policy, replace(game, window=1000), [replace(other, window=99)]) != ""
    assert games_refusal(policy, replace(game, needed=1000), []) == ""  # that is the job's alone
    assert games_refusal(PolicySection(), game, [slower]) == ""


@pytest.mark.parametrize("role", ROLES)
def test_an_hour_has_to_earn_what_the_policy_says(role: Role) -> None:
    manifest = make_manifest()
    earned = earned_per_hour(role, manifest, PACE)
    just, more = (PolicySection(least_per_hour=earned / TOKEN * part) for part in (0.99, 1.01))
    assert pace_refusal(just, role, manifest, PACE) == ""
    assert "tokens an hour of this machine, and policy.least_per_hour is" in pace_refusal(
        more, role, manifest, PACE
    )


@pytest.mark.parametrize("role", ROLES)
def test_who_waits_for_long_windows_earns_less_an_hour(role: Role) -> None:
    """A round may last as long as its windows, since one member can have all others wait."""
    manifest = make_manifest()
    slow = manifest.model_copy(update={"terms": make_terms(train_seconds=86_400)})
    assert earned_per_hour(role, slow, PACE) < earned_per_hour(role, manifest, PACE) / 100
    assert promised_per_hour(role, slow.terms) < promised_per_hour(role, manifest.terms) / 100
    slower = replace(PACE, step_seconds=5.0)
    assert earned_per_hour(role, manifest, slower) < earned_per_hour(role, manifest, PACE)
