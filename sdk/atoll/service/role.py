"""A role's service from its start to its end: what it holds is opened, and people are answered."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TypeVar

from atoll.errors import ConfigError
from atoll.service.config import ServiceConfig
from atoll.service.context import open_context
from atoll.service.control import listening
from atoll.service.effects import Effects
from atoll.service.gateway_process import Serves
from atoll.service.health import Health, answering
from atoll.service.machine import Setup, Step
from atoll.service.outside import answers_of, metrics_of
from atoll.service.service import PLAYER, Service

B = TypeVar("B")


async def run_role(
    role: str,
    config: ServiceConfig,
    behaviour: B,
    step: Step[Setup[B]],
    serves: Serves | None = None,
) -> None:
    """Serves until cancelled, or drained.

    Args:
        serves: says which blocks are given out; None gives out all.

    Raises:
        ConfigError, KeystoreError, ChainError: it cannot start; nothing was sent.
    """
    if role != PLAYER and config.role not in {None, role}:
        raise ConfigError(
            f"this config is of a {config.role}, and this is a {role}'s service",
            next_step="name the other role's --config",
        )
    if role == "verifier" and not config.gateway.announce:
        raise ConfigError(
            "a verifier announces its gateway: updates are brought there",
            next_step="remove announce = false from [gateway], and open the port",
        )
    config = config.model_copy(update={"role": role})
    async with open_context(config, serves) as context:
        if role == "verifier" and not context.url:
            raise unreached()
        mine = (config.keeper, config.auto_claim, config.schedule, config.merge)
        setup = Setup(context.url, behaviour, *mine)
        service = Service(role, setup, step, Effects(context))
        health = Health(lambda: metrics_of(service), service.health_status, service.is_alive)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(listening(config.data_dir, answers_of(service)))
            if config.health.port:
                where = (config.health.host, config.health.port)
                await stack.enter_async_context(answering(*where, health))
            await service.run()


def unreached() -> ConfigError:
    """Of a verifier on a public chain whose gateway's address is of its own network."""
    return ConfigError(
        "nobody could reach this verifier's gateway, and updates are brought there: it has no "
        "public_url, and listens on an address of this machine or its network",
        next_step="set public_url in [gateway] to what others use, host to 0.0.0.0, and open the "
        "port; private_peers = true where all members are on this network",
    )
