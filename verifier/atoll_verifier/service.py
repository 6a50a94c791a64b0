"""The verifier's service: its machine, its effects, and the loop that joins them."""

from __future__ import annotations

import asyncio
import signal

from atoll.content.cid import Cid
from atoll.service.config import ServiceConfig
from atoll.service.context import open_context
from atoll.service.effects import Effects
from atoll.service.service import Service
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.machine import step
from atoll_verifier.setup import VerifierSetup


class VerifierService:
    """One account that audits every job its config names.

    Args:
        config: paths, endpoints and limits.
        behaviour: where to depart from honesty, for tests; honest by default.
    """

    def __init__(self, config: ServiceConfig, behaviour: VerifierBehaviour | None = None) -> None:
        self.config = config
        self.behaviour = behaviour or VerifierBehaviour()

    async def run(self) -> None:
        """Serves until cancelled. SIGUSR1 finishes the running round and gives the place up.

        Raises:
            ConfigError, KeystoreError, ChainError: it cannot start; nothing was sent.
        """
        async with open_context(self.config, _serve_all) as context:
            setup = VerifierSetup(
                gateway_url=context.url,
                keeper=self.config.keeper,
                auto_claim=self.config.auto_claim,
                behaviour=self.behaviour,
            )
            service = Service("verifier", setup, step, Effects(context))
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, service.drain)
            await service.run()


async def serve(config: ServiceConfig) -> None:
    """Runs an honest verifier until cancelled."""
    await VerifierService(config).run()


def _serve_all(cid: Cid) -> bool:
    """A verifier serves on whatever it fetched to audit."""
    return True
