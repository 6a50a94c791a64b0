"""`atoll judge`: look at what others trained, dispute it, and play the games that follow."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli import services
from atoll.cli.network import (
    DEFAULT_RPC,
    DeploymentFile,
    Network,
    Rpc,
    on_network,
)
from atoll.cli.output import Json, emit
from atoll.errors import ConfigError
from atoll.law.words import Digest

if TYPE_CHECKING:
    from atoll.law.views import GameRecord, JobView

FOLDER = Path("~/.atoll/judge")
SIDES = ("challenger", "provider")
app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Dispute wrong training, or defend your own."
)


@app.command()
def init(
    password_file: Annotated[
        Path, typer.Option(help="A file whose first line will open the new key.")
    ],
    folder: Annotated[Path, typer.Option(help="Where its key, config and data are.")] = FOLDER,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    json: Json = False,
) -> None:
    """Make a folder with a new key and a config, for an outsider with a bond."""
    where = folder.expanduser()
    made = services.write_config(where, services.Choices("player", rpc, deployment, password_file))
    start = f"atoll judge play --config {made['config']}"
    emit(made, f"{made['address']}\nfund it, then: {start}", as_json=json)


@app.command()
def play(
    config: Annotated[Path, typer.Option("--config", help="Its config file.")] = (
        FOLDER / services.CONFIG_NAME
    ),
    side: Annotated[
        str, typer.Option("--as", help="challenger, or provider with the config of your node.")
    ] = "challenger",
    job: Annotated[list[int] | None, typer.Option(help="Only this job; may be repeated.")] = None,
    share: Annotated[
        float, typer.Option(help="Of every round's seats, the part that is replayed.")
    ] = 1.0,
    key: Annotated[
        list[str] | None,
        typer.Option(help="A seat's key that you were told, in hex: half of that seat's pay."),
    ] = None,
    json: Json = False,
) -> None:
    """Play until told to stop, and say every move; a restart takes up where this one was.

    A challenger replays seats of every settled round that can still be disputed, challenges
    what is wrong, and plays; it says so where a window ended before its replay did. Keys that
    providers tell too early, and wrong words of auditors, earn it something, too. A provider's
    service defends its work by itself; `--as provider` does that alone, with the same config,
    while the service is down.
    """
    from atoll.service.main import main
    from atoll.service.watcher import Player, serve

    if side not in SIDES:
        raise ConfigError(f"no side is called {side!r}", next_step="use --as challenger|provider")
    if not 0 < share <= 1:
        raise ConfigError(f"--share {share:g} is no part", next_step="use more than 0, at most 1")
    keys = tuple(map(_key, key or []))

    async def run(settings: Any) -> None:
        if job:
            settings = settings.model_copy(update={"jobs": tuple(job)})
        await serve(settings, Player(side == "challenger", share=share, keys=keys))

    arguments = ["--config", str(config.expanduser())]
    raise typer.Exit(main("atoll judge play", run, arguments, speaks="json" if json else "text"))


def _key(text: str) -> Digest:
    try:
        found = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        found = b""
    if len(found) != 32:
        raise ConfigError(f"--key {text}: no 32 bytes", next_step="pass 64 hex digits")
    return Digest(found)


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


async def _view(network: Network, job: int) -> JobView:
    async with network.open() as client:
        return await client.attach(job).view()


def _row(game: GameRecord) -> dict[str, Any]:
    claim = game.claim
    return {
        "game": game.id,
        "round": claim.round,
        "seat": claim.seat,
        "about": "update" if claim.is_link else f"segment {claim.segment}",
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
