"""`atoll stake`: what an account has staked, where it is, how it comes back, and to whom."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.accounts import Whose, about_account
from atoll.cli.output import Json, emit
from atoll.cli.owner import app as owner_app
from atoll.cli.owner import ownership_lines, plain_ownership
from atoll.errors import ConfigError, InsufficientFunds
from atoll.job.readable import moment

if TYPE_CHECKING:
    from atoll.job.account import KnownOfAccount, Reader
    from atoll.job.stake import Stake, Withdrawal
    from atoll.protocol.types import Address, Role
    from atoll.service.wallet import Send

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Stake: show it, add to it, take it out."
)
app.add_typer(owner_app, name="owner")
As = Annotated[
    str | None,
    typer.Option("--as", metavar="ROLE", help="provider or verifier; a config says it by itself."),
]
Amount = Annotated[str, typer.Argument(metavar="AMOUNT", help="Tokens, as 25 or 0.5.")]
MaybeAmount = Annotated[
    str | None,
    typer.Argument(metavar="[AMOUNT]", help="Tokens; everything that is free if excluded."),
]


@app.command()
@about_account()
def show(
    *,
    whose: Whose,
    json: Json = False,
) -> None:
    """Show the stake by role: free, locked by jobs and until when, unbonding; and the wallet."""
    data, text = asyncio.run(_shown(whose))
    emit(data, text, as_json=json)


@app.command()
@about_account(signs=True)
def add(
    amount: Amount,
    role: As = None,
    *,
    whose: Whose,
    json: Json = False,
) -> None:
    """Move tokens from the wallet into the stake, of --node from its owner's. A service does so by
    itself when it joins a job.

    Each call adds: what was sent and is not in a block yet is waited for, not sent again.
    """
    asyncio.run(_added(whose, _role(whose, role), amount))
    data, text = asyncio.run(_shown(whose))
    emit(data, text, as_json=json)


@app.command()
@about_account(signs=True)
def withdraw(
    amount: MaybeAmount = None,
    role: As = None,
    *,
    whose: Whose,
    json: Json = False,
) -> None:
    """Bring stake back to the wallet: bonds that are over go home, stake unbonds, and once the
    unbonding delay is over it is taken out. Only the account's owner can, and has it then.

    Run it again, with the same amount, when it says so: while something is under way nothing is
    begun twice.
    """
    withdrawn = asyncio.run(_withdrawn(whose, _role(whose, role), amount))
    emit(withdrawn, _withdrawn_text(withdrawn), as_json=json)


def _role(whose: Whose, text: str | None) -> Role:
    from atoll.protocol.types import Role

    text = text or (whose.settings.role if whose.settings is not None else None)
    if text not in {"provider", "verifier"}:
        raise ConfigError("whose stake, a provider's or a verifier's?", next_step="pass --as ROLE")
    return Role[text.upper()]


async def _shown(whose: Whose) -> tuple[dict[str, Any], str]:
    from atoll.job.event_text import coin as in_coin
    from atoll.job.event_text import tokens

    async with whose.reading() as reader:
        me = whose.account
        known = await reader.look(me)
        stakes = await reader.stakes(me, known)
        wallet = await reader.chain.token_balance(me)
        coin = await reader.chain.native_balance(me)
        owned = await reader.chain.ownership(me)
    data = {
        "account": me,
        "block": known.head.number,
        "time": known.head.timestamp,
        "wallet_wei": str(wallet),
        "coin_wei": str(coin),
        **plain_ownership(owned),
        "stakes": [stake.to_json_value() for stake in stakes],
    }
    lines = [
        f"account    {me}, at block {known.head.number}",
        *ownership_lines(me, owned),
        f"wallet     {tokens(wallet)} tokens, {in_coin(coin)} of the chain's coin for gas",
    ]
    for stake in stakes:
        lines += _lines(stake)
    return data, "\n".join(lines)


def _lines(stake: Stake) -> list[str]:
    from atoll.job.event_text import tokens, words

    if not (stake.active or stake.unbonding or stake.bonds):
        return []
    lines = [
        f"{words(stake.role):<10} {tokens(stake.active)} staked: {tokens(stake.free)} free, "
        f"{tokens(stake.locked)} locked; {tokens(stake.unbonding)} unbond"
    ]
    for bond in stake.bonds:
        home = "" if bond.home_at is None else f", home from {moment(bond.home_at)}"
        last = f", at the latest {moment(bond.at_latest)}"
        lines.append(f"  job {bond.job:<5} {tokens(bond.wei)}: {bond.text}{home}{last}")
    lines += [
        f"  unbonds     {tokens(t.wei)} until {moment(t.available_at)}" for t in stake.unbonds
    ]
    return lines + ([f"  but: {stake.fault}"] if stake.fault else [])


async def _added(whose: Whose, role: Role, amount: str) -> None:
    from atoll.job.event_text import tokens
    from atoll.job.groups import wei_of

    if not wei_of(amount):  # of a token of any decimals
        raise ConfigError("amount is 0", next_step="say how many tokens, as 25 or 0.5")
    me, account = whose.address, whose.account
    async with whose.reading() as reader:
        wei = wei_of(amount)
        chain, known = reader.chain, await reader.look(account)
        if account != me:
            await whose.require_owner(reader)
        balance, stakes = await chain.token_balance(me), chain.deployment.addresses["Stakes"]
        if balance < wei:
            raise InsufficientFunds(
                f"{me} has {tokens(balance)} tokens, and {tokens(wei)} are to be staked",
                next_step="send the account tokens, or add fewer",
            )
        name = f"{role.name.lower()}:{_deposits(known, account)}"
        async with whose.sending() as send:
            if await chain.allowance(me, stakes) < wei:
                await send(f"approve:{account}:{name}", chain.calls.approve(stakes, wei))
            if account == me:
                await send(f"deposit:{name}", chain.calls.deposit(role, wei))
            else:
                call = chain.calls.deposit_for(account, role, wei)
                await send(f"deposit:{account}:{name}", call)


def _deposits(known: KnownOfAccount, account: Address) -> int:
    """How many there were: so many tell the next one's key."""
    from atoll.protocol.events import Deposited

    return sum(isinstance(e, Deposited) and e.account == account for e in known.events)


async def _withdrawn(whose: Whose, role: Role, amount: str | None) -> dict[str, Any]:
    from atoll.job.collecting import releasable
    from atoll.job.groups import wei_of
    from atoll.job.stake import plan_withdrawal

    me, account = whose.address, whose.account
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(whose.reading())
        wanted = None if amount is None else wei_of(amount)
        await whose.require_owner(reader)
        send = await stack.enter_async_context(whose.sending())
        known, stake = await _stake(reader, account, role)
        home = list(releasable(list(stake.bonds), known.head.timestamp, reader.chain.calls))
        for bond in home:
            await send(bond.key, bond.call)
        if home:
            known, stake = await _stake(reader, account, role)
        plan = plan_withdrawal(stake, wanted, known.head.timestamp)
        before = await reader.chain.token_balance(me)
        await _carry_out(plan, account, role, reader=reader, send=send, known=known)
        known, stake = await _stake(reader, account, role)
        wallet = await reader.chain.token_balance(me)
    again = min((unbond.available_at + 1 for unbond in stake.unbonds), default=None)
    return {
        "account": account,
        "owner": me,
        "released_wei": str(sum(bond.wei for bond in home)),
        "taken_wei": str(wallet - before),
        "unbonded_wei": str(plan.unbond),
        "lacking_wei": str(plan.lacking),
        "wallet_wei": str(wallet),
        "again_at": again,
        "stake": stake.to_json_value(),
    }


async def _stake(reader: Reader, account: Address, role: Role) -> tuple[KnownOfAccount, Stake]:
    known = await reader.look(account)
    (stake,) = [s for s in await reader.stakes(account, known) if s.role is role]
    return known, stake


async def _carry_out(
    plan: Withdrawal,
    account: Address,
    role: Role,
    *,
    reader: Reader,
    send: Send,
    known: KnownOfAccount,
) -> None:
    from atoll.protocol.events import UnbondStarted

    calls = reader.chain.calls
    for unbond in plan.take:
        await send(
            f"withdraw:{unbond.id}:{int(role)}", calls.stakes_withdraw(account, role, unbond.id)
        )
    if plan.unbond:
        # How many there were tells this one from the last; one that is under way is waited for.
        unbonds = (e for e in known.events if isinstance(e, UnbondStarted) and e.account == account)
        key = f"unbond:{account}:{role.name.lower()}:{sum(1 for _ in unbonds)}"
        await send(key, calls.unbond(account, role, plan.unbond))


def _withdrawn_text(withdrawn: dict[str, Any]) -> str:
    from atoll.job.event_text import tokens

    amounts = {name: int(withdrawn[f"{name}_wei"]) for name in ("released", "taken", "unbonded")}
    whose = "" if withdrawn["owner"] == withdrawn["account"] else f" of {withdrawn['owner']}"
    texts = {
        "released": "tokens of bonds are free again",
        "taken": f"tokens are in the wallet{whose}",
        "unbonded": "tokens begin to unbond",
    }
    lines = [f"{tokens(amounts[name])} {text}" for name, text in texts.items() if amounts[name]]
    lacking = int(withdrawn["lacking_wei"])
    if lacking:
        lines.append(f"{tokens(lacking)} tokens are locked, or not there: `atoll stake show`")
    if withdrawn["again_at"] is not None:
        lines.append(f"run this again from {moment(withdrawn['again_at'])} on")
    elif not lines:
        lines.append("nothing is free, and nothing unbonds: `atoll stake show`")
    return "\n".join(lines)
