"""Tries a job on this machine before anything is staked on it."""

from __future__ import annotations

import asyncio
import shutil
from typing import Final

from atoll.chain.deployment import Deployment
from atoll.errors import ConfigError
from atoll.job.asking import Ask, asking
from atoll.job.break_even import MemberPrices
from atoll.job.client import Client
from atoll.job.connection import ClientConfig
from atoll.job.feasibility import Feasibility, feasibility_of
from atoll.protocol.manifest import Manifest
from atoll.service.config import ServiceConfig
from atoll.service.doctor.machine_checks import memory
from atoll.service.needs import Machine
from atoll.service.pace import Pace

PROBE_SECONDS: Final = 120.0


async def try_job(config: ServiceConfig, role: str, job: int, prices: MemberPrices) -> Feasibility:
    """Fetches a job's manifest, times its model's steps, and holds them against its windows.

    Raises:
        ChainError: no endpoint answers, or the chain has no such job.
        NotFound: nobody serves the manifest.
        ConfigError: the train extra is missing, or no two steps were done in two minutes.
    """
    config.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    home = ClientConfig(home=config.data_dir / "feasibility_of", confirmations=0)
    deployment = Deployment.load(config.deployment)
    async with Client(config.rpc_urls, deployment, None, home) as client:
        manifest = await client.attach(job).manifest()
    async with asking(devices=config.machine.devices) as ask:
        pace = await pace_of(manifest, ask)
    machine = Machine(memory()[1], shutil.disk_usage(config.data_dir).free)
    return feasibility_of(role, manifest, pace, machine, prices=prices)


async def pace_of(manifest: Manifest, ask: Ask, seconds: float = PROBE_SECONDS) -> Pace:
    """The model's pace here. Raises ConfigError where it takes longer than that to tell."""
    try:
        async with asyncio.timeout(seconds):
            return Pace(**await ask({"pace": manifest.to_bytes().hex()}))
    except TimeoutError as error:
        raise ConfigError(
            f"this machine did not finish two steps of the job's model in {seconds:g} s",
            next_step="try again while nothing else runs, or take a smaller job",
        ) from error
