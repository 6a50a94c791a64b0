"""`atoll verifier`: set up and run a verifier."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atoll.commands import services
from atoll.commands.network import DEFAULT_RPC, DeploymentFile, Rpc, need_deployment
from atoll.commands.output import Json, emit

app = typer.Typer(no_args_is_help=True, help="Set up and run a verifier.")

DEFAULT_FOLDER = Path("~/.atoll/verifier")
Folder = Annotated[Path, typer.Option(help="Where the verifier's key, config and data are.")]
Config = Annotated[Path, typer.Option("--config", help="The verifier's config file.")]


@app.command()
def init(
    password_file: Annotated[
        Path, typer.Option(help="A file whose first line will open the new key.")
    ],
    folder: Folder = DEFAULT_FOLDER,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    json: Json = False,
) -> None:
    """Make a folder with a new key and a config."""
    where = folder.expanduser()
    made = services.write_config(where, rpc, need_deployment(deployment), password_file)
    text = f"{made['address']}\nfund it, then: atoll verifier run --config {made['config']}"
    emit(made, text, as_json=json)


@app.command()
def run(config: Config = DEFAULT_FOLDER / services.CONFIG_NAME) -> None:
    """Run until told to stop; a restart takes up where this one was."""
    code = services.run_service("atoll verifier run", "atoll_verifier.service", config.expanduser())
    raise typer.Exit(code)


@app.command()
def status(config: Config = DEFAULT_FOLDER / services.CONFIG_NAME, json: Json = False) -> None:
    """Say whether it runs, and what it has done."""
    found = services.status_of(config.expanduser())
    emit(found, services.status_text(found), as_json=json)


@app.command()
def leave(config: Config = DEFAULT_FOLDER / services.CONFIG_NAME) -> None:
    """Finish the running round and give the place up."""
    services.drain(config.expanduser())
