"""`atoll journal`: what a service has signed and knows, as one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atoll.cli import services
from atoll.cli.output import Json, emit

if TYPE_CHECKING:
    from atoll.service.journal import Belongs

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Back a service's journal up, or move it."
)
Config = Annotated[Path, typer.Option("--config", help="The service's config file.")]


@app.command("export")
def export(
    file: Annotated[Path, typer.Argument(help="Where it goes; nothing is replaced.")],
    config: Config,
    retire: Annotated[
        bool, typer.Option("--retire", help="This folder's service must not run any more.")
    ] = False,
    json: Json = False,
) -> None:
    """Write the journal of a stopped service to a file, for a copy or another machine.

    The file is as secret as the key. Move a service with --retire: two that run with one key
    say different things sooner or later, and two certificates of a round cost a verifier's bond.
    """
    from atoll.service.moving import export_journal

    data_dir, whose = _service_of(config)
    moved = export_journal(data_dir, whose, file, retire=retire)
    data = {"file": str(file), "signed": moved.signed, "rows": moved.rows, "retired": retire}
    emit(data, f"{file} has {moved.signed} signed subjects and {moved.rows} rows", as_json=json)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="What `atoll journal export` wrote.")],
    config: Config,
    json: Json = False,
) -> None:
    """Add what a file has to the journal of a stopped service: all of it, or nothing."""
    from atoll.service.moving import import_journal

    data_dir, whose = _service_of(config)
    moved = import_journal(data_dir, whose, file)
    data = {"signed": moved.signed, "rows": moved.rows}
    text = f"{moved.signed} signed subjects and {moved.rows} rows were new here"
    emit(data, text, as_json=json)


def _service_of(config: Path) -> tuple[Path, Belongs]:
    """A config's data folder, and the account and network that it is for."""
    from atoll.chain.deployment import Deployment
    from atoll.chain.keys import address_of
    from atoll.service.journal import Belongs

    settings = services.load(config.expanduser())
    whose = Belongs.of(Deployment.load(settings.deployment), address_of(settings.keystore))
    return settings.data_dir, whose
