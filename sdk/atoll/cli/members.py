"""`atoll node` and `atoll verifier`: set up and run a member of the network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from atoll.cli import services
from atoll.cli.network import DEFAULT_RPC, DeploymentFile, Rpc, need_deployment
from atoll.cli.output import Json, emit

Folder = Annotated[Path, typer.Option(help="Where its key, config and data are.")]
Config = Annotated[Path, typer.Option("--config", help="Its config file.")]


@dataclass(frozen=True, slots=True)
class RoleCommand:
    """What tells the two roles apart on the command line.

    Attributes:
        command: the word after `atoll`.
        service: the module whose `serve` runs it.
    """

    command: str
    role: str
    service: str

    @property
    def folder(self) -> Path:
        return Path("~/.atoll") / self.command


def member_app(member: RoleCommand) -> typer.Typer:
    """The commands of one role."""
    app = typer.Typer(no_args_is_help=True, help=f"Set up and run a {member.role}.")
    default_config = member.folder / services.CONFIG_NAME

    @app.command()
    def init(
        password_file: Annotated[
            Path, typer.Option(help="A file whose first line will open the new key.")
        ],
        folder: Folder = member.folder,
        rpc: Rpc = DEFAULT_RPC,
        deployment: DeploymentFile = None,
        json: Json = False,
    ) -> None:
        """Make a folder with a new key and a config."""
        where = folder.expanduser()
        made = services.write_config(where, rpc, need_deployment(deployment), password_file)
        start = f"atoll {member.command} run --config {made['config']}"
        emit(made, f"{made['address']}\nfund it, then: {start}", as_json=json)

    @app.command()
    def run(config: Config = default_config) -> None:
        """Run until told to stop; a restart takes up where this one was."""
        program = f"atoll {member.command} run"
        raise typer.Exit(services.run_service(program, member.service, config.expanduser()))

    @app.command()
    def status(config: Config = default_config, json: Json = False) -> None:
        """Say whether it runs, and what it has done."""
        found = services.status_of(config.expanduser())
        emit(found, services.status_text(found), as_json=json)

    @app.command()
    def leave(config: Config = default_config, json: Json = False) -> None:
        """Finish the running round and give the place up."""
        pid = services.drain(config.expanduser())
        text = f"process {pid} finishes its round, then leaves"
        emit({"pid": pid, "leaves": True}, text, as_json=json)

    return app


node = member_app(RoleCommand("node", "provider", "atoll_node.service"))
verifier = member_app(RoleCommand("verifier", "verifier", "atoll_verifier.service"))
