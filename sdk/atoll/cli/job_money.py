"""`atoll job fund`, `cancel`, `refund`: the money of a job that was submitted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.jobfile import Job
from atoll.cli.network_commands import Network, on_network
from atoll.cli.output import Json, emit, say
from atoll.cli.snapshot import cancelled_text
from atoll.job.readable import moment

if TYPE_CHECKING:
    from atoll.job.client import Client
    from atoll.job.job_snapshot import JobSnapshot


app = typer.Typer(add_completion=False, help="Pay for jobs, and take back what nobody earned.")

Amount = Annotated[str, typer.Argument(metavar="AMOUNT", help="Tokens, as 25 or 0.5.")]


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

    from atoll.job.job_snapshot import JobSnapshot

    async def work(client: Client) -> tuple[bool, int, JobSnapshot]:
        handle = client.attach(job)
        cancelled, view = await handle.cancel(), await handle.newest()
        return cancelled, view.refunded, JobSnapshot.of(view, client.follower.now)

    cancelled, refunded, snapshot = _signed(network, work)
    say(cancelled_text(snapshot, refunded, already=not cancelled))
    emit(snapshot.to_json_value(), str(snapshot), as_json=json)


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
