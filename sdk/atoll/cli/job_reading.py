"""`atoll watch`, `atoll job list`, `status`, `history`, `logs`, `audit`: what becomes of jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.jobfile import Job
from atoll.cli.network_commands import Network, on_network
from atoll.cli.output import Json, emit, say, table
from atoll.cli.progress import watching
from atoll.cli.snapshot import (
    after_the_end,
    item_to_json_value,
    sign_lines,
    text_of,
    update_to_json_value,
    while_it_waits,
)
from atoll.errors import ConfigError, StorageError
from atoll.job.readable import moment
from atoll.job.trackers import TrackerName

if TYPE_CHECKING:
    from atoll.job.handle import JobHandle
    from atoll.job.job_update import JobUpdate


app = typer.Typer(add_completion=False, help="Read what becomes of jobs.")
watch_app = typer.Typer(add_completion=False, help="Tell everything that happens in a job.")

Evaluate = Annotated[
    bool,
    typer.Option("--evaluate", help="Compute the held-out losses here too, which takes torch."),
]

Log = Annotated[
    TrackerName | None,
    typer.Option("--log", help="Have an experiment tracker draw the job's curves, too."),
]


@app.command("list")
@on_network()
def list_jobs(
    *,
    network: Network,
    json: Json = False,
) -> None:
    """List the jobs that were submitted from this home, and where they stand."""

    async def work() -> list[dict[str, object]]:
        async with network.open() as client:
            return [await _row(handle) for handle in client.jobs()]

    rows = asyncio.run(work())
    emit(rows, table([_in_tokens(row) for row in rows]), as_json=json)


@app.command()
@on_network()
def status(
    job: Job,
    evaluate: Evaluate = False,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Say where a job stands, and how good its model was after every round."""

    async def work() -> None:
        from atoll.job.standings import standings_text

        async with network.open() as client:
            handle = client.attach(job)
            snapshot = await handle.status()
            curve = await (handle.evaluate() if evaluate else handle.figures())
            stands, signs = await handle.standings(), await handle.signs()
        data = snapshot.to_json_value() | {"curve": [item.to_json_value() for item in curve]}
        data["standings"] = [item.to_json_value() for item in stands]
        data["signs"] = signs.to_json_value()
        lines = [str(snapshot), *sign_lines(signs), *(item.text() for item in curve)]
        lines += [f"members     {standings_text(stands)}"] if stands else []
        emit(data, "\n".join(lines), as_json=json)

    asyncio.run(work())


@app.command()
@on_network()
def history(
    job: Job,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Say what became of every round, every seat and every token of a job.

    With --json it is the document that the dashboard draws.
    """

    async def work() -> dict[str, Any]:
        from atoll.dashboard.reader import Reader
        from atoll.job.ledger.json_document import job_document
        from atoll.protocol.types import JobId

        async with network.open() as client:
            if json:
                return await Reader(client).job(JobId(job))
            handle = client.attach(job)
            return job_document(await handle.ledger(), await handle.figures())

    document = asyncio.run(work())
    emit(document, _history_text(document), as_json=json)


def _history_text(document: dict[str, Any]) -> str:
    from atoll.job.ledger.text import money_lines, round_line, sections, unsafe_lines

    now = document["job"]["now"]
    lines = [table([round_line(row, now) for row in document["rounds"]])]
    for title, items in sections(document):
        lines += ["", title, *(f"  {line}" for line in items)] if items else []
    return "\n".join(
        [*lines, "", *money_lines(document["money"]), *unsafe_lines(document["unsafe"])]
    )


@watch_app.command()
@on_network()
def watch(
    job: Job,
    log: Log = None,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Tell everything that happens in a job, and how good its models are, until it has ended.

    Of a job that learns by rewards it counts, where torch is installed, what each round sampled.

    With --log each round's loss, tokens, seconds and money, and each seat's part of them, go to an
    experiment tracker, too.
    """

    async def work() -> None:
        from atoll.job.job_update import JobUpdate
        from atoll.job.own_evaluation import measuring
        from atoll.job.own_rewards import measure_rewards_here
        from atoll.job.tracking import tracking

        async with network.open() as client:
            handle = client.attach(job)
            # Before it follows: a job that is not there would be waited for.
            waits = while_it_waits(await handle.status())
            if waits:
                say(waits)
            async with measuring(handle, measure_rewards_here), tracking(handle, log) as track:
                with watching(as_json=json) as show:
                    async for item in handle.follow():
                        emit(item_to_json_value(item), text_of(item), as_json=json)
                        if isinstance(item, JobUpdate):
                            show(item.snapshot)
                        await track(item)
            for line in sign_lines(await handle.signs()):
                say(line)
            say(after_the_end(await handle.status()))

    asyncio.run(work())


@app.command()
@on_network()
def logs(
    job: Job,
    seat: Annotated[int | None, typer.Option(min=0, help="Of one provider's seat only.")] = None,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Tell what happened in a job so far: who did what, and what was refused and why."""

    async def work() -> list[JobUpdate]:
        async with network.open() as client:
            return await client.attach(job).logs(seat)

    updates = asyncio.run(work())
    text = "\n".join(
        f"{update.block.number:>8}  {moment(update.block.timestamp)}  {update.text}"
        for update in updates
    )
    emit([update_to_json_value(update) for update in updates], text, as_json=json)


@app.command()
@on_network()
def audit(
    job: Job,
    round_: Annotated[
        int | None, typer.Option("--round", min=0, help="Of one settled round only.")
    ] = None,
    seat: Annotated[int | None, typer.Option(min=0, help="Of one provider's seat only.")] = None,
    seats: Annotated[
        int | None,
        typer.Option(
            min=0, help="Train so many seats of each round again, drawn at random; default 1."
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Train every seat again.")] = False,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Check a job from public data: train seats again, merge again, count its money again.

    Ends with 1 where what stands on the chain is not so, else with 4 where nobody serves any more
    what a merge or a seat could be checked with.
    """
    from atoll.job.asking import missing_extra

    if (seat is not None) + (seats is not None) + all_ > 1:
        raise ConfigError(
            "--seat, --seats and --all each say which seats to train again",
            next_step="leave all but one of them out",
        )
    try:
        from atoll.job.audit import Extent, JobCheck, RoundCheck
        from atoll.job.audit import audit as audit_job
    except ImportError as error:
        raise missing_extra("auditing") from error

    def tell(checked_round: RoundCheck) -> None:
        if not json:
            emit(None, checked_round.text(), as_json=False)

    async def work() -> JobCheck:
        extent = Extent(round_, seat, None if all_ else 1 if seats is None else seats)
        async with network.open() as client:
            return await audit_job(client.attach(job), extent, tell, say)

    checked = asyncio.run(work())
    emit(checked.to_json_value(), checked.text(), as_json=json)
    if checked.faults or checked.gaps:
        raise typer.Exit(1 if checked.faults else StorageError.exit_code)


async def _row(handle: JobHandle) -> dict[str, object]:
    snapshot = await handle.status()
    manifest = handle.own_manifest()
    return {
        "job": handle.id,
        "name": manifest.name if manifest else "",
        "status": snapshot.status.name.lower(),
        "rounds": f"{snapshot.settled_rounds}/{snapshot.rounds}",
        "funded_wei": str(snapshot.funded_wei),
        "paid_wei": str(snapshot.paid_wei),
    }


def _in_tokens(row: dict[str, object]) -> dict[str, object]:
    """A row of the list as a person reads amounts."""
    from atoll.job.event_text import tokens

    amounts = {name: row[f"{name}_wei"] for name in ("funded", "paid")}
    rest = {name: value for name, value in row.items() if not name.endswith("_wei")}
    return rest | {f"{name} (tokens)": tokens(int(str(wei))) for name, wei in amounts.items()}
