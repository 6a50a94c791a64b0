"""The provider's service: its machine in the loop that both roles share."""

from __future__ import annotations

from atoll.service.config import ServiceConfig
from atoll.service.role import run_role
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.machine import step
from atoll_node.rollouts.endpoint import rollouts_endpoint


async def serve(config: ServiceConfig, behaviour: ProviderBehaviour | None = None) -> None:
    """Runs a provider until cancelled, an honest one where no behaviour is given.

    Raises:
        ConfigError, KeystoreError, ChainError: it cannot start; nothing was sent.
    """
    chosen = behaviour or ProviderBehaviour()
    async with rollouts_endpoint(config):
        await run_role("provider", config, chosen, step, chosen.serve_function)
