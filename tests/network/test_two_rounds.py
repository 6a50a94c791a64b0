"""Four providers and three verifiers, each a process, finish two rounds and are paid.

Its certificates are in BLS12-381; those of the other networks are in ECDSA.
"""

from __future__ import annotations

from pathlib import Path

from tests.network.members import (
    Network,
    Who,
    everybody,
    is_settled_up,
    network,
)

from atoll.job.audit import EQUAL, Extent, JobCheck, audit
from atoll.job.client import Client, ClientConfig
from atoll.law.bls import KEY_BYTES
from atoll.law.certificates import Kind
from atoll.law.pay import budget
from atoll.law.safety import last_clean, unsafe_rounds
from atoll.law.words import JobStatus


async def test_a_job_of_two_rounds_is_trained_merged_audited_and_paid(tmp_path: Path) -> None:
    async with network(tmp_path, Who(), Kind.BLS, rounds=2) as running:
        view = await running.until(is_settled_up, 500)
        assert view.policy == running.cluster.deployment.addresses["BlsPolicy"]
        chain = running.session.chain
        keys = [await chain.bls_key(holder.account) for holder in view.verifiers.values()]
        assert len(set(keys)) == 3 and set(map(len, keys)) == {KEY_BYTES}
        budgeted = budget(running.manifest.terms)
        checked = await audited(running, tmp_path / "outsider")
    assert view.status is JobStatus.DONE
    for past in view.settled:
        assert past.facts.revealed == past.facts.available == 0b1111
        assert past.verdict.merged == 4
        assert past.is_consistent
        assert past.bodies
        assert 3 * past.signers.bit_count() >= 2 * len(view.verifiers)
    assert not any(holder.cuts or holder.has_fallen for holder in everybody(view))
    assert {holder.account for holder in view.providers.values()} <= set(view.paid)
    assert sum(view.paid.values()) <= budgeted
    assert unsafe_rounds(view) == ()
    assert last_clean(view).digest == view.settled[-1].verdict.state
    assert checked.faults == []
    assert {s.outcome for r in checked.rounds for s in r.seats} == {EQUAL}
    # Members let go of the updates of round 0 when it became FINAL, and of the last round's never.
    assert checked.rounds[-1].merge == EQUAL


async def audited(running: Network, home: Path) -> JobCheck:
    """What somebody finds out who has nothing but the chain and what members serve."""
    cluster = running.cluster
    config = ClientConfig(home=home, confirmations=0)
    async with Client(cluster.chain.rpc_url, cluster.deployment, None, config) as client:
        return await audit(client.attach(running.job), Extent(sample=1))
