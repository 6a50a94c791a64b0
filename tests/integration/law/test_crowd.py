"""Whatever strangers send, several in a block: the view is what the contracts answer."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.integration.chain.local_anvil import Anvil, start_anvil, stop
from tests.integration.law.anybody import differences
from tests.integration.law.crowd import EVERYBODY, MOVE, Asked, Crowd
from tests.integration.law.getters import compared, owners_compared
from tests.integration.law.live import START, SUBMITTER, Chain, Live, live_terms
from tests.unit.law.models import PROGRAM

from atoll.law.words import TOKEN

BLOCKS = 80
ASKED = 0.2
"""How often the contracts are asked what they would take of anybody, too."""


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    node = start_anvil(
        "--block-base-fee-per-gas", "0", "--auto-impersonate", "--order", "fifo",
        "--gas-limit", str(10**9), "--timestamp", str(START - 10),
    )  # fmt: skip
    yield node
    stop(node)


@pytest.fixture
def chain(anvil: Anvil) -> Iterator[Chain]:
    chain = Chain(anvil)
    yield chain
    anvil.automine(True)


def crowd_of(chain: Chain, rng: random.Random) -> Crowd:
    terms = live_terms(
        rounds=rng.choice([3, 5, 8]),
        expiry=chain.now + rng.choice([1_000, 100_000, 100_000]),
        f=rng.choice([0, 1]),
        min_providers=1,
        min_verifiers=1,
        places=rng.choice([2, 4]),
        program=PROGRAM.root,
    )
    net = Live(chain, terms)
    for account in EVERYBODY:
        chain.send(SUBMITTER, chain.token, "transfer", account, 10_000 * TOKEN)
        for contract in (chain.game, chain.jobs, chain.stakes):
            chain.send(account, chain.token, "approve", contract.address, 10**30)
    chain.anvil.automine(False)
    return Crowd(chain, net, rng)


def check(crowd: Crowd) -> None:
    crowd.view = crowd.fold.views[crowd.job]
    every = [*compared(crowd.chain, crowd.view)]
    every += owners_compared(crowd.chain, crowd.fold.owners, EVERYBODY)
    assert crowd.fold.rejected == 0
    wrong = [one for one in every if one[1] != one[2]]
    assert wrong == [], wrong


@pytest.mark.parametrize("seed", range(3))
def test_a_view_is_what_the_contracts_answer_whatever_anybody_sends(
    chain: Chain, seed: int
) -> None:
    rng = random.Random(seed)
    crowd = crowd_of(chain, rng)
    for _ in range(BLOCKS):
        crowd.some_block()
        check(crowd)
        if rng.random() < ASKED:
            assert differences(Asked(crowd)) == set()
    assert {"sit", "enrol", "ready", "commit", "ballot", "key", MOVE} <= crowd.taken
