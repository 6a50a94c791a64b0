"""`atoll job`: describe, size, submit, follow and collect training jobs."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.continued import changes_of, is_continued, job_text, write_following
from atoll.cli.jobfile import InitFolder, Settings, Text, chosen_job
from atoll.cli.network import (
    DEFAULT_HOME,
    Home,
    Network,
    on_network,
)
from atoll.cli.output import Json, emit, moment, say, table
from atoll.cli.progress import MEASURING, Preparing
from atoll.cli.serving import (
    Payment,
    Serving,
    line_of,
    serve_until_over,
    stopping,
    submit_file,
    words_of,
)
from atoll.cli.snapshot import (
    after_the_end,
    cancelled_text,
    item_to_plain,
    plain,
    sign_lines,
    snapshot_text,
    text_of,
    update_to_plain,
    while_it_waits,
)
from atoll.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from atoll.job.client import Client
    from atoll.job.delivery import Delivery
    from atoll.job.event_text import JobSnapshot, JobUpdate
    from atoll.job.handle import JobHandle
    from atoll.job.signs import Signs

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Submit, follow and collect training jobs."
)

Job = Annotated[int, typer.Argument(metavar="JOB", help="The job's number.", min=1)]
Evaluate = Annotated[
    bool,
    typer.Option("--evaluate", help="Compute the held-out losses here too, which takes torch."),
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A job file (`atoll job new`).")]
Round = Annotated[
    int | None, typer.Option("--round", min=0, help="The last settled one if excluded.")
]
License = Annotated[str, typer.Option("--license", help="For the card, as the Hub names it.")]
BaseModel = Annotated[str, typer.Option(help="For the card, as the Hub names it.")]
Folder = Annotated[Path, typer.Argument(help="Where the model goes.")]
Amount = Annotated[str, typer.Argument(metavar="AMOUNT", help="Tokens, as 25 or 0.5.")]
MaxSpend = Annotated[str, typer.Option(metavar="N", help="Tokens that are never exceeded.")]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="Do not ask before paying; needed without a terminal, and with --json, also for what "
        "is paid already.",
    ),
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Stop serving once the verifiers hold the data.")
]
Archive = Annotated[
    float | None,
    typer.Option(
        metavar="GB",
        min=0.001,
        max=1e9,
        help="Keep every round's model and updates, up to so much, and serve them until the claim "
        "deadline, so that anybody can audit the job after its end.",
    ),
]
Merged = Annotated[
    bool,
    typer.Option("--merged", help="Adapters added to the model that they were trained on."),
]

Clean = Annotated[
    bool,
    typer.Option(
        "--clean",
        help="The last model before anybody was merged whose work was found false, as certified.",
    ),
]


@app.command()
def new(
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="demo, nano, gpt2-small, llama-1b, finetune or lora; default nano, or finetune "
            "with --init.",
        ),
    ] = None,
    init: InitFolder = None,
    data: Text = None,
    settings: Settings = None,
) -> None:
    """Print a job file with every choice in it, for `atoll job check` and `submit`.

    Its paths are absolute, so the file can lie in any folder.
    """
    name = preset or ("nano" if init is None else "finetune")
    spec = chosen_job(None, name, data, settings, init)
    # A file's relative paths are taken from its folder. Nobody here knows the one that the output
    # goes to, and the command line means this folder.
    sys.stdout.write(job_text(spec.beside(Path.cwd()), f"from the preset {name}"))


@app.command("continue")
@on_network(serves=True)
def continue_job(
    job: Job,
    rounds: Annotated[int, typer.Option(min=1, help="Of the new job.")],
    max_spend: MaxSpend,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where model and job file go; default continued-JOB."),
    ] = None,
    settings: Settings = None,
    yes: Yes = False,
    detach: Detach = False,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Submit a job like an earlier one of this home, from the newest model of that one.

    Model and job file are written to a folder first, and the file is submitted as by `submit`. Run
    again, it submits the file that is there, as it is: the same job, with the model of then.
    """
    place = folder or Path(f"continued-{job}")
    payment = Payment.of(max_spend, Serving(detach), sure=yes, as_json=json)
    file = place / "job.toml"
    if is_continued(file, job, changes_of(rounds, settings)):
        say(f"{file} is there, and submitted as it is; another --folder has the newest model")
    else:
        asyncio.run(write_following(network, job, rounds, place, settings))
        say(f"{file} has the job")
    submit_file(network, file, payment)


@app.command()
def check(
    file: File,
    settings: Settings = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """Say what a job costs and needs, and every figure that is computed. Spends nothing."""
    from atoll.chain.txconfig import QueueConfig
    from atoll.job.quote import quote, report
    from atoll.job.sizing import size_job

    spec = chosen_job(file, "", None, settings)
    say(MEASURING)
    with Preparing() as progress:
        draft = asyncio.run(size_job(spec, home.expanduser(), progress))
    assert draft.pace is not None  # `size_job` measures
    look = quote(draft, draft.pace, QueueConfig().fee_cap)
    figures = [asdict(figure) for figure in draft.figures]
    more = {"computed": figures, "data": draft.read.to_plain() if draft.read else None}
    emit(look.to_plain() | more, report(draft, look), as_json=json)


@app.command()
@on_network(serves=True)
def submit(
    file: File,
    max_spend: MaxSpend,
    settings: Settings = None,
    yes: Yes = False,
    again: Annotated[
        bool, typer.Option("--again", help="Another job, though this file was submitted.")
    ] = False,
    detach: Detach = False,
    archive: Archive = None,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Pay for a job and open it, then serve its data. The same file again is the same job."""
    serving = Serving.of(detach, archive)
    payment = Payment.of(max_spend, serving, sure=yes, again=again, as_json=json)
    submit_file(network, file, payment, settings)


@app.command()
@on_network(serves=True)
def serve(
    job: Job,
    detach: Detach = False,
    archive: Archive = None,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Serve a job's data again, after a stop or from another machine with this home."""
    serving = Serving.of(detach, archive)

    async def announce() -> int:
        async with network.open(must_sign=True) as client:
            await client.attach(job).status()
            await client.serve()
            return client.port

    with stopping([job]):
        port = asyncio.run(announce())
        tell = line_of if json else words_of
        serve_until_over(network, job, port, serving, tell)


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
    """Say where a job stands, what became of every round, and how good its model was after it."""

    async def work() -> None:
        from atoll.job.stands import standings_text

        async with network.open() as client:
            handle = client.attach(job)
            snapshot = await handle.status()
            curve = await (handle.evaluate() if evaluate else handle.figures())
            rounds, now = await handle.rounds(), client.follower.now
            stands, signs = await handle.standings(), await handle.signs()
        data = plain(snapshot) | {"curve": [item.to_plain() for item in curve]}
        data["standings"] = [item.to_plain() for item in stands]
        data |= {"history": [item.to_plain() for item in rounds], "signs": signs.to_plain()}
        lines = [snapshot_text(snapshot), *sign_lines(signs), *(item.text() for item in curve)]
        lines += [f"members     {standings_text(stands)}"] if stands else []
        lines += ["", table([item.row(now) for item in rounds])] if rounds else []
        emit(data, "\n".join(lines), as_json=json)

    asyncio.run(work())


@app.command()
@on_network()
def watch(
    job: Job,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Tell everything that happens in a job, and how good its models are, until it has ended."""

    async def work() -> None:
        async with network.open() as client:
            handle = client.attach(job)
            # Before it follows: a job that is not there would be waited for.
            waits = while_it_waits(await handle.status())
            if waits:
                say(waits)
            async for item in handle.follow():
                emit(item_to_plain(item), text_of(item), as_json=json)
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

    told = asyncio.run(work())
    text = "\n".join(
        f"{update.block.number:>8}  {moment(update.block.timestamp)}  {update.text}"
        for update in told
    )
    emit([update_to_plain(update) for update in told], text, as_json=json)


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

    def tell(found: RoundCheck) -> None:
        if not json:
            emit(None, found.text(), as_json=False)

    async def work() -> JobCheck:
        extent = Extent(round_, seat, None if all_ else 1 if seats is None else seats)
        async with network.open() as client:
            return await audit_job(client.attach(job), extent, tell, say)

    checked = asyncio.run(work())
    emit(checked.to_plain(), checked.text(), as_json=json)
    if checked.faults or checked.gaps:
        raise typer.Exit(1 if checked.faults else StorageError.exit_code)


@app.command()
@on_network()
def result(
    job: Job,
    folder: Folder,
    merged: Merged = False,
    clean: Clean = False,
    license_: License = "unknown",
    base_model: BaseModel = "",
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Fetch the trained model, as `transformers` opens it, with its model card.

    Where somebody fell in the last round, that is merged once more without them, and said. Where
    it holds what somebody sent whose work was found false, that is said, too, and --clean fetches
    the last model before that. Of a job that trains adapters, what PEFT opens, or with --merged
    what `transformers` does.
    """
    from atoll.job.card import Labels
    from atoll.job.certified import check_folder

    check_folder(folder)
    labels = Labels(license_, base_model)

    async def work() -> tuple[int | None, Delivery | None, Signs]:
        async with network.open() as client:
            handle = client.attach(job)
            rounds = await handle.clean(folder, labels, merged=merged) if clean else None
            delivery = None if rounds is not None else await handle.delivery()
            if delivery is not None:
                await handle.result(folder, labels, merged=merged, delivery=delivery)
            return rounds, delivery, await handle.signs()

    rounds, found, signs = asyncio.run(work())
    told: dict[str, object] = {"job": job, "folder": str(folder)}
    if found is None:
        which = f"after round {rounds - 1}" if rounds else "that the job began with"
        say(f"the model {which}, the last clean one")
        told["clean_rounds"] = rounds
    else:
        if found.fallen:
            say(found.text())
        for line in sign_lines(found.signs(signs)):
            say(line)
        told["delivery"] = found.to_plain()
    emit(told | {"signs": signs.to_plain()}, str(folder), as_json=json)


@app.command()
@on_network()
def checkpoint(
    job: Job,
    folder: Folder,
    round_: Round = None,
    merged: Merged = False,
    license_: License = "unknown",
    base_model: BaseModel = "",
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Fetch the model after a settled round, while the job goes on."""
    from atoll.job.card import Labels
    from atoll.job.certified import check_folder

    check_folder(folder)

    async def work() -> tuple[int, Signs]:
        async with network.open() as client:
            handle, labels = client.attach(job), Labels(license_, base_model)
            found = await handle.settled_round(round_)
            await handle.checkpoint(folder, found, labels, merged=merged)
            return found, (await handle.signs()).after(found + 1)

    found, signs = asyncio.run(work())
    say(f"the model after round {found}")
    for line in sign_lines(signs):
        say(line)
    emit({"job": job, "folder": str(folder), "round": found}, str(folder), as_json=json)


@app.command()
@on_network()
def sample(
    job: Job,
    prompt: Annotated[str, typer.Option(help="What the text begins with.")],
    tokens: Annotated[int, typer.Option(min=1, max=1 << 16, help="How many to add.")] = 200,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest.")] = 0.8,
    seed: int = 0,
    round_: Round = None,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Have the model after a settled round continue a prompt, on this machine."""
    from atoll.job.asking import missing_extra

    try:
        from atoll.train.generate import Sampling
    except ImportError as error:
        raise missing_extra("sampling") from error

    async def work() -> tuple[int, str]:
        sampling = Sampling(length=tokens, temperature=temperature, seed=seed)
        async with network.open() as client:
            handle = client.attach(job)
            found = await handle.settled_round(round_)
            return found, await handle.sample(prompt, sampling, found)

    found, text = asyncio.run(work())
    emit({"job": job, "round": found, "text": text}, text, as_json=json)


@app.command()
@on_network(signs=True)
def fund(
    job: Job,
    amount: Amount,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Pay more into a job's escrow; what nobody earns comes back by `refund`."""
    from atoll.job.event_text import tokens

    async def work(client: Client) -> int:
        return await client.attach(job).fund(amount)

    wei = _signed(network, work)
    emit({"job": job, "funded_wei": str(wei)}, f"{tokens(wei)} tokens paid in", as_json=json)


@app.command()
@on_network(signs=True)
def cancel(
    job: Job,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """End a job: at once while it waits for members, else after the running round.

    A job that is cancelled already is only said to be so; nothing is sent.
    """

    from atoll.job.event_text import JobSnapshot

    async def work(client: Client) -> tuple[bool, int, JobSnapshot]:
        handle = client.attach(job)
        done, view = await handle.cancel(), await handle.newest()
        return done, view.refunded, JobSnapshot.of(view, client.follower.now)

    done, refunded, snapshot = _signed(network, work)
    say(cancelled_text(snapshot, refunded, already=not done))
    emit(plain(snapshot), snapshot_text(snapshot), as_json=json)


@app.command()
@on_network(signs=True)
def refund(
    job: Job,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Take back what nobody can earn any more: of a job that has ended most of it at once, and
    what is left after the claim deadline.
    """
    from atoll.job.event_text import tokens

    async def work(client: Client) -> tuple[int, int, int]:
        handle = client.attach(job)
        wei, due = await handle.refund(), await handle.rest_due()
        return wei, (await client.chain.escrow(handle.id)).balance, due

    wei, left, due = _signed(network, work)
    data = {"job": job, "refunded_wei": str(wei), "left_wei": str(left), "rest_due": due}
    text = f"{tokens(wei)} tokens came back so far"
    if left:
        text += f"; {tokens(left)} are still there for pay: what nobody claims is yours"
        text += f" from {moment(due)} on"
    emit(data, text, as_json=json)


def _signed(network: Network, work: Any) -> Any:
    """What a coroutine of a client that signs comes to."""

    async def go() -> Any:
        async with network.open(must_sign=True) as client:
            return await work(client)

    return asyncio.run(go())


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
