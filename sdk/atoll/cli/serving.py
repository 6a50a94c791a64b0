"""Pays for the job of a file, and serves its data until it is over, or brings it to verifiers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from atoll.cli.jobfile import chosen_job
from atoll.cli.network_commands import Network
from atoll.cli.output import emit, say
from atoll.cli.progress import MEASURING, Preparing
from atoll.cli.snapshot import after_the_end, item_to_json_value, text_of
from atoll.errors import AtollError, ChainError, ConfigError
from atoll.service.background_tasks import ended_by

if TYPE_CHECKING:
    from atoll.job.client import Client
    from atoll.job.draft import Draft
    from atoll.job.figures import RoundFigures
    from atoll.job.handle import JobHandle
    from atoll.job.job_snapshot import JobSnapshot
    from atoll.job.job_update import JobUpdate


@dataclass(frozen=True, slots=True)
class Serving:
    """How long and what is served.

    Attributes:
        detach: whether the data is brought to verifiers, and nothing is served.
        quota: bytes of models and updates of past rounds that are kept; 0 keeps none.
    """

    detach: bool = False
    quota: int = 0

    @classmethod
    def of(cls, detach: bool, archive: float | None) -> Serving:
        """By the options. Raises ConfigError where one says to stop and the other to go on."""
        if detach and archive is not None:
            raise ConfigError(
                "--archive goes on serving, --detach stops", next_step="leave one of them out"
            )
        return cls(detach, int((archive or 0) * 10**9))

    def on(self, network: Network) -> Network:
        """The network as a command is on it that serves so: what is kept for others takes an
        address that they reach, and who goes announces none.
        """
        announce = False if self.detach else True if self.quota else None
        return replace(network, announce=announce)


@dataclass(frozen=True, slots=True)
class Payment:
    """What `submit` is told beside the job: tokens at most, what to serve, whether to pay without
    asking, whether the same file is another job, and what to print.
    """

    max_spend: str
    serving: Serving
    sure: bool = False
    again: bool = False
    as_json: bool = False

    @classmethod
    def of(
        cls, tokens: str, serving: Serving, *, sure: bool, again: bool = False, as_json: bool
    ) -> Payment:
        """By the options, before any work is done for it.

        Raises ConfigError for what is no amount, and where nobody can be asked whether to pay.
        """
        from atoll.job.groups import wei_of

        if not sure and (as_json or not sys.stdin.isatty()):
            raise ConfigError(
                "there is nobody to ask whether to pay",
                next_step="pass --yes: it pays without a word, and not again what is paid, which "
                "`atoll job serve JOB` serves",
            )
        wei_of(tokens)  # what is no amount is refused before any work is done for it
        return cls(tokens, serving, sure, again, as_json)


def submit_file(
    network: Network, file: Path, payment: Payment, settings: list[str] | None = None
) -> None:
    """Pays for a file's job, opens it and serves its data."""
    spec, as_json = chosen_job(file, "", None, settings), payment.as_json
    network = payment.serving.on(network)
    paid: list[int] = []

    async def pay() -> tuple[int, int]:
        async with network.open(must_sign=True) as client:
            client.check_reach()
            say(MEASURING)
            with Preparing() as progress:
                draft = await client.draft(spec, again=payment.again, on_progress=progress)
            if draft.job is None:
                await _agree(client, draft, payment)
            else:
                say(f"this file is job {draft.job}; --again makes another of it")
            job = await client.submit(draft, max_spend=payment.max_spend)
            paid.append(job.id)
            emit({"job": job.id, "handle": job.to_json()}, f"job {job.id}", as_json=as_json)
            return job.id, client.port

    with stopping(paid):
        job, port = asyncio.run(pay())
        # What `--json` prints is told already.
        tell = nothing_of if as_json else words_of
        serve_until_over(network, job, port, payment.serving, tell)


async def _agree(client: Client, draft: Draft, payment: Payment) -> None:
    """Shows what a job costs, and asks, unless told not to. Raises ConfigError."""
    from atoll.job.event_text import tokens
    from atoll.job.groups import units_text, wei_of
    from atoll.train.corpus.options import PUBLIC_NOTICE

    estimate = await client.estimate(draft.manifest)
    if not payment.as_json:
        for line in draft.read.lines() if draft.read else []:
            say(line)
        for figure in draft.figures:
            say(f"{figure.path}: {figure.text}: {figure.reason}")
        say(
            f"{client.address} pays {units_text(estimate.budget)} tokens at most, of "
            f"{tokens(estimate.balance)}; what nobody earns comes back"
        )
    for note in draft.notes:
        say(f"warning: {note}")
    say(PUBLIC_NOTICE)
    if payment.sure or estimate.budget > wei_of(payment.max_spend):
        return  # the refusal says more than a question
    if not typer.confirm("pay?", err=True):
        raise ConfigError("nothing was paid", next_step="change the job, or pass --yes")


Tell = Callable[["JobUpdate | RoundFigures"], None]


def line_of(item: JobUpdate | RoundFigures) -> None:
    """Tells a program."""
    emit(item_to_json_value(item), "", as_json=True)


def words_of(item: JobUpdate | RoundFigures) -> None:
    """Tells a person."""
    say(text_of(item))


def nothing_of(item: JobUpdate | RoundFigures) -> None:
    del item


def serve_until_over(network: Network, job: int, port: int, serving: Serving, tell: Tell) -> None:
    """Serves this home's blocks, or brings them to verifiers, and tells what happens, until the job
    ends, or verifiers hold the data and we are to go.
    """
    ended = asyncio.run(_serve_and_watch(network, job, port, serving, tell))
    if ended is not None:
        say(after_the_end(ended))
    else:
        say(f"the verifiers hold the data of job {job}. {_again(job)}")


@contextmanager
def stopping(paid: Sequence[int]) -> Iterator[None]:
    """Says, whenever Ctrl-C comes, what stays: of a job that is paid, with that or before."""
    try:
        yield
    except KeyboardInterrupt:
        for job in paid:
            say(
                f"nobody has the data from here any more; job {job} and its money stay. "
                f"{_again(job)}"
            )
        raise


def _again(job: int) -> str:
    return (
        f"`atoll job serve {job}` serves it again, with --detach it brings it to verifiers again; "
        f"`atoll watch {job}` tells what happens"
    )


async def _serve_and_watch(
    network: Network, job: int, port: int, serving: Serving, tell: Tell
) -> JobSnapshot | None:
    """Where the job stands once it has ended; None where it was handed over."""
    from atoll.job.archive import archiving, until_claimed
    from atoll.job.early_stopping import ran_out, stops_early
    from atoll.job.event_text import tokens
    from atoll.job.figures import RoundFigures
    from atoll.job.own_evaluation import can_evaluate, evaluate_here, measuring

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(network.watching(port))
        handle = client.attach(job)
        if serving.detach:
            await handle.hand_over(say)
            snapshot = await handle.status()
            return snapshot if snapshot.has_ended else None
        await stack.enter_async_context(_reaching_verifiers(client, handle))
        await stack.enter_async_context(measuring(handle, evaluate_here))
        await stack.enter_async_context(archiving(handle, serving.quota))
        async for update in handle.follow(evaluated=can_evaluate()):
            tell(update)
            if isinstance(update, RoundFigures) and await stops_early(handle):
                await _cancel(network, job)
        if await ran_out(handle):
            async with network.open(must_sign=True) as signing:
                wei = await signing.attach(job).refund()
            say(f"{tokens(wei)} tokens came back")
        if serving.quota:
            say(f"job {job} has ended; its rounds are served until nothing can be claimed any more")
            await until_claimed(handle)
        return await handle.status()


async def _cancel(network: Network, job: int) -> None:
    """Ends a job that does not get better; what stops that is said, and it is tried again."""
    try:
        async with network.open(must_sign=True) as client:
            await client.attach(job).cancel()
    except AtollError as error:
        say(f"the job should end, for its model does not get better, but: {error}")
    else:
        say("the model does not get better: the job is cancelled and ends with this round")


@asynccontextmanager
async def _reaching_verifiers(client: Client, handle: JobHandle) -> AsyncIterator[None]:
    """Serves the data or brings it, beside other work, and says when nobody needs ours any more."""
    if client.announces:
        await client.session.serve()
        say(f"serving the data at {client.session.url}; Ctrl-C stops that")

    async def until_held() -> None:
        if not client.announces:
            await handle.hand_over(say)
        while True:
            if await _is_handed_over(handle):
                break
            await asyncio.sleep(client.config.poll_seconds)
        say("the verifiers hold the data: this may be stopped, and the job goes on")

    async with ended_by(until_held()):
        yield


async def _is_handed_over(handle: JobHandle) -> bool:
    try:
        return await handle.is_handed_over()
    except ChainError:
        return False  # it pauses, or has not confirmed the job yet: neither ends anything
