"""A network that stays up for a person to use, and money for whoever joins it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from eth_utils.address import is_address, to_checksum_address

from atoll.chain.deployment import Deployment
from atoll.errors import ConfigError
from atoll.law.words import TOKEN, Address
from atoll_devnet.processes.chain import Endpoint
from atoll_devnet.processes.cluster import Cluster, ClusterConfig
from atoll_devnet.processes.funding import Grant, fund

CHECK_SECONDS = 1.0


async def stand(folder: Path, providers: int, verifiers: int, port: int, store: str) -> None:
    """Runs until interrupted.

    Raises:
        ConfigError: the port is in use, or the numbers do not fit.
        ProcessFailed: the chain ended by itself.
    """
    config = ClusterConfig(
        folder=folder,
        providers=providers,
        verifiers=verifiers,
        chain_port=port,
        in_order=False,
        store=store,
    )
    async with Cluster(config) as cluster:
        sys.stdout.write(_environment(cluster))
        sys.stdout.flush()
        sys.stderr.write(f"{providers} providers and {verifiers} verifiers wait; Ctrl-C ends all\n")
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
    grant = Grant(Address(to_checksum_address(account)), tokens * TOKEN)
    await fund(Endpoint(rpc, deployment.chain_id), deployment, [grant])


def _environment(cluster: Cluster) -> str:
    folder = cluster.submitter_folder
    keystore = next((folder / "keys").glob("*.json"))
    values = {
        "ATOLL_RPC": cluster.chain.rpc_url,
        "ATOLL_DEPLOYMENT": folder / "deployment.json",
        "ATOLL_KEYSTORE": keystore,
        "ATOLL_PASSWORD_FILE": folder / "password",
    }
    return "".join(f"export {name}={value}\n" for name, value in values.items())
