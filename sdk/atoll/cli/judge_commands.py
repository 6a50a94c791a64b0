"""`atoll judge`: look at what others trained, dispute it, and play the games that follow."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli import services
from atoll.cli.accounts import Whose, about_account
from atoll.cli.members import add_stop
from atoll.cli.network_commands import (
    DEFAULT_RPC,
    DeploymentFile,
    Network,
    PasswordFile,
    Rpc,
    known_address,
    on_network,
)
from atoll.cli.output import Json, emit
from atoll.errors import ConfigError
from atoll.protocol.types import Digest

if TYPE_CHECKING:
    from atoll.protocol.game_records import GameRecord
    from atoll.protocol.types import Address
    from atoll.protocol.views import JobView

FOLDER = Path("~/.atoll/judge")
OnlyJobs = Annotated[
    list[int] | None, typer.Option("--job", help="Only this job; may be repeated.")
]
app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Dispute wrong training, or defend your own."
)


@app.command()
def init(
    folder: Annotated[Path, typer.Option(help="Where its key, config and data are.")] = FOLDER,
    password_file: PasswordFile = None,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    json: Json = False,
) -> None:
    """Make a folder with a new key and a config, for an outsider with a bond."""
    where = folder.expanduser()
    made = services.write_config(where, services.Choices("player", rpc, deployment, password_file))
    start = services.starting("judge", "watch", "--audit", config=made["config"])
    emit(made, f"{made['address']}\nfund it, then: {start}", as_json=json)


@app.command()
def watch(
    audit: Annotated[
        bool, typer.Option("--audit", help="Replay seats, and dispute what a replay does not give.")
    ] = False,
    share: Annotated[
        float | None,
        typer.Option(help="With --audit: of every round's seats, the part that is replayed."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="A seat's key that you were told, in hex: it takes that seat's pay."),
    ] = None,
    job: OnlyJobs = None,
    config: Annotated[Path, typer.Option("--config", help="What `atoll judge init` wrote.")] = (
        FOLDER / services.CONFIG_NAME
    ),
    new_journal: services.NewJournal = False,
    json: Json = False,
) -> None:
    """Watch all jobs until told to stop, and say every move; a restart goes on where this one was.

    Keys that providers told too early, and wrong digests of auditors, earn it something. With
    --audit it also replays seats of every settled round that can still be disputed, challenges what
    is wrong with a bond, and plays; it says so where a window ended before its replay did. `atoll
    watch N` tells what happens in one job, and needs no key.
    """
    from atoll.service.watcher import Player

    if share is not None and not audit:
        raise ConfigError("--share is of what --audit replays", next_step="pass --audit, too")
    part = 1.0 if share is None else share
    if not 0 < part <= 1:
        raise ConfigError(f"--share {part:g} is no part", next_step="use more than 0, at most 1")
    player = Player(share=part if audit else 0.0, keys=tuple(map(_key, key or [])))
    services.play("atoll judge watch", player, config, job, as_json=json, new_journal=new_journal)


@app.command()
def defend(
    config: Annotated[Path, typer.Option("--config", help="The config file of your node.")],
    job: OnlyJobs = None,
    holder: Annotated[
        str | None,
        typer.Option(help="Play for this account, whose delegate the config's account is."),
    ] = None,
    new_journal: services.NewJournal = False,
    json: Json = False,
) -> None:
    """Play the games about your own work while your node's service is down.

    A provider's service defends its work by itself; this does that alone, with its config. With
    --holder it plays for a node whose machine is gone, with a key of its own, which that node named
    by `atoll judge delegate`. What disputes the work of others is `atoll judge watch --audit`.
    """
    from atoll.service.watcher import Player

    defends = known_address(holder, "--holder")
    player, name = Player(watches=False, defends=defends), "atoll judge defend"
    services.play(name, player, config, job, as_json=json, new_journal=new_journal)


@app.command()
@about_account(signs=True)
def delegate(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="0x and 40 digits.")],
    *,
    whose: Whose,
    json: Json = False,
) -> None:
    """Name who may play the games about your work beside your node; the zero address for nobody.

    By the node's own key, while there is one. Where its machine is gone, the delegate runs `atoll
    judge defend --holder NODE` with a key of its own. It can lose a game by a false move, and takes
    nothing.
    """
    wanted = known_address(address, "ADDRESS")
    if whose.account != whose.address:
        raise ConfigError(
            f"{whose.account} names its delegate itself, and the key is that of {whose.address}",
            next_step="pass the node's own --config, without --node",
        )
    named = asyncio.run(_named(whose, wanted))
    text = f"delegate   {named if int(named, 16) else 'nobody'}"
    emit({"account": whose.account, "delegate": named}, text, as_json=json)


async def _named(whose: Whose, wanted: Address) -> Address:
    """Whom the chain has as the account's delegate, once that is `wanted`."""
    account = whose.account
    async with whose.reading() as reader:
        if await reader.chain.delegate_of(account) == wanted:
            return wanted
        key = f"delegate:{wanted}:{len(whose.transactions())}"
        async with whose.sending() as send:
            await send(key, reader.chain.calls.name_delegate(wanted))
        return await reader.chain.delegate_of(account)


add_stop(app, FOLDER / services.CONFIG_NAME)


@app.command()
@on_network()
def games(
    job: Annotated[int, typer.Argument(help="The job's number.")],
    *,
    network: Network,
    json: Json = False,
) -> None:
    """List the games about a job's settled rounds: who disputes what, and how each stands."""
    view = asyncio.run(_view(network, job))
    rows = [_row(game) for _, game in sorted(view.games.items())]
    text = "\n".join(_text(row) for row in rows) or "no game was ever begun"
    emit({"job": job, "games": rows}, text, as_json=json)


def _key(text: str) -> Digest:
    try:
        key = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ConfigError(f"--key {text}: no 32 bytes", next_step="pass 64 hex digits")
    return Digest(key)


async def _view(network: Network, job: int) -> JobView:
    async with network.open() as client:
        return await client.attach(job).view()


def _row(game: GameRecord) -> dict[str, Any]:
    claim = game.claim
    return {
        "game": game.id,
        "round": claim.round,
        "seat": claim.seat,
        "about": "update" if claim.is_update_proof else f"segment {claim.segment}",
        "holder": claim.holder,
        "challenger": game.challenger,
        "bond_wei": str(game.bond),
        "moves": len(game.moves),
        "state": _state(game),
        "deadline": game.deadline or None,
    }


def _state(game: GameRecord) -> str:
    if not game.is_open:
        return game.outcome.name.lower().replace("_", "-")
    if game.decided:
        return "decided"
    if not game.began_at:
        return "waits"
    return "provider-to-move" if game.is_holders_turn else "challenger-to-move"


def _text(row: dict[str, Any]) -> str:
    what = f"{row['about']} of seat {row['seat']}, round {row['round']}"
    return f"game {row['game']}: {what}: {row['state']} after {row['moves']} moves"
