"""`atoll config`: what a service's settings are, and where each of them is from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atoll.cli.output import Json, emit

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="A service's settings, and where they are from.",
)
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a setting: --set gateway.port=4001"),
]


@app.callback()
def _group() -> None:
    """Keeps `show` a command of its own."""


@app.command()
def show(
    config: Annotated[Path, typer.Option("--config", help="The service's config file.")],
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value is from.")] = False,
    settings: Set = None,
    json: Json = False,
) -> None:
    """Print every setting as a service takes it: flag, else variable, else file, else default."""
    from atoll.service.config import ServiceConfig, flat, read_config, read_layers

    path = config.expanduser()
    values = flat(read_config(ServiceConfig, path, settings or []).model_dump(mode="json"))
    origins = read_layers(path, settings or []).origins
    rows = {
        name: {"value": value, "origin": origins.get(name, "default")}
        for name, value in sorted(values.items())
    }
    width = max(map(len, rows))
    lines = [
        f"{name:<{width}} {row['value']!s:<40}" + (f"  {row['origin']}" if origin else "")
        for name, row in rows.items()
    ]
    data = rows if origin else {name: row["value"] for name, row in rows.items()}
    emit(data, "\n".join(line.rstrip() for line in lines), as_json=json)
