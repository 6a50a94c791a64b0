"""`atoll report` and `atoll dashboard`: a job or a network as a page to look at."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.network_commands import Network, on_network
from atoll.cli.output import Json, emit, say
from atoll.errors import ChainError, ConfigError

if TYPE_CHECKING:
    from atoll.dashboard.reader import Reader
    from atoll.dashboard.server import Window

report_app = typer.Typer(add_completion=False, help="A job as one page: one HTML file to keep.")
dashboard_app = typer.Typer(
    add_completion=False, help="The network and its jobs, live in a browser."
)


@report_app.command()
@on_network()
def report(
    job: Annotated[int, typer.Argument(metavar="JOB", help="The job's number.", min=1)],
    html: Annotated[
        Path | None, typer.Option("--html", help="Where the page goes; default job-JOB.html.")
    ] = None,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Write what became of a job, from public data, as one HTML file that needs no network.

    `atoll job history --json` prints what it draws.
    """
    from atoll.dashboard.page import write_page
    from atoll.dashboard.reader import Reader
    from atoll.protocol.types import JobId

    async def work() -> dict[str, Any]:
        async with network.open() as client:
            return await Reader(client).job(JobId(job))

    document = asyncio.run(work())
    place = html or Path(f"job-{job}.html")
    write_page(document, place)
    emit({"page": str(place)}, str(place), as_json=json)


@dashboard_app.command()
@on_network()
def dashboard(
    job: Annotated[
        int | None, typer.Option(help="Begin with this job; else with the network.", min=1)
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free one.")] = 0,
    prompt: Annotated[
        str | None,
        typer.Option(help="Show what each newest model goes on with after this; needs torch."),
    ] = None,
    distances: Annotated[
        bool,
        typer.Option(
            "--distances",
            help="Fetch every round's updates, merge them again, and show how far each seat's lay "
            "from the merge; needs torch.",
        ),
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write all pages there, for any web server, and end."),
    ] = None,
    every: Annotated[
        int | None, typer.Option(help="With --export: write again after so many seconds.", min=1)
    ] = None,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Serve the page of a network and of its jobs to this machine's browsers, as they change; or
    write them, for the public, as files.
    """
    from atoll.dashboard.reader import Reader
    from atoll.dashboard.server import Window

    if every is not None and export is None:
        raise ConfigError("--every is for --export", next_step="add --export DIR")
    for name, is_asked in (("--prompt", prompt is not None), ("--distances", distances)):
        if is_asked:
            _need_train(name)

    async def work() -> None:
        async with network.open() as client:
            if export is not None:
                reader = Reader(client, prompt, measures=distances)
                await _export(reader, export, every, as_json=json)
                return
            if job is not None:
                await client.attach(job).status()
            start = "" if job is None else f"/job/{job}"
            await _serve(Window(client, start, prompt, distances), port, as_json=json)

    asyncio.run(work())


def _need_train(option: str) -> None:
    """Raises ConfigError where nothing is computed here."""
    from atoll.job.asking import missing_extra
    from atoll.job.own_evaluation import can_evaluate

    if not can_evaluate():
        raise missing_extra(option)


async def _serve(window: Window, port: int, *, as_json: bool) -> None:
    from atoll.dashboard.server import serving

    async with serving(window, port) as url:
        emit({"url": url}, url, as_json=as_json)
        say("open it in a browser; Ctrl-C ends it")
        await asyncio.Event().wait()


async def _export(reader: Reader, folder: Path, every: int | None, *, as_json: bool) -> None:
    """Once; or again and again, whatever the chain does meanwhile."""
    from atoll.dashboard.export import export

    pages = await export(reader, folder, follows=every is not None)
    emit(
        {"page": str(pages[0]), "pages": len(pages)},
        f"{pages[0]}, and {len(pages) - 1} pages that it leads to",
        as_json=as_json,
    )
    while every is not None:
        await asyncio.sleep(every)
        try:
            await export(reader, folder, follows=True)
        except ChainError as error:
            say(f"not written again: {error}")
