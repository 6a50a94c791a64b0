"""`atoll stake owner`: whose a node's stake is, and where its pay goes.

The key that works lies on a machine that strangers talk to. Who accepts to own its account keeps
another key elsewhere, and alone takes stake out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.accounts import Whose, about_account
from atoll.cli.network_commands import known_address
from atoll.cli.output import Json, emit
from atoll.errors import ConfigError

if TYPE_CHECKING:
    from atoll.chain.call import Call
    from atoll.job.account import Reader
    from atoll.protocol.owners import Ownership
    from atoll.protocol.types import Address

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Whose the stake of a node is, and where its pay goes.",
)
Who = Annotated[str, typer.Argument(metavar="ADDRESS", help="0x and 40 digits.")]
MaybeWho = Annotated[
    str | None,
    typer.Argument(
        metavar="[ADDRESS]", help="0x and 40 digits; the config's `owner`, if excluded."
    ),
]
ANY = "0x" + "00" * 20


@app.command()
@about_account()
def show(*, whose: Whose, json: Json = False) -> None:
    """Show who owns the account, who may accept to, and where its pay goes."""
    _show(whose, asyncio.run(_shown(whose)), json)


@app.command()
@about_account(signs=True)
def propose(address: MaybeWho = None, *, whose: Whose, json: Json = False) -> None:
    """Say who shall own the account: first by its own key, later by its owner's.

    Nothing changes before that one runs `accept`, so an address that nobody has the key of becomes
    no owner. The zero address takes a proposal back.
    """
    wanted = address or (whose.settings.owner if whose.settings is not None else None)
    if wanted is None:
        raise ConfigError("who shall own it?", next_step="pass an ADDRESS")
    owner = _address(wanted)
    made = lambda calls, account: calls.propose_owner(account, owner)  # noqa: E731
    ownership = asyncio.run(_sent(whose, made, lambda now: (now.proposed or ANY) == owner))
    _show(whose, ownership, json)


@app.command()
@about_account(signs=True)
def accept(*, whose: Whose, json: Json = False) -> None:
    """Own the account of --node from now on, and have its pay: by the key that was proposed."""
    made = lambda calls, account: calls.accept_owner(account)  # noqa: E731
    _show(whose, asyncio.run(_sent(whose, made, lambda now: now.owner == whose.address)), json)


@app.command()
@about_account(signs=True)
def reward(address: Who, *, whose: Whose, json: Json = False) -> None:
    """Have the account's pay go to another address, by its owner's key.

    Nobody has to accept it: what is paid to an address that nobody has the key of is lost.
    """
    payee = _address(address)
    if payee == ANY:
        raise ConfigError("the zero address cannot be paid", next_step="pass another ADDRESS")
    made = lambda calls, account: calls.set_payee(account, payee)  # noqa: E731
    _show(whose, asyncio.run(_sent(whose, made, lambda now: now.payee == payee)), json)


def plain_ownership(owned: Ownership) -> dict[str, Any]:
    """For JSON; a proposal that nobody made is null."""
    return {"owner": owned.owner, "payee": owned.payee, "proposed_owner": owned.proposed}


def ownership_lines(account: Address, owned: Ownership) -> list[str]:
    """Whose an account is, for a person."""
    if owned.owner == account:
        lines = ["owner      none: whoever has its key has its stake"]
    else:
        lines = [f"owner      {owned.owner}, who alone moves the stake"]
    if owned.proposed is not None:
        lines.append(f"proposed   {owned.proposed}, who has not accepted")
        lines.append(f"next       with that one's key: `atoll stake owner accept --node {account}`")
    goes_to = "the account itself" if owned.payee == account else owned.payee
    return [*lines, f"pay        goes to {goes_to}"]


def _address(text: str) -> Address:
    address: Address = known_address(text, "ADDRESS")
    return address


def _show(whose: Whose, owned: Ownership, json: bool) -> None:
    account = whose.account
    lines = [f"account    {account}", *ownership_lines(account, owned)]
    emit({"account": account, **plain_ownership(owned)}, "\n".join(lines), as_json=json)


async def _shown(whose: Whose) -> Ownership:
    async with whose.reading() as reader:
        return await reader.chain.ownership(whose.account)


async def _sent(
    whose: Whose,
    made: Callable[[Any, Address], Call],
    is_done: Callable[[Ownership], bool],
) -> Ownership:
    """Sends the call unless its effect is there; whose the account is then.

    Raises:
        ConfigError: the key may not.
    """
    account = whose.account
    async with whose.reading() as reader:
        now = await reader.chain.ownership(account)
        if is_done(now):
            return now
        call = made(reader.chain.calls, account)
        if call.label == "acceptOwner":
            _require_proposed(whose, now)
        else:
            await whose.require_owner(reader)
        key = f"{call.label}:{account}:{await _changes(reader, account)}:{call.data.hex()}"
        async with whose.sending() as send:
            await send(key, call)
        return await reader.chain.ownership(account)


def _require_proposed(whose: Whose, now: Ownership) -> None:
    if now.proposed != whose.address:
        raise ConfigError(
            f"{whose.account} has {now.owner} as its owner, and proposed is "
            f"{now.proposed or 'nobody'}, not {whose.address}",
            next_step=f"with the present owner's key: `atoll stake owner propose {whose.address}`",
        )


async def _changes(reader: Reader, account: Address) -> int:
    """How often it changed whose the account is: so many tell the next change's key."""
    from atoll.protocol.events import OwnerAccepted, OwnerProposed, PayeeSet

    known = await reader.look(account)
    kinds = OwnerAccepted | OwnerProposed | PayeeSet
    return sum(isinstance(e, kinds) and e.account == account for e in known.events)
