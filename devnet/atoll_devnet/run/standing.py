"""A network that stays up for a person to use, and money for whoever joins it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from eth_utils.address import is_address, to_checksum_address

from atoll.chain.deployment import Deployment
from atoll.errors import ConfigError
from atoll.protocol.types import Address
from atoll_devnet.processes.chain import Endpoint
from atoll_devnet.processes.cluster import Cluster, ClusterConfig
from atoll_devnet.processes.funding import Grant, fund
from atoll_devnet.run.skipping import skipping

CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class StandingNetwork:
    """What is started: whose files are where, how many of whom, the chain's port, the storage.

    Attributes:
        skip_windows: move the clock on where everybody only waits for a window.
    """

    folder: Path
    providers: int
    verifiers: int
    port: int
    store: str
    skip_windows: bool = False


async def stand(network: StandingNetwork, tell: Callable[[dict[str, str]], None]) -> None:
    """Runs until interrupted.

    Args:
        tell: is given the variables that the commands of a submitter read, once all runs.

    Raises:
        ConfigError: the port is in use, or the numbers do not fit.
        ProcessFailed: the chain ended by itself.
    """
    config = ClusterConfig(
        folder=network.folder,
        providers=network.providers,
        verifiers=network.verifiers,
        chain_port=network.port,
        in_order=False,
        store=network.store,
    )
    who = f"{network.providers} providers and {network.verifiers} verifiers"
    _say(f"starts a chain, {who}")
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(config))
        if network.skip_windows:
            await stack.enter_async_context(skipping(cluster, _say))
        tell(_environment(cluster))
        _say(f"{who} wait; Ctrl-C ends all")
        while True:
            cluster.check()
            await asyncio.sleep(CHECK_SECONDS)


async def give(account: str, tokens: int, rpc: str, deployment_file: Path) -> None:
    """Coin for gas and whole tokens, from the development chain's own rich account.

    Raises:
        ConfigError: that is no address.
        ChainError: the chain does not answer, or it is not a development chain.
    """
    if not is_address(account):
        raise ConfigError(f"{account!r} is no address", next_step="pass 0x and 40 hex digits")
    deployment = Deployment.load(deployment_file)
    grant = Grant(Address(to_checksum_address(account)), tokens * 10**deployment.decimals)
    await fund(Endpoint(rpc, deployment.chain_id), deployment, [grant])


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _environment(cluster: Cluster) -> dict[str, str]:
    folder = cluster.submitter_folder
    keystore = next((folder / "keys").glob("*.json"))
    return {
        "ATOLL_RPC": cluster.chain.rpc_url,
        "ATOLL_DEPLOYMENT": str(folder / "deployment.json"),
        "ATOLL_KEYSTORE": str(keystore),
        "ATOLL_PASSWORD_FILE": str(folder / "password"),
        # The next network has the same contracts' addresses, and other jobs.
        "ATOLL_HOME": str(folder),
    }
