"""The verifier's service: its machine in the loop that both roles share."""

from __future__ import annotations

from atoll.service.config import ServiceConfig
from atoll.service.role import run_role
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.machine import step


async def serve(config: ServiceConfig, behaviour: VerifierBehaviour | None = None) -> None:
    """Runs a verifier until cancelled, an honest one where no behaviour is given.

    Raises:
        ConfigError, KeystoreError, ChainError: it cannot start; nothing was sent.
    """
    chosen = behaviour or VerifierBehaviour()
    await run_role("verifier", config, chosen, step, chosen.serve_function)
