"""`atoll job`: describe, size, submit, follow and collect training jobs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.jobfile import InitFolder, Settings, Text, chosen_job
from atoll.cli.network import (
    DEFAULT_HOME,
    DEFAULT_RPC,
    DeploymentFile,
    Home,
    Keystore,
    Network,
    PasswordFile,
    Rpc,
)
from atoll.cli.output import Json, emit, say, table
from atoll.errors import ChainError, ConfigError

if TYPE_CHECKING:
    from atoll.job.client import Client
    from atoll.job.draft import Draft
    from atoll.job.handle import JobHandle
    from atoll.job.narrate import JobSnapshot, JobUpdate
    from atoll.job.spec import JobSpec

app = typer.Typer(no_args_is_help=True, help="Submit, follow and collect training jobs.")

Job = Annotated[int, typer.Argument(metavar="JOB", help="The job's number.", min=1)]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A job file (`atoll job new`).")]
Folder = Annotated[Path, typer.Argument(help="Where the model goes.")]
Amount = Annotated[str, typer.Argument(metavar="AMOUNT", help="Tokens, as 25 or 0.5.")]


@app.command()
def new(
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default: nano, or finetune with --init.")
    ] = None,
    init: InitFolder = None,
    data: Text = None,
    settings: Settings = None,
) -> None:
    """Print a job file with every choice in it, for `atoll job check` and `submit`."""
    name = preset or ("nano" if init is None else "finetune")
    _print_job(chosen_job(None, name, data, settings, init), f"from the preset {name}")


@app.command("continue")
def continue_job(
    job: Job,
    rounds: Annotated[int, typer.Option(min=1, help="Of the new job.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where the model goes; default continued-JOB.")
    ] = None,
    settings: Settings = None,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Print a job file like a job's own that starts from its model; fetches the model."""
    from atoll.job.document import parse_setting

    async def work() -> JobSpec:
        async with Network(rpc, deployment, home).open() as client:
            handle = client.attach(job)
            return await handle.continued(folder or Path(f"continued-{job}"), rounds)

    spec = asyncio.run(work()).but(dict(map(parse_setting, settings or [])))
    _print_job(spec, f"from the model of job {job}")


def _print_job(spec: JobSpec, origin: str) -> None:
    from atoll.job.document import to_toml

    head = (
        f"A job, {origin}. What has a # in front is computed, and shown by\n"
        "`atoll job check`. Amounts are tokens; numbers, durations and text are as in TOML."
    )
    sys.stdout.write(to_toml(spec, head))


@app.command()
def check(
    file: File,
    settings: Settings = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """Say what a job costs and needs, and every figure that is computed. Spends nothing."""
    from atoll.chain.txqueue import QueueConfig
    from atoll.job.outlook import outlook, report
    from atoll.job.sizing import size_job

    spec = chosen_job(file, "", None, settings)
    draft = asyncio.run(size_job(spec, home.expanduser()))
    assert draft.pace is not None  # `size_job` measures
    look = outlook(draft, draft.pace, QueueConfig().fee_cap)
    figures = [asdict(figure) for figure in draft.figures]
    emit(look.to_plain() | {"computed": figures}, report(draft, look), as_json=json)


@app.command()
def submit(
    file: File,
    max_spend: Annotated[str, typer.Option(metavar="N", help="Tokens that are never exceeded.")],
    settings: Settings = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before paying.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Another job, though this file was submitted.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Stop serving once the verifiers hold the data.")
    ] = False,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """Pay for a job and open it, then serve its data. The same file again is the same job."""
    network = Network(rpc, deployment, home, keystore, password_file)
    spec = chosen_job(file, "", None, settings)

    async def pay() -> tuple[int, int]:
        async with network.open(must_sign=True) as client:
            draft = await client.draft(spec, again=again)
            if draft.job is None:
                await _agree(client, draft, max_spend, sure=yes, quiet=json)
            else:
                say(f"this file is job {draft.job}; --again makes another of it")
            job = await client.submit(draft, max_spend=max_spend)
            emit({"job": job.id, "handle": job.to_json()}, f"job {job.id}", as_json=json)
            return job.id, client.port

    job, port = asyncio.run(pay())
    _serve_job(network, job, port, until_handed_over=detach, quiet=json)


@app.command()
def serve(
    job: Job,
    detach: Annotated[
        bool, typer.Option("--detach", help="Stop once the verifiers hold the data.")
    ] = False,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Serve a job's data again, after a stop or from another machine with this home."""
    network = Network(rpc, deployment, home, keystore, password_file)

    async def announce() -> int:
        async with network.open(must_sign=True) as client:
            await client.attach(job).status()
            await client.serve()
            return client.port

    port = asyncio.run(announce())
    _serve_job(network, job, port, until_handed_over=detach, quiet=False)


@app.command("list")
def list_jobs(
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """List the jobs that were submitted from this home, and where they stand."""

    async def work() -> list[dict[str, object]]:
        async with Network(rpc, deployment, home).open() as client:
            return [await _row(handle) for handle in client.jobs()]

    rows = asyncio.run(work())
    emit(rows, table(rows), as_json=json)


@app.command()
def status(
    job: Job,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """Say where a job stands."""

    async def work() -> None:
        async with Network(rpc, deployment, home).open() as client:
            snapshot = await client.attach(job).status()
        emit(_plain(snapshot), _snapshot_text(snapshot), as_json=json)

    asyncio.run(work())


@app.command()
def watch(
    job: Job,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """Tell everything that happens in a job, until it has ended."""

    async def work() -> None:
        async with Network(rpc, deployment, home).open() as client:
            async for update in client.attach(job).watch():
                emit(_update(update), update.text, as_json=json)

    asyncio.run(work())


@app.command()
def logs(
    job: Job,
    seat: Annotated[int | None, typer.Option(min=0, help="Of one provider's seat only.")] = None,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """Tell what happened in a job so far: who did what, and what was refused and why."""

    async def work() -> list[JobUpdate]:
        async with Network(rpc, deployment, home).open() as client:
            return await client.attach(job).logs(seat)

    told = asyncio.run(work())
    text = "\n".join(f"{update.block.number:>8}  {update.text}" for update in told)
    emit([_update(update) for update in told], text, as_json=json)


@app.command()
def result(
    job: Job,
    folder: Folder,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """Fetch the trained model, as `transformers` opens it."""

    async def work() -> None:
        async with Network(rpc, deployment, home).open() as client:
            await client.attach(job).result(folder)

    asyncio.run(work())
    emit({"job": job, "folder": str(folder)}, str(folder), as_json=json)


@app.command()
def checkpoint(
    job: Job,
    folder: Folder,
    round_: Annotated[
        int | None, typer.Option("--round", min=0, help="The last settled one if left out.")
    ] = None,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """Fetch the model after a settled round, while the job goes on."""

    async def work() -> None:
        async with Network(rpc, deployment, home).open() as client:
            await client.attach(job).checkpoint(folder, round_)

    asyncio.run(work())
    emit({"job": job, "folder": str(folder), "round": round_}, str(folder), as_json=json)


@app.command()
def fund(
    job: Job,
    amount: Amount,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """Pay more into a job's escrow; what nobody earns comes back by `refund`."""
    from atoll.job.narrate import tokens

    async def work(client: Client) -> int:
        return await client.attach(job).fund(amount)

    wei = _signed(Network(rpc, deployment, home, keystore, password_file), work)
    emit({"job": job, "funded_wei": str(wei)}, f"{tokens(wei)} tokens paid in", as_json=json)


@app.command()
def cancel(
    job: Job,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """End a job: at once while it waits for members, else after the running round."""

    async def work(client: Client) -> JobSnapshot:
        handle = client.attach(job)
        await handle.cancel()
        return await handle.status()

    snapshot = _signed(Network(rpc, deployment, home, keystore, password_file), work)
    emit(_plain(snapshot), _snapshot_text(snapshot), as_json=json)


@app.command()
def refund(
    job: Job,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """Take back what was not earned, once a job has ended."""
    from atoll.job.narrate import tokens

    async def work(client: Client) -> int:
        return await client.attach(job).refund()

    wei = _signed(Network(rpc, deployment, home, keystore, password_file), work)
    data = {"job": job, "refunded_wei": str(wei)}
    emit(data, f"{tokens(wei)} tokens came back", as_json=json)


def _signed(network: Network, work: Any) -> Any:
    """What a coroutine of a client that signs comes to."""

    async def go() -> Any:
        async with network.open(must_sign=True) as client:
            return await work(client)

    return asyncio.run(go())


async def _agree(client: Client, draft: Draft, max_spend: str, *, sure: bool, quiet: bool) -> None:
    """Shows what a job costs, and asks, unless told not to. Raises ConfigError."""
    from atoll.job.client import wei_of
    from atoll.job.groups import tokens_text
    from atoll.job.narrate import tokens

    estimate = await client.estimate(draft.manifest)
    if not quiet:
        for figure in draft.figures:
            say(f"{figure.path}: {figure.text}: {figure.reason}")
        say(
            f"{client.address} pays {tokens_text(estimate.budget)} tokens at most, of "
            f"{tokens(estimate.balance)}; what nobody earns comes back. What is submitted "
            "becomes public."
        )
    if sure or estimate.budget > wei_of(max_spend):
        return  # the refusal says more than a question
    if quiet or not sys.stdin.isatty():
        raise ConfigError(
            "there is nobody to ask whether to pay", next_step="pass --yes to pay without a word"
        )
    if not typer.confirm("pay?", err=True):
        raise ConfigError("nothing was paid", next_step="change the job, or pass --yes")


def _serve_job(
    network: Network, job: int, port: int, *, until_handed_over: bool, quiet: bool
) -> None:
    """Serves this home's blocks and tells what happens, until the job ends, or nobody needs us."""
    again = f"`atoll job serve {job}` serves again, `atoll job watch {job}` tells what happens"
    try:
        ended = asyncio.run(_serve_and_watch(network, job, port, until_handed_over, quiet))
    except KeyboardInterrupt:
        say(f"the data is not served from here any more; job {job} and its money stay. {again}")
        raise
    say(f"job {job} has ended" if ended else f"the verifiers hold the data of job {job}. {again}")


async def _serve_and_watch(
    network: Network, job: int, port: int, until_handed_over: bool, quiet: bool
) -> bool:
    """Whether the job has ended; else it was handed over."""
    async with network.watching(port) as client:
        await client.session.serve()
        say(f"serving the data at {client.session.url}; Ctrl-C stops that")
        handle, handed_over = client.attach(job), False
        async for update in _patient(handle):
            if update is not None and not quiet:
                say(update.text)
            if not handed_over and await _is_handed_over(handle):
                handed_over = True
                if until_handed_over:
                    return (await handle.status()).has_ended
                say("the verifiers hold the data: this may be stopped, and the job goes on")
    return True


async def _is_handed_over(handle: JobHandle) -> bool:
    try:
        return await handle.is_handed_over()
    except ChainError:
        return False  # it pauses, or has not confirmed the job yet: neither ends anything


async def _patient(handle: JobHandle) -> AsyncIterator[JobUpdate | None]:
    """What happens, and None whenever the chain was looked at and nothing had."""
    yield None
    async for update in handle.watch():
        yield update


async def _row(handle: JobHandle) -> dict[str, object]:
    snapshot = await handle.status()
    manifest = handle.own_manifest()
    return {
        "job": handle.id,
        "name": manifest.name if manifest else "",
        "status": snapshot.status.name.lower(),
        "rounds": f"{snapshot.settled_rounds}/{snapshot.rounds}",
        "funded_wei": str(snapshot.funded_wei),
        "earned_wei": str(snapshot.earned_wei),
    }


def _plain(snapshot: JobSnapshot) -> dict[str, Any]:
    return {name: _value(name, value) for name, value in asdict(snapshot).items()}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: _value(key, item) for key, item in value.items()}
    return str(value) if name.endswith("_wei") else value


def _snapshot_text(snapshot: JobSnapshot) -> str:
    lines = [f"{name:<15} {value}" for name, value in _plain(snapshot).items() if name != "block"]
    return "\n".join(lines)


def _update(update: JobUpdate) -> dict[str, Any]:
    return {"kind": update.kind, "text": update.text, "block": update.block.number}
