"""A network's parameters: read from the command line, in words, and what is refused of them."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from atoll.chain.configuration import Configuration
from atoll.chain.contract_views import ProposedParams, ProposedPolicy
from atoll.chain.default_params import default_params
from atoll.cli.parameters import (
    changes,
    configuration_lines,
    parameters,
    plain,
    proposal_lines,
    refused,
    shown,
)
from atoll.errors import ConfigError, TransactionFailed
from atoll.protocol.types import TOKEN, Address

OWNER, OTHER = (Address(f"0x{digit * 40}") for digit in "12")
AT = 1_800_000_000
DEFAULT_PARAMS = default_params(31337)
DATE = "2027-01-15 08:00:00 UTC"


def configuration(
    *,
    paused: bool = False,
    params: ProposedParams | None = None,
    policy: ProposedPolicy | None = None,
    next_owner: Address | None = None,
) -> Configuration:
    return Configuration(
        owner=OWNER,
        next_owner=next_owner,
        paused=paused,
        params=DEFAULT_PARAMS,
        proposed_params=params,
        proposed_policy=policy,
        change_delay=86_400,
    )


def test_settings_change_what_they_name_and_bonds_are_tokens() -> None:
    wanted = parameters(DEFAULT_PARAMS, ["min_provider_bond=0.5", "penalty_bps=7"])
    assert wanted.min_provider_bond == TOKEN // 2
    differing = {n for n, v in asdict(wanted).items() if v != asdict(DEFAULT_PARAMS)[n]}
    assert differing == {"min_provider_bond", "penalty_bps"}
    assert changes(DEFAULT_PARAMS, wanted) == [
        "penalty_bps          100 → 7",
        "min_provider_bond    1 → 0.5",
    ]
    assert changes(wanted, wanted) == ["nothing differs from what is in force"]


def test_what_is_shown_is_what_set_takes() -> None:
    settings = [
        f"{name}={shown(name, value + 1)}" for name, value in asdict(DEFAULT_PARAMS).items()
    ]
    wanted = asdict(parameters(DEFAULT_PARAMS, settings))
    assert wanted == {name: value + 1 for name, value in asdict(DEFAULT_PARAMS).items()}


@pytest.mark.parametrize(
    "setting",
    [
        "",
        "=",
        "bond=1",
        "min_window",
        "min_window=",
        "min_window=0.5",
        "min_window=-1",
        f"min_window={1 << 32}",
        f"penalty_bps={1 << 16}",
        "min_provider_bond=-1",
        "min_provider_bond=nan",
        f"min_verifier_bond={1 << 128}",
        "MIN_WINDOW=1",
    ],
)
def test_what_is_no_parameter_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError):
        parameters(DEFAULT_PARAMS, [setting])


def test_a_person_reads_who_owns_it_what_is_in_force_and_what_waits() -> None:
    assert configuration_lines(configuration())[-1] == "nothing is proposed"
    wanted = parameters(DEFAULT_PARAMS, ["min_window=60"])
    waiting = configuration(
        paused=True,
        params=ProposedParams(proposed=wanted, applicable_at=AT),
        policy=ProposedPolicy(policy=OTHER, is_allowed=True, applicable_at=AT),
        next_owner=OTHER,
    )
    assert proposal_lines(waiting) == [
        f"proposed: parameters, to be applied from {DATE} on",
        "    min_window           1 → 60",
        f"proposed: a policy, to be applied from {DATE} on",
        f"    {OTHER}",
    ]
    lines = configuration_lines(waiting)
    assert f"owner                {OWNER}" in lines
    assert f"offered to           {OTHER}, who has not accepted" in lines
    assert "jobs                 no new one is created: the network is paused" in lines
    said = plain(waiting)
    assert (said["paused"], said["proposed_owner"]) == (True, OTHER)
    assert said["proposed_params"]["applicable_at"] == AT
    assert said["proposed_params"]["params"]["min_window"] == 60
    assert said["params"]["min_provider_bond"] == str(TOKEN)
    assert said["proposed_policy"] == {"policy": OTHER, "is_allowed": True, "applicable_at": AT}
    forbidden = configuration(
        policy=ProposedPolicy(policy=OTHER, is_allowed=False, applicable_at=AT)
    )
    assert proposal_lines(forbidden)[-1] == f"    {OTHER}, to be forbidden"


@pytest.mark.parametrize(
    ("error", "args", "said"),
    [
        (
            "OwnableUnauthorizedAccount",
            (OTHER,),
            f"the network belongs to {OWNER}, and the key is that of {OTHER}",
        ),
        ("TooEarly", (AT, AT - 1), f"can be applied from {DATE} on"),
        ("OutOfBounds", ("penaltyBps", 0, 1, 1250), "penalty_bps may be 1 to 1250, not 0"),
        (
            "OutOfBounds",
            ("minVerifierBond", 1, 80, 10**30),
            "min_verifier_bond may be 0.00000000000000008 to 1000000000000, "
            "not 0.000000000000000001",
        ),
    ],
)
def test_a_refusal_is_put_into_words(error: str, args: tuple[object, ...], said: str) -> None:
    failed = TransactionFailed("reverted", error=error, args=args)
    found = refused(failed, configuration(), OTHER)
    assert isinstance(found, ConfigError)
    assert said in str(found)


def test_a_refusal_without_words_stays_what_it_is() -> None:
    failed = TransactionFailed("reverted: Other()", error="Other")
    assert refused(failed, configuration(), OTHER) is failed
