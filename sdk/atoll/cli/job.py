"""`atoll job`: submit, follow and collect training jobs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.jobfile import chosen_job
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
from atoll.cli.output import Json, emit, say
from atoll.law.words import TOKEN

if TYPE_CHECKING:
    from atoll.job.handle import JobHandle
    from atoll.job.narrate import JobSnapshot, JobUpdate

app = typer.Typer(no_args_is_help=True, help="Submit, follow and collect training jobs.")

Job = Annotated[int, typer.Argument(metavar="JOB", help="The job's number.", min=1)]


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file.")],
    max_spend: Annotated[float, typer.Option(help="Tokens that are never exceeded.")] = 100.0,
    detach: Annotated[bool, typer.Option(help="Do not stay to serve the data and watch.")] = False,
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """Pay for a job and open it. Stays to serve the data, unless told to detach."""
    network = Network(rpc, deployment, home, keystore, password_file)
    spec = chosen_job(file, "", None, None)

    async def work() -> None:
        async with network.open(must_sign=True) as client:
            job = await client.submit(spec, max_spend=int(max_spend * TOKEN))
            emit({"job": job.id, "handle": job.to_json()}, f"job {job.id}", as_json=json)
            if not detach:
                say("serving the data and watching; Ctrl-C stops both")
                await _watch(job, as_json=False)

    asyncio.run(work())


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
            await _watch(client.attach(job), as_json=json)

    asyncio.run(work())


@app.command()
def result(
    job: Job,
    folder: Annotated[Path, typer.Argument(help="Where the model goes.")],
    rpc: Rpc = DEFAULT_RPC,
    deployment: DeploymentFile = None,
    home: Home = DEFAULT_HOME,
    json: Json = False,
) -> None:
    """Fetch the trained model, as `transformers` opens it."""

    async def work() -> None:
        async with Network(rpc, deployment, home).open() as client:
            await client.attach(job).result(folder)
        emit({"job": job, "folder": str(folder)}, str(folder), as_json=json)

    asyncio.run(work())


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
    network = Network(rpc, deployment, home, keystore, password_file)

    async def work() -> None:
        async with network.open(must_sign=True) as client:
            handle = client.attach(job)
            await handle.cancel()
            snapshot = await handle.status()
        emit(_plain(snapshot), _snapshot_text(snapshot), as_json=json)

    asyncio.run(work())


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
    network = Network(rpc, deployment, home, keystore, password_file)

    async def work() -> None:
        from atoll.job.narrate import tokens

        async with network.open(must_sign=True) as client:
            wei = await client.attach(job).refund()
        data = {"job": job, "refunded_wei": str(wei)}
        emit(data, f"{tokens(wei)} tokens came back", as_json=json)

    asyncio.run(work())


async def _watch(job: JobHandle, *, as_json: bool) -> None:
    async for update in job.watch():
        emit(_update(update), update.text, as_json=as_json)


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
