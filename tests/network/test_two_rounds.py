"""Four providers and three verifiers, each a process, finish two rounds and are paid.

Its certificates are in BLS12-381; those of the other networks are in ECDSA. The stake and pay
of provider 0 belong to another key.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.network.members import (
    POLL_SECONDS,
    Network,
    Site,
    Who,
    everybody,
    is_settled_up,
    network,
)

from atoll.job.audit import EQUAL, Extent, JobCheck, audit
from atoll.job.client import Client
from atoll.job.connection import ClientConfig
from atoll.protocol.bls import KEY_BYTES
from atoll.protocol.certificates import CertificateKind
from atoll.protocol.pay import budget
from atoll.protocol.safety import last_safe, unsafe_rounds
from atoll.protocol.types import TOKEN, Address, JobStatus, Role
from atoll.service.background_tasks import background_tasks
from atoll_devnet.processes.cluster import STAKE_TOKENS

WALLET = Address("0x00000000000000000000000000000000000A7011")


async def test_a_job_of_two_rounds_is_trained_merged_audited_and_paid(site: Site) -> None:
    async with network(site, Who(owned=(0,)), CertificateKind.BLS, rounds=2) as running:
        await owned(running)
        view = await running.until(is_settled_up)
        await check_whose_pay_it_is(running)
        assert view.policy == running.cluster.deployment.addresses["BlsPolicy"]
        chain = running.session.chain
        keys = [await chain.bls_key(holder.account) for holder in view.verifiers.values()]
        assert len(set(keys)) == 3 and set(map(len, keys)) == {KEY_BYTES}
        budgeted = budget(running.manifest.terms)
        checked = await audited(running, site.folder / "outsider")
    assert view.status is JobStatus.DONE
    for settled_round in view.settled:
        assert settled_round.record.revealed == settled_round.record.available == 0b1111
        assert settled_round.verdict.merged == 4
        assert settled_round.is_consistent
        assert settled_round.opened_reports
        assert 3 * settled_round.signers.bit_count() >= 2 * len(view.verifiers)
    assert not any(holder.penalties or holder.is_slashed for holder in everybody(view))
    assert {holder.account for holder in view.providers.values()} <= set(view.paid)
    assert sum(view.paid.values()) <= budgeted
    assert unsafe_rounds(view) == ()
    assert last_safe(view).digest == view.settled[-1].verdict.state
    assert checked.faults == []
    assert {s.outcome for r in checked.rounds for s in r.seats} == {EQUAL}
    # Members let go of the updates of round 0 when it became FINAL, and of the last round's never.
    assert checked.rounds[-1].merge == EQUAL


async def owned(running: Network) -> None:
    """A provider's owner accepts, which the node waits for, and has its pay sent elsewhere."""
    session, chain = running.session, running.session.chain
    node, owner = running.cluster.providers[0].account, running.cluster.submitter.address
    while (now := await chain.ownership(node)).proposed != owner:
        assert now.owner == node
        assert (await chain.stake(node, Role.PROVIDER)).active == 0  # nothing is staked before
        await asyncio.sleep(POLL_SECONDS)
    async with background_tasks([session.queue.run()]):
        await session.queue.execute("accept", chain.calls.accept_owner(node))
        await session.queue.execute("payee", chain.calls.set_payee(node, WALLET))


async def check_whose_pay_it_is(running: Network) -> None:
    """It lies in the wallet; the key that worked has what it had, its bond among it."""
    chain, holder = running.session.chain, running.provider(0)
    earned = running.paid(holder)
    assert earned > 0
    assert await chain.token_balance(WALLET) == earned
    stake = await chain.stake(holder.account, Role.PROVIDER)
    assert stake.active + await chain.token_balance(holder.account) == STAKE_TOKENS * TOKEN


async def audited(running: Network, home: Path) -> JobCheck:
    """What somebody finds out who has nothing but the chain and what members serve."""
    cluster = running.cluster
    config = ClientConfig(home=home, confirmations=0)
    async with Client(cluster.chain.rpc_url, cluster.deployment, None, config) as client:
        return await audit(client.attach(running.job), Extent(sample=1))
