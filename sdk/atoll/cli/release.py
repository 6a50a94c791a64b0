"""`atoll release`: releases beside this one, for jobs that were made with their training code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atoll.cli.output import Json, emit, table
from atoll.errors import ConfigError

if TYPE_CHECKING:
    from atoll.service.environments import Environment

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Releases beside this one, for jobs of their training code.",
)
Number = Annotated[str, typer.Argument(metavar="NUMBER", help="The release's number, as 0.3.0.")]


@app.command()
def add(
    number: Number,
    *,
    wheel: Annotated[Path | None, typer.Option(help="Its file, instead of the index's.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="INDEX", help="An index other than pip's.")
    ] = None,
    share_packages: Annotated[
        bool, typer.Option("--share-packages", help="Take torch and all else from here.")
    ] = False,
    json: Json = False,
) -> None:
    """Install a release in an environment of its own, so that services here serve its jobs.

    A service finds it when it starts, and works on a job with the code that the job was made with.
    With --share-packages only atoll is installed, and the libraries of this environment are used:
    minutes and gigabytes less, and the probe of each job tells whether the bits are the same.
    """
    from atoll.service.elsewhere import ask_who
    from atoll.service.environments import make, record, serving

    if wheel is not None and not wheel.expanduser().is_file():
        raise ConfigError(f"{wheel} is no file", next_step="name a wheel: atoll-0.3.0-….whl")
    what = f"atoll[train]=={number}" if wheel is None else f"{wheel.expanduser().resolve()}[train]"
    sources = [what] if from_ is None else ["--index-url", from_, what]
    if wheel is not None and share_packages:
        sources.append("--no-index")
    folder = make(number, sources, shares_packages=share_packages)
    _show([record(folder, lambda: ask_who(serving(folder)))], json=json)


@app.command("list")
def list_(json: Json = False) -> None:
    """The releases that were added, and the digests of training code that each serves."""
    from atoll.service.environments import environments

    _show(environments(), json=json)


@app.command()
def remove(number: Number, json: Json = False) -> None:
    """Delete a release's environment; jobs of its training code are not served any more."""
    from atoll.service.environments import remove as remove_environment

    folder = remove_environment(number)
    emit({"release": number, "removed": str(folder)}, f"removed {folder}", as_json=json)


@app.command(hidden=True)
def serve() -> None:
    """Does what a service of another release asks on standard input."""
    from atoll.service.elsewhere import serve as serve_others
    from atoll.service.worker import call_here

    serve_others(call_here)


def _show(environments: list[Environment], *, json: bool) -> None:
    data = [
        {
            "release": environment.hello.release,
            "digests": [digest.hex() for digest in environment.hello.digests],
            "speaks": environment.hello.word,
            "folder": str(environment.folder),
        }
        for environment in environments
    ]
    rows = [row | {"digests": " ".join(d[:16] for d in row["digests"])} for row in data]
    emit(data, table([dict(row) for row in rows]), as_json=json)
