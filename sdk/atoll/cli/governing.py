"""`atoll network pause | resume | propose | apply | owner`: what the owner of a network decides.

Rule of this file: the contract is asked whether it would do a thing before anybody pays for it, and
its refusal is put into words.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.network_commands import (
    SIGNING,
    Command,
    Network,
    known_address,
    need_deployment,
    taking,
)
from atoll.cli.output import Json, agree, emit, say
from atoll.cli.parameters import Settings, changes, configuration_lines, parameters, plain, refused
from atoll.errors import AtollError, ConfigError, TransactionFailed
from atoll.job.readable import moment

if TYPE_CHECKING:
    from atoll.chain.call import Call
    from atoll.chain.configuration import Configuration
    from atoll.chain.contract_views import ProposedPolicy
    from atoll.chain.contracts import AtollChain
    from atoll.protocol.types import Address

owner = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Whose the network is: show, propose, accept."
)
Unsigned = Annotated[
    bool,
    typer.Option("--unsigned", help="Print the transaction for the owner's wallet; send nothing."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before it is sent.")]
ZERO = "0x" + "00" * 20
OURS = "network:"
"""What keys of these transactions begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """With which key a thing is done, or how it is handed to who has that; and whether to ask."""

    network: Network
    unsigned: bool
    yes: bool

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AtollChain]:
        """The chain, without a key. Raises ConfigError, ChainError."""
        from atoll.chain.contracts import AtollChain
        from atoll.chain.deployment import Deployment

        deployment = Deployment.load(need_deployment(self.network.deployment))
        chain = await AtollChain.connect(self.network.rpc.split(","), deployment)
        try:
            yield chain
        finally:
            await chain.close()

    def sender(self, whoever: Address) -> Address:
        """Who would send: `whoever` where the transaction is for another's wallet.

        Raises:
            ConfigError: no key is named. KeystoreError: it cannot be read.
        """
        from atoll.chain.keys import address_of

        if self.unsigned:
            return whoever
        if self.network.keystore is None:
            raise ConfigError(
                "this needs a key to sign with",
                next_step="pass --keystore FILE; or --unsigned, for a wallet that has the key",
            )
        return address_of(self.network.keystore.expanduser())


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a command is about to do.

    Attributes:
        action: what is asked: "pause the network".
        effect: a line each of what it does.
        calls: empty where all is so already.
        whoever: whose wallet sends it, where that is not this machine's to say.
    """

    action: str
    effect: tuple[str, ...]
    calls: tuple[Call, ...]
    whoever: Address


Planned = Callable[["AtollChain", "Configuration"], Awaitable[Plan]]


def governing() -> Callable[[Command], Command]:
    """Has a command take a network, a key, and how to go about it, for its argument `way`."""

    def made(unsigned: bool, yes: bool, **given: Any) -> Way:
        return Way(network=Network(**given), unsigned=unsigned, yes=yes)

    options = {"unsigned": (Unsigned, False), "yes": (Yes, False), **SIGNING}
    return taking("way", options, made)


@governing()
def pause(*, way: Way, json: Json = False) -> None:
    """Have no new job created, by the owner's key. Everything else goes on: open jobs to their end,
    members that join them, audits, games, claims, refunds, and stake in and out.
    """
    _carried_out(way, json, lambda chain, now: _pausing(chain, now, paused=True))


@governing()
def resume(*, way: Way, json: Json = False) -> None:
    """Have jobs created again, by the owner's key."""
    _carried_out(way, json, lambda chain, now: _pausing(chain, now, paused=False))


@governing()
def propose(
    settings: Settings = None,
    policy: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A contract that checks certificates, to be allowed."),
    ] = None,
    forbid: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A policy that new jobs may not name any more."),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Take everything proposed back.")] = False,
    *,
    way: Way,
    json: Json = False,
) -> None:
    """Propose parameters, or a policy of certificates, for jobs that are not created yet.

    It can be applied once the network's delay for changes has passed. One of parameters and one of
    policies can wait; a second one takes the place of the first, and waits from the beginning.
    """
    if (bool(settings), policy is not None, forbid is not None, drop).count(True) != 1:
        raise ConfigError(
            "what is proposed?",
            next_step="pass --set KEY=VALUE, as often as you like, --policy ADDRESS, --forbid "
            "ADDRESS or --drop",
        )
    if drop:
        _carried_out(way, json, _dropping)
    elif policy is not None:
        wanted = known_address(policy, "--policy")
        _carried_out(way, json, lambda chain, now: _allowing(chain, now, wanted))
    elif forbid is not None:
        unwanted = known_address(forbid, "--forbid")
        _carried_out(way, json, lambda chain, now: _forbidding(chain, now, unwanted))
    else:
        _carried_out(way, json, lambda chain, now: _proposing_params(chain, now, settings or []))


@governing()
def apply(*, way: Way, json: Json = False) -> None:
    """Apply what was proposed and has waited for long enough: anybody may, and pays the gas."""
    _carried_out(way, json, lambda chain, now: _applying(chain, now, way))


@owner.command()
@governing()
def show(*, way: Way, json: Json = False) -> None:
    """Show who owns the network, who may accept to, and what it has proposed."""
    _show(asyncio.run(_read(way)), as_json=json)


@owner.command("propose")
@governing()
def propose_owner(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="0x and 40 digits.")],
    *,
    way: Way,
    json: Json = False,
) -> None:
    """Say who shall own the network, by its owner's key; nothing changes before that one runs
    `accept`. The zero address takes a proposal back.
    """
    _carried_out(
        way, json, lambda chain, now: _handing(chain, now, known_address(address, "ADDRESS"))
    )


@owner.command()
@governing()
def accept(*, way: Way, json: Json = False) -> None:
    """Own the network from now on, by the key that was proposed."""
    _carried_out(way, json, lambda chain, now: _accepting(chain, now, way))


async def _pausing(chain: AtollChain, now: Configuration, *, paused: bool) -> Plan:
    calls = () if now.paused == paused else (chain.calls.set_paused(paused),)
    effect = "no new job is created; open jobs, claims, refunds and stake go on as before"
    return Plan(
        action="pause the network" if paused else "end the pause of the network",
        effect=(effect if paused else "jobs are created again",),
        calls=calls,
        whoever=now.owner,
    )


async def _proposing_params(chain: AtollChain, now: Configuration, settings: list[str]) -> Plan:
    wanted, waits = parameters(now.params, settings), now.proposed_params
    is_proposed = waits is not None and waits.proposed == wanted
    if wanted == now.params and waits is None:
        raise ConfigError("these are the network's parameters already")
    effect = [*changes(now.params, wanted), await _due(chain, now)]
    if waits is not None and not is_proposed:
        effect.append(f"it takes the place of what can be applied from {_on(waits.applicable_at)}")
    return Plan(
        action="propose these parameters",
        effect=tuple(effect),
        calls=() if is_proposed else (chain.calls.propose_params(wanted),),
        whoever=now.owner,
    )


async def _allowing(chain: AtollChain, now: Configuration, policy: Address) -> Plan:
    from atoll.chain.contract_views import ProposedPolicy, is_policy

    if not await chain.code_at(policy):
        raise ConfigError(f"there is no contract at {policy}", next_step="deploy the policy first")
    if await chain.ask(is_policy(policy)):
        raise ConfigError(f"{policy} is allowed already")
    effect = "once applied, jobs may name it; those that do keep it, whatever is forbidden later"
    return await _proposing_policy(chain, now, ProposedPolicy(policy, True, 0), effect)


async def _forbidding(chain: AtollChain, now: Configuration, policy: Address) -> Plan:
    from atoll.chain.contract_views import ProposedPolicy, is_policy

    if not await chain.ask(is_policy(policy)):
        raise ConfigError(f"{policy} is not allowed")
    effect = "once applied, no new job may name it; jobs that do go on with it"
    return await _proposing_policy(chain, now, ProposedPolicy(policy, False, 0), effect)


async def _proposing_policy(
    chain: AtollChain, now: Configuration, wanted: ProposedPolicy, effect: str
) -> Plan:
    waits, what = now.proposed_policy, (wanted.policy, wanted.is_allowed)
    is_proposed = waits is not None and (waits.policy, waits.is_allowed) == what
    effects = [effect, await _due(chain, now)]
    if waits is not None and not is_proposed:
        effects.append(f"it takes the place of {waits.policy}")
    return Plan(
        action=f"propose {'the policy' if wanted.is_allowed else 'to forbid'} {wanted.policy}",
        effect=tuple(effects),
        calls=() if is_proposed else (chain.calls.propose_policy(*what),),
        whoever=now.owner,
    )


async def _dropping(chain: AtollChain, now: Configuration) -> Plan:
    return Plan(
        action="take back all that is proposed",
        effect=("what is in force stays so",),
        calls=(chain.calls.drop_proposals(),) if now.proposed_params or now.proposed_policy else (),
        whoever=now.owner,
    )


async def _applying(chain: AtollChain, now: Configuration, way: Way) -> Plan:
    """Of what is proposed that which the contract would apply now.

    Raises:
        ConfigError: nothing is proposed, or it is too early for all of it.
    """
    waiting: list[tuple[Call, list[str]]] = []
    if (params := now.proposed_params) is not None:
        waiting.append((chain.calls.apply_params(), changes(now.params, params.proposed)))
    if (policy := now.proposed_policy) is not None:
        named = (
            f"{'jobs' if policy.is_allowed else 'no new job'} may name the policy {policy.policy}"
        )
        waiting.append((chain.calls.apply_policy(), [named]))
    if not waiting:
        raise ConfigError("nothing is proposed", next_step="as the owner: `atoll network propose`")
    calls: list[Call] = []
    effect: list[str] = []
    later: list[AtollError] = []
    me = way.sender(now.owner)
    for call, lines in waiting:
        try:
            await chain.simulate(call, me)
        except TransactionFailed as failed:
            later.append(refused(failed, now, me))
        else:
            calls.append(call)
            effect += lines
    if not calls:
        raise later[0]
    effect += ["of jobs that are created from then on; open ones keep theirs", *map(str, later)]
    return Plan(
        action="apply what is proposed",
        effect=tuple(effect),
        calls=tuple(calls),
        whoever=now.owner,
    )


async def _handing(chain: AtollChain, now: Configuration, to: Address) -> Plan:
    nobody = to == ZERO
    effect = f"{now.owner} stays the owner until {to} runs `atoll network owner accept`"
    return Plan(
        action="take the offer of the network back" if nobody else f"offer the network to {to}",
        effect=(f"{now.owner} stays the owner" if nobody else effect,),
        calls=() if (now.next_owner or ZERO) == to else (chain.calls.transfer_ownership(to),),
        whoever=now.owner,
    )


async def _accepting(chain: AtollChain, now: Configuration, way: Way) -> Plan:
    if way.unsigned and now.next_owner is None:
        raise ConfigError(f"the network belongs to {now.owner}, and is offered to nobody")
    me = way.sender(now.next_owner or now.owner)
    if me not in {now.owner, now.next_owner}:
        raise ConfigError(
            f"the network belongs to {now.owner} and is offered to "
            f"{now.next_owner or 'nobody'}, not to {me}",
            next_step=f"with the present owner's key: `atoll network owner propose {me}`",
        )
    return Plan(
        action="own the network",
        effect=(f"{me} alone pauses, proposes and drops from then on; {now.owner} no more",),
        calls=() if me == now.owner else (chain.calls.accept_ownership(),),
        whoever=me,
    )


async def _due(chain: AtollChain, now: Configuration) -> str:
    """From when on what is proposed now can be applied, in words."""
    at = (await chain.head()).timestamp + now.change_delay
    return f"anybody can apply it from about {_on(at)}; open jobs keep what they began with"


def _on(second: int) -> str:
    return f"{moment(second)} on"


def _carried_out(way: Way, json: bool, planned: Planned) -> None:
    """Says what a command is about to do, asks, does it, and tells what is so then."""
    if not way.unsigned:
        asyncio.run(_finished(way))
    plan, unsigned = asyncio.run(_planned(way, planned))
    if plan.calls or not way.unsigned:
        for line in plan.effect if plan.calls else ("it is so already: nothing is sent",):
            say(line)
    if way.unsigned:
        text = [f"from {each['from']}, to {each['to']}, data {each['data']}" for each in unsigned]
        emit({"transactions": unsigned}, "\n".join(text) or "it is so already", as_json=json)
        return
    if plan.calls:
        agree(plan.action, yes=way.yes, as_json=json)
        asyncio.run(_sent(way, plan))
    _show(asyncio.run(_read(way)), as_json=json)


async def _planned(way: Way, planned: Planned) -> tuple[Plan, list[dict[str, Any]]]:
    """The plan, which the contract would carry out now, and its transactions for a wallet.

    Raises:
        ConfigError: the contract would refuse.
    """
    from atoll.chain.configuration import read_configuration

    async with way.reading() as chain:
        now = await read_configuration(chain)
        plan = await planned(chain, now)
        for call in plan.calls:
            sender = way.sender(plan.whoever)
            try:
                await chain.simulate(call, sender)
            except TransactionFailed as failed:
                raise refused(failed, now, sender) from failed
        unsigned = [
            {
                "call": call.label,
                "chain_id": chain.deployment.chain_id,
                "from": plan.whoever,
                "to": call.to,
                "value": "0",
                "data": f"0x{call.data.hex()}",
            }
            for call in plan.calls
        ]
        return plan, unsigned


async def _finished(way: Way) -> None:
    """Waits for what was agreed to earlier and is in no block yet: what is so follows from it."""
    from atoll.chain.txfile import QUEUE_FILE, read_intents
    from atoll.service.transactions import UNDER_WAY

    path = way.network.home.expanduser() / QUEUE_FILE
    every = read_intents(path) if path.exists() else []
    ours = [intent for intent in every if intent.key.startswith(OURS) and intent.state in UNDER_WAY]
    if not ours:
        return
    async with way.network.open(must_sign=True) as client, client.sending() as queue:
        for intent in ours:
            say(f"{intent.call.label}, which you agreed to before, is in no block yet: it is first")
            with suppress(TransactionFailed):  # it has no effect then, and nothing follows from it
                await queue.wait(intent.key)


async def _sent(way: Way, plan: Plan) -> None:
    """Sends it, and waits. Raises ChainError."""
    from atoll.chain.txqueue import unspent_key

    async with way.network.open(must_sign=True) as client, client.sending() as queue:
        for call in plan.calls:
            key = unspent_key(queue, f"{OURS}{call.label}:{call.data.hex()}")
            sent = await client.transact(key, call)
            if not sent.has_effect:
                say("somebody else was first: this is what is so now")


async def _read(way: Way) -> Configuration:
    from atoll.chain.configuration import read_configuration

    async with way.reading() as chain:
        return await read_configuration(chain)


def _show(now: Configuration, *, as_json: bool) -> None:
    emit(plain(now), "\n".join(configuration_lines(now)), as_json=as_json)
