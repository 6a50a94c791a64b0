"""The endpoints, the clock against the chain's, the contracts, and what the account has."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import DEVELOPMENT_CHAINS, Deployment
from atoll.chain.inspection import ContractCheck, read_parameters, verify_contracts
from atoll.chain.keys import address_of
from atoll.chain.response_checks import header, quantity
from atoll.chain.rpc import FailoverProvider
from atoll.chain.urls import redact
from atoll.errors import AtollError, ChainError, KeystoreError
from atoll.protocol.token_units import whole_token
from atoll.protocol.types import TOKEN, Address, BlockRef, Role
from atoll.service.doctor.findings import Finding, Level, failure, ok, warning
from atoll.service.doctor.subject import Subject

USUAL_GAS: Final = 5_000_000
"""Of about twenty transactions."""
LEAST_GAS: Final = 300_000
"""Of one."""
AHEAD_SECONDS: Final = 15
"""A block's time may be so far in the future of honest clocks (go-ethereum's own bound)."""
OLD_SECONDS: Final = 120
FAR_BLOCKS: Final = 5


DEEP_ENOUGH: Final = 2
"""Blocks below the newest that an endpoint has: above, two honest ones may differ for a moment."""


@dataclass(frozen=True, slots=True)
class SeenEndpoint:
    """What one endpoint said."""

    url: str
    chain_id: int
    head: BlockRef


async def check_chain(subject: Subject) -> list[Finding]:
    """Everything about the chain; where it cannot be asked, the rest is left out."""
    if not subject.rpc_urls:
        step = "pass --rpc URL and --deployment FILE, or --config FILE"
        return [warning("endpoint", "no endpoint is named", step)]
    findings, seen = await _check_endpoints(subject.rpc_urls)
    if not seen:
        return findings
    findings += _check_clock(max(seen, key=lambda each: each.head.number))
    if subject.deployment is None:
        step = "pass --deployment FILE"
        return [*findings, warning("contracts", "no deployment file is named", step)]
    try:
        deployment = Deployment.load(subject.deployment)
    except AtollError as error:
        return [*findings, failure("contracts", str(error), error.next_step or "correct the file")]
    wrong = [each for each in seen if each.chain_id != deployment.chain_id]
    if wrong:
        names = ", ".join(redact(each.url) for each in wrong)
        text = f"{names}: chain {wrong[0].chain_id}, and the deployment is on {deployment.chain_id}"
        return [*findings, failure("chain id", text, "use endpoints of the deployment's chain")]
    findings.append(ok("chain id", f"{deployment.chain_id}, as the deployment says"))
    findings += await _check_agreement(seen)
    return findings + await _check_deployment(subject, deployment)


async def _check_endpoints(urls: tuple[str, ...]) -> tuple[list[Finding], list[SeenEndpoint]]:
    findings: list[Finding] = []
    seen: list[SeenEndpoint] = []
    for url in urls:
        try:
            seen.append(await _look(url))
        except AtollError as error:
            step = "check that the node runs and that the URL is right, or take it out"
            findings.append(failure("endpoint", str(error), step))
        else:
            head = seen[-1].head.number
            findings.append(ok("endpoint", f"{redact(url)} answers, at block {head}"))
    if len(urls) == 1:
        step = "name a second endpoint of somebody else in rpc_urls"
        findings.append(warning("endpoints", "only one: its faults are yours", step))
    heads = [each.head.number for each in seen]
    if heads and max(heads) - min(heads) > FAR_BLOCKS:
        last = min(seen, key=lambda each: each.head.number)
        text = f"{redact(last.url)} is {max(heads) - min(heads)} blocks behind another"
        findings.append(warning("endpoints", text, "put it last in rpc_urls, or take it out"))
    return findings, seen


async def _check_agreement(seen: list[SeenEndpoint]) -> list[Finding]:
    """Whether all endpoints give one block alike, which is deep enough for each to have it."""
    number = min(each.head.number for each in seen) - DEEP_ENOUGH
    if len(seen) < 2 or number < 0:
        return []
    provider = FailoverProvider([each.url for each in seen], chain_id=None)
    try:
        blocks = await provider.ask_all("eth_getBlockByNumber", [hex(number), False], header)
    finally:
        await provider.disconnect()
    given = {block: redact(url) for url, block in blocks.items()}
    if len(given) < 2:
        return [ok("agreement", f"all endpoints give the same block {number}")]
    text = f"{' and '.join(given.values())} give different blocks {number}"
    step = "take the wrong one out; a third endpoint, or a node of your own, tells which it is"
    return [failure("agreement", text, step)]


async def _look(url: str) -> SeenEndpoint:
    provider = FailoverProvider([url], chain_id=None)
    try:
        chain_id = await provider.ask("eth_chainId", [], quantity)
        newest = await provider.ask("eth_getBlockByNumber", ["latest", False], header)
    finally:
        await provider.disconnect()
    return SeenEndpoint(url, chain_id, newest.ref)


def _check_clock(seen: SeenEndpoint, now: float | None = None) -> list[Finding]:
    """This machine's clock against the newest block's time, which may be any on a chain for
    development: where windows are skipped, its time is moved on.
    """
    head = seen.head
    age = (time.time() if now is None else now) - head.timestamp
    if age < -AHEAD_SECONDS and seen.chain_id in DEVELOPMENT_CHAINS:
        text = f"development chain {seen.chain_id} is {-age:.0f} s ahead of this machine"
        return [ok("clock", f"{text}, as where windows are skipped; services go by its time")]
    if age < -AHEAD_SECONDS:
        text = f"block {head.number} is {-age:.0f} s in this machine's future"
        return [failure("clock", text, "set the clock: `timedatectl set-ntp true`")]
    if age > OLD_SECONDS:
        text = f"the newest block, {head.number}, is {age:.0f} s old"
        step = "check the clock (`timedatectl`) and whether the chain makes blocks"
        return [warning("clock", text, step)]
    return [ok("clock", f"{age:.0f} s after block {head.number}")]


async def _check_deployment(subject: Subject, deployment: Deployment) -> list[Finding]:
    chain = AtollChain(subject.rpc_urls, deployment)
    try:
        findings = [_contracts(await verify_contracts(chain))]
        account = _account_of(subject.keystore)
        if account is not None and findings[0].level is Level.OK:
            findings += await _check_money(chain, account, subject)
            if subject.fee_cap and deployment.chain_id not in DEVELOPMENT_CHAINS:
                findings.append(_check_fees(subject))
            findings.append(await _check_owner(chain, account, subject.owner))
        return findings
    except ChainError as error:
        return [failure("contracts", str(error), error.next_step or "check the endpoints")]
    finally:
        await chain.close()


def _contracts(checks: list[ContractCheck]) -> Finding:
    wrong = [f"{c.name} at {c.address}: {problem}" for c in checks for problem in c.problems]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        step = "ask whoever runs the network for its deployment file and version"
        return failure("contracts", wrong[0] + more, step)
    return ok("contracts", f"all {len(checks)} are there, with this version's code")


async def _check_money(chain: AtollChain, account: Address, subject: Subject) -> list[Finding]:
    """Coin for gas, and tokens for a bond, of which some may be staked already."""
    price = 2 * await chain.base_fee() + 10**9
    price = min(price, subject.fee_cap) if subject.fee_cap else price
    coin = await chain.native_balance(account)
    sent = coin // (price * LEAST_GAS)
    text = f"{account} has {coin / TOKEN:g} of the chain's coin, for about {sent:,} transactions"
    findings = [ok("gas", text)]
    step = f"send it at least {price * USUAL_GAS / TOKEN:g} of the chain's coin"
    if coin < price * LEAST_GAS:
        findings = [failure("gas", text, step)]
    elif coin < price * USUAL_GAS:
        findings = [warning("gas", text, step)]
    return findings + await _check_bond(chain, account, subject.owner)


def _check_fees(subject: Subject) -> Finding:
    """Whether a time of dear blocks costs bonds."""
    cap = f"{subject.fee_cap / 10**9:g} gwei"
    if subject.fee_per_stake:
        text = f"{cap} a gas at most; to keep a bond {subject.fee_per_stake:g} coins a token of it"
        return ok("fees", text)
    text = f"while a gas costs more than {cap}, games are lost, and bonds for keys not shown"
    step = "say in [fees] what a token is worth: token_in_coin"
    return warning("fees", text, step)


async def _check_bond(chain: AtollChain, account: Address, wanted: str | None) -> list[Finding]:
    """What an owner stakes never lies in the account's own wallet."""
    wallet = await chain.token_balance(account)
    staked = sum([(await chain.stake(account, role)).active for role in Role])
    parameters = (await read_parameters(chain))["Config"]["params"]
    least = min(int(value) for name, value in parameters.items() if name.endswith("Bond"))
    text = f"{account} has {wallet / whole_token():g} tokens and {staked / whole_token():g} staked"
    if wallet + staked < least:
        step = f"send it at least {least / whole_token():g} tokens; a job may ask for more"
        owner = wanted or (await chain.ownership(account)).owner
        if owner.lower() != account.lower():
            add = f"`atoll stake add AMOUNT --as ROLE --node {account}` by the key of {owner}"
            step = f"{add}, once it owns the account; {least / whole_token():g} tokens at least"
        return [failure("bond", f"{text}; no bond is below {least / whole_token():g}", step)]
    return [ok("bond", text)]


async def _check_owner(chain: AtollChain, account: Address, wanted: str | None) -> Finding:
    """Whose the money is: what the key on this machine could take away, if somebody stole it."""
    owned = await chain.ownership(account)
    if wanted is not None and owned.owner.lower() != wanted.lower():
        text = f"{account} belongs to {owned.owner}, and its config names {wanted}"
        first = f"`atoll stake owner propose {wanted}` by {owned.owner}'s key, then "
        step = f"`atoll stake owner accept --node {account}` by the key of {wanted}"
        is_asked = (owned.proposed or "").lower() == wanted.lower()
        return failure("owner", text, step if is_asked else first + step)
    if owned.owner != account:
        text = f"{owned.owner} alone moves the stake of {account}; its pay goes to {owned.payee}"
        return ok("owner", text)
    stakes = [await chain.stake(account, role) for role in Role]
    within_reach = sum(stake.active + stake.unbonding for stake in stakes)
    if not within_reach:
        return ok("owner", f"{account} owns itself, and nothing is staked")
    tokens = within_reach / whole_token()
    text = f"whoever has this machine's key can take {tokens:g} staked tokens and pay"
    step = f"`atoll stake owner propose ADDRESS`, a key kept elsewhere, then accept for {account}"
    return warning("owner", text, step)


def _account_of(keystore: Path | None) -> Address | None:
    """Whose keystore it is, as it says itself; what is wrong with it is another check's to say."""
    try:
        return None if keystore is None else address_of(keystore)
    except KeystoreError:
        return None
