"""`atoll report` and `atoll dashboard`: a job or a network as a page to look at."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.network_commands import Network, on_network
from atoll.cli.output import Json, emit, say

if TYPE_CHECKING:
    from atoll.job.client import Client

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
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Serve the page of a network and of its jobs to this machine's browsers, as they change."""
    from atoll.dashboard.server import Window, serving

    async def serve(client: Client) -> None:
        start = "" if job is None else f"/job/{job}"
        async with serving(Window(client, start), port) as url:
            emit({"url": url}, url, as_json=json)
            say("open it in a browser; Ctrl-C ends it")
            await asyncio.Event().wait()

    async def work() -> None:
        async with network.open() as client:
            if job is not None:
                await client.attach(job).status()
            await serve(client)

    asyncio.run(work())
