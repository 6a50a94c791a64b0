"""The network of a storm: who has a small disk, a link, a wrong clock, who comes and goes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from random import Random
from typing import Final

from atoll.protocol.types import Role
from atoll.service.background_tasks import background_tasks
from atoll.service.session import SessionConfig, open_session
from atoll.storage.storage import StoreConfig
from atoll_devnet.chaos.storm import Storm, StormConfig, Tell
from atoll_devnet.processes.chain import ChainConfig, LocalChain
from atoll_devnet.processes.cluster import STAKE_TOKENS, Cluster, ClusterConfig, Member
from atoll_devnet.processes.funding import Grant, fund
from atoll_devnet.processes.links import Links
from atoll_devnet.processes.warm import Surroundings
from atoll_devnet.run.skipping import Seen, skip_windows

WRONG_BY: Final = 3600.0
"""Seconds that the first provider's clock is ahead, and the first verifier's behind."""
DISK: Final = "256m"


@asynccontextmanager
async def storm(config: StormConfig, tell: Tell) -> AsyncIterator[Storm]:
    """A network on which jobs are submitted; everything ends with the context."""
    network = ClusterConfig(config.folder, config.providers, config.verifiers)
    async with AsyncExitStack() as stack:
        cluster, links = Cluster(network), None
        if config.is_rooted:
            links = stack.enter_context(Links(2))
            options = ("--host", links.host)
            cluster.chain = LocalChain(ChainConfig(network.folder / "chain", options=options))
        mounts = stack.enter_context(ExitStack())
        stack.callback(cluster.stop)
        await cluster.start_chain()
        session = await stack.enter_async_context(open_session(_watching(cluster)))
        made = Storm(config, cluster, session, tell, Random(config.seed))  # noqa: S311 (repeatable)
        await _add_spares(made)
        _set_clocks(made)
        if links is not None:
            _lay_links(made, links)
            made.small_disks = [m for m in cluster.members if m.index == 1]
            for member in made.small_disks:
                _mount_small_disk(member, mounts)
        made.first_block = await cluster.chain.block_number()
        for member in cluster.members:
            if member not in made.spares:
                member.process.start()
        stack.callback(_stop_submitters, made)
        seen = Seen(lambda: made.views, lambda: made.now, lambda: session.follower.confirmed)
        work = [made.follow(), skip_windows(cluster, seen, lambda _: None)]
        await stack.enter_async_context(background_tasks(work))
        made.began = time.monotonic()
        yield made


def _watching(cluster: Cluster) -> SessionConfig:
    folder = cluster.folder / "clock"
    store = StoreConfig(folder / "store")
    urls = (cluster.chain.rpc_url,)
    return SessionConfig(urls, cluster.deployment, folder, store, confirmations=0)


async def _add_spares(storm: Storm) -> None:
    cluster = storm.cluster
    storm.spares = [cluster.add(role) for role in Role]
    stake = STAKE_TOKENS * 10**cluster.deployment.decimals
    grants = [Grant(member.account, stake) for member in storm.spares]
    await fund(cluster.chain, cluster.deployment, grants)


def _set_clocks(storm: Storm) -> None:
    cluster = storm.cluster
    cluster.providers[0].process.place = Surroundings(clock_ahead=WRONG_BY)
    cluster.verifiers[0].process.place = Surroundings(clock_ahead=-WRONG_BY)


def _lay_links(storm: Storm, links: Links) -> None:
    """The last provider and the last verifier at the start have one each."""
    cluster, storm.links = storm.cluster, links
    ends = (
        cluster.providers[storm.config.providers - 1],
        cluster.verifiers[storm.config.verifiers - 1],
    )
    storm.linked = {member.name: index for index, member in enumerate(ends)}
    for member in cluster.members:
        index = storm.linked.get(member.name)
        if index is None:
            links.listen_at(member.config_file, links.host, cluster.chain.port)
        else:
            links.move(member.config_file, index, cluster.chain.port)
            member.process.place = Surroundings(netns=links.space(index))


def _mount_small_disk(member: Member, mounts: ExitStack) -> None:
    folder = member.folder / "data"
    folder.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(folder)]
    subprocess.run(command, check=True)  # noqa: S603 (our own command line)
    mounts.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=False)


def _stop_submitters(storm: Storm) -> None:
    for submission in storm.submissions:
        submission.process.stop()
