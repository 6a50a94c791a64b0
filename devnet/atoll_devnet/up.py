"""A network that stays up, for jobs that someone submits by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path

from atoll.commands.output import emit, say
from atoll.errors import ConfigError
from atoll_devnet.cluster import Cluster, ClusterConfig

CHECK_SECONDS = 1.0


async def keep_up(folder: Path, providers: int, verifiers: int, *, as_json: bool) -> None:
    """Starts a network, says how to reach it, and waits until it is interrupted.

    Raises:
        ConfigError: the folder exists, or a program is missing.
        ProcessFailed: the chain ended by itself.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists", next_step="name another --folder")
    config = ClusterConfig(folder, providers=providers, verifiers=verifiers)
    async with Cluster(config) as cluster:
        settings = settings_of(cluster)
        exports = "\n".join(f"export {name}={value}" for name, value in settings.items())
        emit(settings, exports, as_json=as_json)
        say("the network is up; in another terminal, paste the lines above, then for example:")
        say("  atoll job submit --data README.md --max-spend 100")
        while True:
            cluster.check()
            await asyncio.sleep(CHECK_SECONDS)


def settings_of(cluster: Cluster) -> dict[str, str]:
    """The environment in which `atoll job` uses this network as its funded submitter."""
    folder = cluster.submitter_folder
    keystore = next((folder / "keys").glob("*.json"))
    return {
        "ATOLL_RPC": cluster.chain.rpc_url,
        "ATOLL_DEPLOYMENT": str(folder / "deployment.json"),
        "ATOLL_KEYSTORE": str(keystore),
        "ATOLL_PASSWORD_FILE": str(folder / "password"),
        "ATOLL_HOME": str(folder),
    }
