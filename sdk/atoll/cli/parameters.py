"""A network's parameters and what is proposed of them: read from the command line, and in words."""

from __future__ import annotations

import re
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.errors import AtollError, ConfigError
from atoll.job.readable import moment

if TYPE_CHECKING:
    from atoll.chain.configuration import Configuration
    from atoll.errors import TransactionFailed
    from atoll.protocol.types import Address, Params

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one of the network's parameters."),
]
IN_TOKENS = "_bond"
"""What the names of parameters end in that are amounts of tokens."""


def parameters(params: Params, settings: list[str]) -> Params:
    """Parameters with the changes of the command line; those that end in `_bond` are tokens.

    Raises:
        ConfigError: there is no such parameter, or the contract has no room for the number.
    """
    from atoll.job.groups import wei_of

    names = [field.name for field in fields(params)]
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in names:
            raise ConfigError(f"no parameter {name!r}", next_step=f"known: {', '.join(names)}")
        try:
            value = wei_of(text) if name.endswith(IN_TOKENS) else int(text)
        except ValueError as error:
            raise ConfigError(f"{setting!r}: {text!r} is no whole number") from error
        params = replace(params, **{name: value})
    _require_encodable(params)
    return params


def _require_encodable(params: Params) -> None:
    from eth_abi.abi import is_encodable

    from atoll.chain.abi import registry

    (kinds,) = registry().function("proposeParams", "Config").inputs
    kind_of = kinds.strip("()").split(",")
    for (name, value), kind in zip(asdict(params).items(), kind_of, strict=True):
        if not is_encodable(kind, value):
            raise ConfigError(f"{name}: {shown(name, value)} is less or more than can be said")


def shown(name: str, value: int) -> str:
    """A parameter's value as `--set` takes it."""
    from atoll.job.groups import units_text

    return units_text(value) if name.endswith(IN_TOKENS) else str(value)


def changes(now: Params, wanted: Params) -> list[str]:
    """What differs, a line each."""
    before, after = asdict(now), asdict(wanted)
    return [
        f"{name:<20} {shown(name, before[name])} → {shown(name, value)}"
        for name, value in after.items()
        if value != before[name]
    ] or ["nothing differs from what is in force"]


def configuration_lines(now: Configuration) -> list[str]:
    """Whose a network is, what is in force and what is proposed, for a person."""
    lines = [f"owner                {now.owner}"]
    if now.next_owner is not None:
        lines.append(f"offered to           {now.next_owner}, who has not accepted")
    jobs = "no new one is created: the network is paused" if now.paused else "new ones are created"
    lines.append(f"jobs                 {jobs}")
    lines += [f"{name:<20} {shown(name, value)}" for name, value in asdict(now.params).items()]
    return [*lines, *proposal_lines(now)]


def proposal_lines(now: Configuration) -> list[str]:
    """What is proposed, and from when on it can be applied; says so where nothing is."""
    lines, params, policy = list[str](), now.proposed_params, now.proposed_policy
    if params is not None:
        lines.append(f"proposed: parameters, to be applied from {moment(params.applicable_at)} on")
        lines += [f"    {line}" for line in changes(now.params, params.proposed)]
    if policy is not None:
        lines.append(f"proposed: a policy, to be applied from {moment(policy.applicable_at)} on")
        lines.append(f"    {policy.policy}{'' if policy.is_allowed else ', to be forbidden'}")
    return lines or ["nothing is proposed"]


def plain(now: Configuration) -> dict[str, Any]:
    """For JSON: wei as text; null where nothing is proposed."""

    def numbers(params: Params) -> dict[str, Any]:
        return {
            name: str(value) if name.endswith(IN_TOKENS) else value
            for name, value in asdict(params).items()
        }

    params, policy = now.proposed_params, now.proposed_policy
    waits: dict[str, Any] = {"proposed_params": None, "proposed_policy": None}
    if (params := now.proposed_params) is not None:
        wanted = numbers(params.proposed)
        waits["proposed_params"] = {"params": wanted, "applicable_at": params.applicable_at}
    if (policy := now.proposed_policy) is not None:
        waits["proposed_policy"] = asdict(policy)
    return {
        "owner": now.owner,
        "proposed_owner": now.next_owner,
        "paused": now.paused,
        "params": numbers(now.params),
        "change_delay_s": now.change_delay,
        **waits,
    }


def refused(failed: TransactionFailed, now: Configuration, sender: Address) -> AtollError:
    """Why the contract would not, in words; what it has no word for is as it came."""
    args = failed.args_
    if failed.error == "OwnableUnauthorizedAccount":
        return ConfigError(
            f"the network belongs to {now.owner}, and the key is that of {sender}",
            next_step="with the owner's key: --keystore FILE; or --unsigned, for its wallet",
        )
    if failed.error == "TooEarly":
        at, clock = (moment(int(str(second))) for second in args)
        return ConfigError(
            f"what is proposed can be applied from {at} on, and the chain's clock is at {clock}",
            next_step="run this again then; `atoll network owner show` has all dates",
        )
    if failed.error == "OutOfBounds":
        name = re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", str(args[0]))
        value, lowest, highest = (shown(name, int(str(number))) for number in args[1:])
        return ConfigError(f"{name} may be {lowest} to {highest}, not {value}")
    return failed
