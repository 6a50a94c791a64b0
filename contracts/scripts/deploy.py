"""Brownie's deploy script: `brownie run deploy` puts the contracts on a chain, as DEPLOY.md says.

The Python package has a deployer of its own (`atoll.chain.deploy`), which needs no Brownie; this
one is for people who work on the contracts in Brownie's console. Both send the same transactions,
which tests/unit/chain/test_brownie.py and tests/integration/chain/test_brownie.py hold equal.
"""
# ruff: noqa: T201 -- Brownie's scripts report by printing

from brownie import (
    AtollToken,
    AttentionSteps,
    Audits,
    BlsPolicy,
    Claims,
    Config,
    DerivedStrikes,
    EcdsaPolicy,
    FloatSteps,
    Game,
    HistoryBeacon,
    ImportSteps,
    IntegerSteps,
    Jobs,
    Judge,
    LateVotes,
    Members,
    OptimiserSteps,
    RolloutSteps,
    Rounds,
    RoundsMembership,
    RoundsSettlement,
    Stakes,
    StateSteps,
    Strikes,
    UpdateProofSteps,
    accounts,
    web3,
)

ETHER = 10**18
DAY = 24 * 60 * 60
LONGEST_GAME = 7 * DAY + 10 * 60 * 60
FAMILIES = (
    ImportSteps,
    IntegerSteps,
    AttentionSteps,
    FloatSteps,
    OptimiserSteps,
    StateSteps,
    UpdateProofSteps,
    RolloutSteps,
)
"""By op >> 8."""
PARAMS = (100, 3_000, 1, 1, 1, ETHER, ETHER)
"""penaltyBps, winnerShareBps, minWindow, minMove, minPunishable, minProviderBond, minVerifierBond:
of a development chain (`atoll.chain.default_params`)."""


G1_ADD = "0x000000000000000000000000000000000000000b"
"""EIP-2537's addition of two points; of nothing and nothing here, which is nothing of 128 bytes."""


def main() -> Rounds:
    """Deploys from the node's first account, which becomes the owner and holds all tokens."""
    return deploy(accounts[0])


def deploy(owner) -> Rounds:
    """Deploys and wires everything; the entry contract, which knows all other addresses."""
    sender = {"from": owner}
    token = AtollToken.deploy(owner, 10**9 * ETHER, 18, sender)
    policies = [EcdsaPolicy.deploy(sender)]
    if has_bls():
        policies.append(BlsPolicy.deploy(sender))
    beacon = HistoryBeacon.deploy(sender)
    fixed = (7 * DAY, 2 * DAY, LONGEST_GAME, beacon)
    config = Config.deploy(token, owner, PARAMS, *fixed, policies, sender)
    stakes = Stakes.deploy(config, sender)
    families = [family.deploy(sender) for family in FAMILIES]
    judge = Judge.deploy(families, sender)
    game = Game.deploy(token, LONGEST_GAME, judge, sender)
    # The escrow's code names the contracts that it asks, which come after it.
    asked = [owner.get_deployment_address(owner.nonce + count) for count in (3, 4, 5)]
    jobs = Jobs.deploy(config, *asked, game, sender)
    settlement = RoundsSettlement.deploy(jobs, sender)
    membership = RoundsMembership.deploy(jobs, sender)
    rounds = Rounds.deploy(jobs, LONGEST_GAME, settlement, membership, sender)
    members = Members.deploy(stakes, jobs, sender)
    audits = Audits.deploy(rounds, members, jobs, sender)
    late_votes = LateVotes.deploy(rounds, members, audits, sender)
    derived = DerivedStrikes.deploy(rounds, members, jobs, sender)
    strikes = Strikes.deploy(rounds, members, jobs, derived, sender)
    claims = Claims.deploy(rounds, members, jobs, audits, sender)
    stakes.wire(members, jobs, sender)
    rounds.wire(members, audits, late_votes, strikes, sender)
    members.wire(rounds, audits, late_votes, claims, strikes, game, sender)
    audits.wire(game, sender)
    claims.wire(game, sender)
    game.wire(claims, sender)
    for contract in (
        token,
        *policies,
        beacon,
        config,
        stakes,
        jobs,
        members,
        rounds,
        audits,
        late_votes,
        claims,
        game,
    ):
        print(f"{contract._name}: {contract.address}")
    return rounds


def has_bls() -> bool:
    """Whether the chain has the precompiles of BLS12-381."""
    return bytes(web3.eth.call({"to": G1_ADD, "data": "0x" + "00" * 256})) == bytes(128)
