"""Brownie's deploy script: `brownie run deploy` puts the contracts on a chain, as DEPLOY.md says.

The Python package has a deployer of its own (`atoll.chain.deploy`), which needs no Brownie; this
one is for people who work on the contracts in Brownie's console.
"""
# ruff: noqa: T201 -- Brownie's scripts report by printing

from brownie import (
    AtollToken,
    AttentionSteps,
    Claims,
    Config,
    CountingPolicy,
    FloatSteps,
    Game,
    ImportSteps,
    IntegerSteps,
    Jobs,
    Judge,
    LinkSteps,
    OptimiserSteps,
    Roster,
    Rounds,
    RoundsAudit,
    RoundsSettlement,
    Stakes,
    StateSteps,
    accounts,
)

ETHER = 10**18
DAY = 24 * 60 * 60
LONGEST_MOVES = 10 * 60 * 60
FAMILIES = (
    ImportSteps,
    IntegerSteps,
    AttentionSteps,
    FloatSteps,
    OptimiserSteps,
    StateSteps,
    LinkSteps,
)
"""By op >> 8."""
PARAMS = (100, 100, 3_000, 5_000, ETHER, ETHER)
"""missCutBps, verifierCutBps, finderShareBps, accusedShareBps, minProviderBond, minVerifierBond."""


def main() -> Rounds:
    """Deploys from the node's first account, which becomes the owner and holds all tokens."""
    return deploy(accounts[0])


def deploy(owner) -> Rounds:
    """Deploys and wires everything; the entry contract, which knows all other addresses."""
    sender = {"from": owner}
    token = AtollToken.deploy(owner, 10**9 * ETHER, sender)
    policy = CountingPolicy.deploy(sender)
    config = Config.deploy(token, owner, PARAMS, 7 * DAY, 2 * DAY, policy, sender)
    stakes = Stakes.deploy(config, sender)
    jobs = Jobs.deploy(config, sender)
    roster = Roster.deploy(config, stakes, jobs, sender)
    links = (config, stakes, jobs, roster)
    audit = RoundsAudit.deploy(*links, sender)
    settlement = RoundsSettlement.deploy(*links, sender)
    rounds = Rounds.deploy(*links, audit, settlement, sender)
    families = [family.deploy(sender) for family in FAMILIES]
    judge = Judge.deploy(families, sender)
    game = Game.deploy(token, 7 * DAY + LONGEST_MOVES, judge, sender)
    claims = Claims.deploy(stakes, jobs, roster, sender)
    stakes.wire(roster, rounds, claims, sender)
    jobs.wire(rounds, claims, sender)
    roster.wire(rounds, claims, sender)
    policy.wire(rounds, sender)
    claims.wire(rounds, game, sender)
    game.wire(claims, sender)
    for contract in (token, stakes, jobs, roster, rounds, claims, game):
        print(f"{contract._name}: {contract.address}")
    return rounds
