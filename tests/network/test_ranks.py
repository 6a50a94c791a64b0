"""Members of one process, of two and of four, in one job: nobody can tell which is which.

Provider 1's second rank is killed in the middle of its round. Provider 2 is what torchrun started
on two "hosts", agents of it on this one.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.network import torchrun
from tests.network.members import Asked, Network, Site, Who, everybody, is_settled_up, network

from atoll.numerics.kernels.variables import DEVICES_VARIABLE
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import SeatIndex, SlotIndex
from atoll.storage.local import LocalStore
from atoll.train.initial_model import open_initial_state
from atoll.train.probe import pin_torch
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import TrainTask
from atoll_devnet.processes.cluster import Cluster, Member
from atoll_devnet.processes.process import free_port
from atoll_devnet.processes.warm import MemberProcess

ALONE, SHARED, SPREAD = SeatIndex(0), SeatIndex(1), SeatIndex(2)
HOSTS = 2
AUDITORS = {SlotIndex(0): 4, SlotIndex(1): 2}
RANKS = {f"provider {SHARED}": 2} | {f"verifier {slot}": n for slot, n in AUDITORS.items()}
INNER = {"micro_batch": 1, "lanes": 2}
"""Four micro-batches a step, in two lanes of two."""
STEPS, SEGMENT = 160, 20
"""Some seconds of training, of which the first checkpoint comes after the eighth part."""
LOOK_SECONDS = 0.05


async def test_members_of_any_number_of_ranks_agree(site: Site) -> None:
    assert DEVICES_VARIABLE not in os.environ  # what this process computes, it computes alone
    steps = {"steps": STEPS, "segment_steps": SEGMENT}
    who, asked = Who(slots=2, ranks=RANKS), Asked(inner=INNER)
    async with network(site, who, before=on_hosts, asked=asked, **steps) as running:
        cluster = running.cluster
        await running.until(lambda view, _: bool(view.providers))
        most = dict.fromkeys(AUDITORS, 0)
        counting = asyncio.create_task(count_followers(cluster.verifiers, most))
        await one_killed(cluster.providers[SHARED])
        view = await running.until(is_settled_up)
        counting.cancel()
        (settled_round,) = view.settled
        for seat in (ALONE, SHARED, SPREAD):
            check_work(settled_round, seat, trained(running, seat))
    log = (cluster.providers[SHARED].folder / "log").read_text()
    assert "a rank ended, and what it held is gone" in log
    assert "begins again from the last checkpoint" in log
    assert "all ranks have met" in (cluster.providers[SPREAD].folder / "log").read_text()
    assert settled_round.record.revealed == settled_round.record.available == 0b1111
    auditors = [slot for slot, seats in settled_round.duties.items() if seats]
    assert auditors
    assert {slot: most[slot] for slot in auditors} == {s: AUDITORS[s] - 1 for s in auditors}
    assert all(
        entry.is_valid for body in settled_round.opened_reports.values() for entry in body.entries
    )
    assert not view.games
    assert not any(holder.penalties or holder.is_slashed for holder in everybody(view))


def check_work(settled_round: SettledRound, seat: SeatIndex, alone: TrainedRound) -> None:
    """What the seat revealed is what one process comes to."""
    reveal = settled_round.reveals[seat].reveal
    committed = reveal.checkpoint_commitments
    assert reveal.update_root == alone.update_root
    assert [committed[at : at + 32] for at in range(0, len(committed), 64)] == list(alone.states)


def trained(running: Network, seat: SeatIndex) -> TrainedRound:
    """The seat's round, by this process alone."""
    pin_torch()
    assert running.view is not None
    settled_round, job = running.view.settled[0], running.manifest
    store: LocalStore = running.session.store
    cid = store.add_pieces(open_initial_state(job, store).pieces()).to_bytes()
    task = TrainTask(job, settled_round.round_id, seat, settled_round.record.seed, cid)
    return train_round(task, store)


@asynccontextmanager
async def on_hosts(cluster: Cluster) -> AsyncIterator[None]:
    """Has a member's service be the first of ranks that torchrun starts, one on each host.

    The first host's agent is the member's process, so that the chain's clock waits for its work.
    """
    member = cluster.providers[SPREAD]
    process, meeting = member.process, f"127.0.0.1:{free_port()}"
    service = ("-m", process.module, *process.arguments)
    process.arguments, *others = (
        [
            *("--nnodes", str(HOSTS), "--node-rank", str(host), "--nproc-per-node", "1"),
            *("--rdzv-backend", "static", "--rdzv-endpoint", meeting),
            *service,
        ]
        for host in range(HOSTS)
    )
    process.module = torchrun.__name__
    log = member.folder / "other-hosts.log"
    agents = [MemberProcess(member.name, process.module, arguments, log) for arguments in others]
    for agent in agents:
        agent.start()
    try:
        yield
    finally:
        for each in (process, *agents):
            each.request_stop()
        for each in (process, *agents):
            await asyncio.to_thread(each.stop)


async def one_killed(member: Member) -> None:
    """kill -9 of a rank, once the round has a checkpoint that it helped to make."""
    folder = member.folder / "data" / "store"
    while not any(p.reason.endswith("/checkpoint") for p in LocalStore(folder).pins()):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_SECONDS)
    while not (ranks := followers(member)):  # noqa: ASYNC110 (processes are looked for)
        await asyncio.sleep(LOOK_SECONDS)
    os.kill(ranks[0], signal.SIGKILL)


async def count_followers(members: list[Member], most: dict[SlotIndex, int]) -> None:
    """Keeps the most ranks that ever followed each, until cancelled."""
    while True:
        for index, member in enumerate(members):
            slot = SlotIndex(index)
            most[slot] = max(most[slot], len(followers(member)))
        await asyncio.sleep(LOOK_SECONDS)


def followers(member: Member) -> list[int]:
    """The ranks that its workers started; everything else of a member is forked."""
    pid = member.process.pid
    assert pid is not None
    started = [each for worker in children(pid) for each in children(worker)]
    return [each for each in started if b"spawn_main" in of_process(each, "cmdline")]


def children(pid: int) -> list[int]:
    """Of a process, whichever of its threads started them."""
    tasks = Path(f"/proc/{pid}/task").glob("*")
    words = [of_process(pid, f"task/{task.name}/children").split() for task in tasks]
    return [int(word) for each in words for word in each]


def of_process(pid: int, name: str) -> bytes:
    """What the system says of a process; nothing once it ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""
