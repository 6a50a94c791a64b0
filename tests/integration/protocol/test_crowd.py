"""Whatever strangers send, several in a block: the view is what the contracts answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from eth_utils.crypto import keccak
from tests.integration.chain.local_anvil import Anvil, start_anvil, stop
from tests.integration.protocol.anybody import differences
from tests.integration.protocol.chains import START, SUBMITTER, Chain
from tests.integration.protocol.crowd import Asked, Crowd
from tests.integration.protocol.crowd_job import FEW, MANY, MOVE, OUTSIDER, bls_secret
from tests.integration.protocol.getters import compared, owners_compared
from tests.integration.protocol.live import Live, live_terms
from tests.integration.protocol.orders import another_order, heads_of
from tests.unit.protocol.models import PROGRAM
from tests.unit.protocol.script import PROVIDERS, VERIFIERS

from atoll.chain.contracts import AtollChain
from atoll.chain.follower import Fold, Follower
from atoll.chain.index import EventIndex
from atoll.chain.log_heads import behind_of
from atoll.job.account import statements
from atoll.job.holdings import HeldByContracts, holdings
from atoll.protocol import bls
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.types import TOKEN, Address, Role

BLOCKS = 80
COMMITTEE = 32
ASKED = 0.2
"""How often the contracts are asked what they would take of anybody, too."""
ORDERS = 10
LOG_HEAD = f"0x{keccak(b'logHead(uint256)')[:4].hex()}"
LOOKS, REORGS, DEEPEST = 0.7, 0.15, 8
"""How often a follower looks, and blocks are taken back; fewer than so many."""


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    node = start_anvil(
        "--block-base-fee-per-gas", "0", "--auto-impersonate", "--order", "fifo",
        "--gas-limit", str(10**9), "--timestamp", str(START - 10),
    )  # fmt: skip
    yield node
    stop(node)


@pytest.fixture
def chain(anvil: Anvil, policy: str) -> Iterator[Chain]:
    chain = Chain(anvil, policy)
    yield chain
    anvil.automine(True)


def crowd_of(chain: Chain, rng: random.Random, signers: tuple[Address, ...] = FEW) -> Crowd:
    terms = live_terms(
        rounds=rng.choice([3, 5, 8]),
        expiry=chain.now + rng.choice([1_000, 100_000, 100_000]),
        f=rng.choice([0, 1]),
        min_providers=1,
        min_verifiers=1,
        slots=rng.choice([2, 4]) if signers is FEW else len(signers) - 2,
        program=PROGRAM.root,
    )
    net = Live(chain, terms)
    for account in signers[len(VERIFIERS) :]:
        net._stake(account)
    for account in (*PROVIDERS[:5], *signers, OUTSIDER):
        chain.send(SUBMITTER, chain.token, "transfer", account, 10_000 * TOKEN)
        for contract in (chain.game, chain.jobs, chain.stakes):
            chain.send(account, chain.token, "approve", contract.address, 10**30)
    chain.anvil.automine(False)
    return Crowd(chain, net, rng, signers)


def check_holdings(crowd: Crowd) -> set[str]:
    """Of everybody, what earnings tell is what the contracts hold; which amounts there were."""
    chain, had = crowd.chain, set()
    everybody = dict.fromkeys((*crowd.everybody, *VERIFIERS))
    for account in everybody:
        has = holdings(crowd.events, account)
        stakes = [chain.call(chain.stakes, "stakeOf", account, role) for role in Role]
        found = HeldByContracts(
            sum(active + unbonding for active, _, unbonding in stakes),
            chain.call(chain.game, "owed", account)[0],
            chain.call(chain.jobs, "keptOf", account)[0],
        )
        assert list(has.faults(found)) == []
        (told,) = statements({crowd.job: crowd.view}, crowd.items, account, chain.now) or (None,)
        assert told is None or told.faults == ()
        had |= {name for name in ("won", "slashed", "bonds", "gained") if getattr(has, name)}
    return had


def check(crowd: Crowd) -> None:
    crowd.view = crowd.fold.views[crowd.job]
    every = [*compared(crowd.chain, crowd.view)]
    every += owners_compared(crowd.chain, crowd.fold.owners, crowd.everybody)
    assert crowd.fold.rejected == 0
    wrong = [one for one in every if one[1] != one[2]]
    assert wrong == [], wrong


def end_games(crowd: Crowd) -> None:
    """Whoever is to move stays silent, in one game after the other."""
    while open_ := [game for game in crowd.view.games.values() if game.is_open]:
        game = crowd.chain.game
        crowd.block([(OUTSIDER, game, "timeout", (one.id,)) for one in open_], 400)
        check(crowd)


def check_orders(crowd: Crowd, rng: random.Random) -> None:
    """Whatever order of two contracts' logs in a block leads to the same heads, the view is one."""
    behind = behind_of(crowd.deployment.addresses)
    heads = heads_of(crowd.raws, behind)
    for key, head in heads.items():
        call = {"to": key.contract, "data": LOG_HEAD + f"{key.job:064x}"}
        word = crowd.chain.anvil.ask("eth_call", call, "latest")
        assert bytes.fromhex(word[2:]) == head, key
    for _ in range(ORDERS):
        order = another_order(crowd.raws, behind, rng)
        assert order != sorted(order)
        assert heads_of([crowd.raws[n] for n in order], behind) == heads
        fold = Fold(crowd.deployment, None)
        fold.fold_all(crowd.items[n] for n in order)
        assert fold.rejected == 0
        assert fold.views[crowd.job] == crowd.view


@pytest.mark.parametrize("policy", ["EcdsaPolicy"])
@pytest.mark.parametrize("seed", range(3))
def test_a_view_is_what_the_contracts_answer_whatever_anybody_sends(
    chain: Chain, seed: int
) -> None:
    rng = random.Random(seed)
    crowd = crowd_of(chain, rng)
    had: set[str] = set()
    for _ in range(BLOCKS):
        crowd.some_block()
        check(crowd)
        if rng.random() < ASKED:
            had |= check_holdings(crowd)
            assert differences(Asked(crowd)) == set()
    end_games(crowd)
    had |= check_holdings(crowd)
    check_orders(crowd, rng)
    assert "bonds" in had
    # Who is drawn, and so who loses, follows from block hashes, and these from every contract.
    outcomes = {game.outcome for game in crowd.view.games.values()}
    assert outcomes
    assert "slashed" in had or Outcome.HOLDER_LOST not in outcomes
    assert {"join", "enrol", "ready", "commit", "sealAuditReport", "key", MOVE} <= crowd.taken


def register(crowd: Crowd) -> None:
    """The members' BLS keys, of all but one."""
    policy, calls = crowd.chain.policy, []
    for account in crowd.signers[:-1]:
        secret = bls_secret(account)
        key = bls.key_of(secret)
        chain_id = crowd.net.domain.chain_id
        message = bls.proof_message(chain_id, policy.address, account, key)
        proof = bls.added([bls.sign(secret, message, bls.PROVE)])
        calls.append((account, policy, "register", (key, proof)))
    crowd.block(calls, 1)
    assert "register" in crowd.taken


def enter(crowd: Crowd) -> None:
    """Members in most slots, some of them with one bond and some with another, and seats."""
    members, job = crowd.chain.members, crowd.job
    bond = crowd.terms.verifier_bond
    for at in range(0, len(MANY) - 4, 11):
        some = list(enumerate(MANY))[at : at + 11]
        bids = [(a, i, bond * (10 + i % 3) // 10) for i, a in some]
        proofs = [crowd.chain.enrolment(a, job, i, bid) for a, i, bid in bids]
        joined = [
            (a, members, "enrol", (job, i, bid, shown))
            for (a, i, bid), shown in zip(bids, proofs, strict=True)
        ]
        crowd.block([*joined, *((a, members, "ready", (job,)) for _, a in some)], 1)
    crowd.block([(a, members, "join", (job, i)) for i, a in enumerate(PROVIDERS[:4])], 1)


@pytest.mark.parametrize("policy", ["BlsPolicy"])
def test_it_is_in_a_job_of_bls_certificates_and_more_members_than_a_committee_has(
    chain: Chain,
) -> None:
    rng = random.Random(1)
    crowd = crowd_of(chain, rng, MANY)
    register(crowd)
    enter(crowd)
    for block in range(2 * BLOCKS):
        crowd.some_block()
        check(crowd)
        if crowd.view.settled and block >= BLOCKS // 4:
            break
    # Later ones may be smaller, as members leave.
    assert crowd.view.settled[0].record.committee.bit_count() == COMMITTEE


@pytest.mark.parametrize("policy", ["EcdsaPolicy"])
async def test_who_follows_it_has_that_view_whatever_a_reorg_takes_back(
    chain: Chain, tmp_path: Path
) -> None:
    rng = random.Random(3)
    crowd = crowd_of(chain, rng)
    reader = AtollChain([chain.anvil.url], crowd.deployment)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(reader.close)
        index = EventIndex(reader, confirmations=0, path=tmp_path / "index.sqlite")
        stack.callback(index.close)
        follower, snapshots, turned = Follower(index, crowd.deployment), list[tuple[str, int]](), 0
        for _ in range(BLOCKS):
            snapshots.append((chain.anvil.ask("evm_snapshot"), chain.now))
            crowd.some_block()
            if rng.random() < LOOKS:  # else it sees this block with the next one, or never
                turned += (await follower.poll()).turned is not None
                # A chain that is shorter than what was seen is one of an endpoint that lags.
                if chain.anvil.height() >= follower.confirmed:
                    assert follower.views[crowd.job] == crowd.view
            if rng.random() < REORGS:
                del snapshots[max(0, len(snapshots) - rng.randrange(DEEPEST)) + 1 :]
                crowd.turn_back(*snapshots.pop())
        while chain.anvil.height() <= follower.confirmed:
            crowd.some_block()
        check(crowd)
        await follower.poll()
        assert follower.views[crowd.job] == crowd.view
        assert (follower.rejected, turned > 0) == (0, True)
