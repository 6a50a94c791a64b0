"""`atoll watch`: an outsider with a bond looks at all jobs, and earns by what it finds wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atoll.cli import services
from atoll.cli.judge_commands import FOLDER, OnlyJobs
from atoll.cli.output import Json
from atoll.errors import ConfigError
from atoll.protocol.types import Digest

app = typer.Typer(
    add_completion=False, help="Watch over all jobs as an outsider, and earn by what is wrong."
)


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
        typer.Option(help="A seat's key that you were told, in hex: half of that seat's pay."),
    ] = None,
    job: OnlyJobs = None,
    config: Annotated[Path, typer.Option("--config", help="What `atoll judge init` wrote.")] = (
        FOLDER / services.CONFIG_NAME
    ),
    new_journal: services.NewJournal = False,
    json: Json = False,
) -> None:
    """Watch until told to stop, and say every move; a restart takes up where this one was.

    Keys that providers told too early, and wrong digests of auditors, earn it something. With
    --audit it also replays seats of every settled round that can still be disputed, challenges what
    is wrong with a bond, and plays; it says so where a window ended before its replay did. `atoll
    job watch N` tells what happens in one job, and needs no key.
    """
    from atoll.service.watcher import Player

    if share is not None and not audit:
        raise ConfigError("--share is of what --audit replays", next_step="pass --audit, too")
    part = 1.0 if share is None else share
    if not 0 < part <= 1:
        raise ConfigError(f"--share {part:g} is no part", next_step="use more than 0, at most 1")
    player = Player(share=part if audit else 0.0, keys=tuple(map(_key, key or [])))
    services.play("atoll watch", player, config, job, as_json=json, new_journal=new_journal)


def _key(text: str) -> Digest:
    try:
        key = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ConfigError(f"--key {text}: no 32 bytes", next_step="pass 64 hex digits")
    return Digest(key)
