"""`atoll tx`: the transactions of a service's key, from its queue's file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atoll.cli import services
from atoll.cli.output import Json, emit, table

if TYPE_CHECKING:
    from atoll.service.transactions import Change

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="A service's transactions: list, bump, cancel."
)
Config = Annotated[Path, typer.Option("--config", help="The service's config file.")]
Number = Annotated[int, typer.Argument(metavar="ID", help="Of `atoll tx list`.")]
_SHOWN = ("id", "call", "state", "nonce", "block", "gas", "message")


@app.command("list")
def list_(
    config: Config,
    all_: Annotated[bool, typer.Option("--all", help="Those that are done, too.")] = False,
    json: Json = False,
) -> None:
    """List what is queued or under way, and what failed, whether the service runs or not."""
    from atoll.service.transactions import list_transactions

    rows = list_transactions(services.load(config.expanduser()).data_dir)
    if not all_:
        rows = [row for row in rows if row["state"] in {"queued", "sent", "failed", "reverted"}]
    shown = [{name: "" if row[name] is None else row[name] for name in _SHOWN} for row in rows]
    emit(rows, table(shown), as_json=json)


@app.command()
def bump(number: Number, config: Config, json: Json = False) -> None:
    """Bid more for a transaction that no block takes, below the config's fee cap."""
    _change(number, config, "bump", json=json)


@app.command()
def cancel(number: Number, config: Config, json: Json = False) -> None:
    """Withdraw a transaction: at once while it is queued, else by outbidding it with an empty one.

    The original may still win; `atoll tx list --all` tells. A service that still wants what a
    transaction does asks for another one.
    """
    _change(number, config, "cancel", json=json)


def _change(number: int, config: Path, change: Change, *, json: bool) -> None:
    from atoll.service.transactions import change_transaction

    settings = services.load(config.expanduser())
    row = asyncio.run(change_transaction(settings, number, change))
    emit(row, f"transaction {number}, {row['call']}, is {row['state']}", as_json=json)
