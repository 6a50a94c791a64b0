"""kill -9, to whoever it meets: services, their workers and gateways, submitters, the chain."""

from __future__ import annotations

from atoll_devnet.chaos.family import SERVICE, WORKER, family, kill
from atoll_devnet.chaos.storm import EVERYONE, Storm

CHAIN, SUBMITTER = "the chain", "a submitter"
WEIGHTS = {SERVICE: 8, WORKER: 4, "gateway": 4, SUBMITTER: 3, CHAIN: 1}


async def kill_one(storm: Storm) -> None:
    """Kills a process of a drawn kind; a service, a submitter and the chain start again at once."""
    (kind,) = storm.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
    if kind == CHAIN:
        async with storm.chain_alone:
            with storm.excused(EVERYONE):
                await storm.cluster.chain.crash()
                await storm.start_chain()
        storm.note(f"kills {CHAIN}")
        return
    if kind == SUBMITTER:
        running = [choice for choice in storm.submissions if choice.process.is_running]
        if running:
            choice = storm.random.choice(running)
            choice.process.kill()
            choice.process.start()
            storm.note(f"kills {SUBMITTER}: {choice.name}")
        return
    member = storm.random.choice([m for m in storm.cluster.members if m.process.is_running])
    if kind == SERVICE:
        member.process.kill()
        member.process.start()
        storm.note(f"kills a {member.kind}: {member.name}")
        return
    assert member.process.pid is not None
    targets = [
        pid for pid, process_kind in family(member.process.pid).items() if process_kind == kind
    ]
    if targets:
        kill(storm.random.choice(targets))
        storm.note(f"kills a {kind}: {member.name}'s")
