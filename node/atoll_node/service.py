"""The provider's service: its machine, its effects, and the loop that joins them."""

from __future__ import annotations

import asyncio
import signal

from atoll.service.config import ServiceConfig
from atoll.service.context import open_context
from atoll.service.effects import Effects
from atoll.service.service import Service
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.machine import step
from atoll_node.setup import ProviderSetup


class ProviderService:
    """One account that trains in every job its config names.

    Args:
        config: paths, endpoints and limits.
        behaviour: where to depart from honesty, for tests; honest by default.
    """

    def __init__(self, config: ServiceConfig, behaviour: ProviderBehaviour | None = None) -> None:
        self.config = config
        self.behaviour = behaviour or ProviderBehaviour()

    async def run(self) -> None:
        """Serves until cancelled. SIGUSR1 finishes the running round and gives the seat up.

        Raises:
            ConfigError, KeystoreError, ChainError: it cannot start; nothing was sent.
        """
        async with open_context(self.config, self.behaviour.may_serve) as context:
            setup = ProviderSetup(
                gateway_url=context.url,
                keeper=self.config.keeper,
                auto_claim=self.config.auto_claim,
                behaviour=self.behaviour,
            )
            service = Service("provider", setup, step, Effects(context))
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, service.drain)
            await service.run()


async def serve(config: ServiceConfig) -> None:
    """Runs an honest provider until cancelled."""
    await ProviderService(config).run()
