"""The view folded from events equals what the contracts say, after every transaction of any job."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator

import pytest
from eth_account import Account
from tests.integration.chain.conftest import KEYS
from tests.integration.chain.local_anvil import Anvil, start_anvil, stop
from tests.integration.law.random_job import RandomJob, is_over

from atoll.chain.contracts import AtollChain
from atoll.chain.deploy import deploy
from atoll.law.words import Address, Outcome

EVERY_OUTCOME = 4
SEEDS = {
    16: "done",
    21: "diverged",
    EVERY_OUTCOME: "out of attempts",
    2: "cancelled while it waits",
    9: "cancelled after a broken circuit",
    20: "expired with a broken circuit",
}
"""What each seed leads to, as far as its choices decide."""
STEPS = 80


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    node = start_anvil("--block-base-fee-per-gas", "0")
    yield node
    stop(node)


@pytest.fixture
async def chain(anvil: Anvil) -> AsyncIterator[AtollChain]:
    anvil.automine(True)
    deployment = await deploy(anvil.url, Account.from_key(KEYS[0]))
    connected = await AtollChain.connect(anvil.url, deployment)
    yield connected
    await connected.close()


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed}-{SEEDS[seed]}")
async def test_a_job_at_random_is_mirrored(anvil: Anvil, chain: AtollChain, seed: int) -> None:
    owner = Address(Account.from_key(KEYS[0]).address)
    job = RandomJob(anvil, chain, random.Random(seed), owner)
    await job.set_up()
    for _ in range(STEPS):
        if is_over(job.view):
            break
        await job.step()
    if not is_over(job.view):
        pytest.fail(f"seed {seed}: still {job.view.state.phase.name} after {STEPS} steps")
    await job.wind_up()
    if seed == EVERY_OUTCOME:
        assert job.outcomes == set(Outcome)
