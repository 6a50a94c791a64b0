"""What goes wrong beside processes that die: the chain, disks, links, who is there.

Each takes a storm and returns when it is over; what it makes end by itself is excused until then
and a while longer.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from atoll.errors import AtollError
from atoll.service.control import ask
from atoll_devnet.chaos.kills import kill_one
from atoll_devnet.chaos.storm import EVERYONE, Fault, Storm
from atoll_devnet.processes.cluster import Member

DEEPEST: Final = 64
SECONDS: Final = 12.0
"""What lasts does so for that long in the mean."""
SLOW: Final = "256kbit"


async def reorganise(storm: Storm) -> None:
    """The newest blocks are other ones; small turns are more likely than deep ones."""
    chain = storm.cluster.chain
    async with storm.chain_alone:
        most = min(DEEPEST, await chain.block_number() - storm.first_block)
        if most < 1:
            return
        depth = round(most ** storm.random.random())
        await chain.reorg(depth)
    storm.note(f"reorganises: {depth} blocks")


async def restart_chain(storm: Storm) -> None:
    """The chain ends as it should, and goes on from its file."""
    async with storm.chain_alone:
        with storm.excused(EVERYONE):
            await asyncio.to_thread(storm.cluster.chain.stop)
            await storm.start_chain()
    storm.note("restarts the chain")


async def stall_chain(storm: Storm) -> None:
    """The chain answers nobody for a while."""
    async with storm.chain_alone:
        with storm.excused(EVERYONE):
            storm.cluster.chain.pause()
            try:
                await storm.some_time(SECONDS)
            finally:
                storm.cluster.chain.resume()
    storm.note("stalls the chain")


async def fill_disk(storm: Storm) -> None:
    """A member's disk is full for a while."""
    free = [member for member in storm.small_disks if member.name not in storm.full_disks]
    if not free:
        return
    member = storm.random.choice(free)
    ballast = member.folder / "data" / "ballast"
    storm.full_disks.add(member.name)
    with storm.excused(member.name):
        try:
            await asyncio.to_thread(_fill, ballast)
            await storm.some_time(SECONDS)
        finally:
            ballast.unlink()
            storm.full_disks.discard(member.name)
    storm.note(f"fills a disk: {member.name}'s")


def _fill(file: Path) -> None:
    """Takes all the room that is left there."""
    with file.open("wb") as ballast:
        for piece in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    size = os.fstat(ballast.fileno()).st_size
                    os.posix_fallocate(ballast.fileno(), size, piece)


async def cut_link(storm: Storm) -> None:
    """Nothing reaches a member, and nothing comes from it."""
    await _on_link(storm, "cuts a link", "")


async def slow_link(storm: Storm) -> None:
    """A member's link carries little."""
    await _on_link(storm, "slows a link", SLOW)


async def _on_link(storm: Storm, what: str, rate: str) -> None:
    links = storm.links
    free = sorted(storm.linked.keys() - storm.disturbed)
    if links is None or not free:
        return
    name = storm.random.choice(free)
    index = storm.linked[name]
    storm.disturbed.add(name)
    with storm.excused(name):
        links.shape(index, rate) if rate else links.cut(index)
        try:
            await storm.some_time(SECONDS)
        finally:
            links.shape(index) if rate else links.mend(index)
            storm.disturbed.discard(name)
    storm.note(f"{what}: {name}'s")


async def come_or_go(storm: Storm) -> None:
    """A spare member joins, or gives its slots up and ends once its bonds are home."""
    if not storm.spares:
        return
    member = storm.random.choice(storm.spares)
    if not member.process.is_running:
        member.process.start()
        if await _order(member, "resume"):
            storm.note(f"joins: {member.name}")
    elif await _order(member, "drain"):
        storm.note(f"leaves: {member.name}")


async def _order(member: Member, what: str) -> bool:
    """Whether a member that starts was told in time."""
    for _ in range(100):
        try:
            await ask(member.folder / "data", what)
        except AtollError:  # it starts still
            await asyncio.sleep(0.2)
        else:
            return True
    return False


WEIGHTS: Final[dict[Fault, int]] = {
    kill_one: 14,
    reorganise: 2,
    restart_chain: 1,
    stall_chain: 1,
    fill_disk: 1,
    cut_link: 1,
    slow_link: 1,
    come_or_go: 1,
}
