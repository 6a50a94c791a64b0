"""A whole run: a network, a job, what becomes of it, and the report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from atoll.chain.deploy import DeployConfig
from atoll.chain.structs import Escrow
from atoll.dashboard.fees import Fees
from atoll.dashboard.page import write_page
from atoll.errors import AtollError, ChainError, ConfigError, ProtocolError
from atoll.job.client import Client
from atoll.job.connection import ClientConfig
from atoll.job.draft import Draft
from atoll.job.handle import JobHandle
from atoll.job.ledger.ledger import Ledger
from atoll.job.ledger.overview import Beside, Sample
from atoll.job.own_distances import measure_here
from atoll.job.spec import JobSpec
from atoll.protocol.keeper_calls import keeper_calls
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Address, JobId, Phase
from atoll.protocol.views import JobView
from atoll.service.background_tasks import background_tasks
from atoll.service.duties.send_keeper_calls import is_over as has_ended
from atoll.service.session import SessionConfig, open_session
from atoll.service.worker import Worker
from atoll_devnet.handles import ANSWER, SAMPLE_PROMPT, SAMPLE_TEXT, SIZES
from atoll_devnet.processes.chain import block_interval
from atoll_devnet.processes.cluster import SUBMITTER_TOKENS, Cluster, ClusterConfig
from atoll_devnet.processes.warm import warm_context
from atoll_devnet.report.live import Display
from atoll_devnet.report.measured import RunResult
from atoll_devnet.report.observer import Observer, Watched
from atoll_devnet.report.run_document import build_report, slashed_honest, write_report
from atoll_devnet.run.options import RunOptions, with_text
from atoll_devnet.run.skipping import Seen, is_anybody_at_work, skip_windows
from atoll_devnet.run.stranger import Stranger, near

START_SECONDS = 300.0
"""A job in which nothing has happened for so long will not open: its members refuse it, and their
logs say why."""
QUIET_SECONDS = 30.0
"""After this long in which nothing happens, whoever has not claimed is taken to be gone."""
GIVE_UP_SECONDS = 15.0
"""So long a job that has begun waits for members when nothing is left that could bring one back."""
HEAR_SECONDS = 5.0
"""Without an event, until members are asked whether they are at work: a machine may be slow."""
MEASURE_SECONDS = 60.0
"""For the distances of a run's rounds: a member that hangs must not hold its report up."""
LOOK_SECONDS = 0.5
MAX_SPEND = str(SUBMITTER_TOKENS)
DECIMALS = 6
"""Of a run's token, as USDC has."""


@dataclass(frozen=True)
class Result:
    """What a run came to.

    Attributes:
        report: as written to report.json.
        sample: text from the trained model; empty where there is none.
    """

    report: dict[str, Any]
    sample: str
    folder: Path


@dataclass(frozen=True)
class Running:
    """A job on a network, being watched; what tests interfere with."""

    cluster: Cluster
    client: Client
    job: JobHandle
    observer: Observer
    worker: Worker
    stranger: Stranger | None = None


async def run(options: RunOptions, display: Display | None = None) -> Result:
    """Runs a job to its end, and to the last payment.

    Raises:
        ConfigError: the options do not fit together.
        ChainError, StorageError: the network could not be started or watched.
        ProtocolError: the job never started, or a party that did not cheat was slashed.
    """
    async with start(options, display or Display()) as running:
        await running.observer.run(_watchful(running))
        result = await finish(running, options)
    harmed = slashed_honest(result.report)
    if harmed:
        raise ProtocolError(
            f"honest parties were slashed: {', '.join(harmed)}",
            next_step=f"read the logs in {options.folder}",
        )
    return result


@asynccontextmanager
async def start(options: RunOptions, display: Display) -> AsyncIterator[Running]:
    """A network with a submitted job; everything ends with the context."""
    with_text(options.job)  # a wrong path is said before anything is started
    if options.folder.exists():
        raise ConfigError(
            f"{options.folder} exists", next_step="name another folder, or remove that one"
        )
    cluster, worker = Cluster(_cluster_config(options)), Worker(context=warm_context())
    stranger = None
    try:
        with display:
            display.line(f"starting a local {options.backend} chain; logs are in {options.folder}")
            async with AsyncExitStack() as stack:
                await cluster.start_chain()
                if options.has_stranger:
                    stranger = Stranger(near(cluster))
                    await stack.enter_async_context(stranger.before_members())
                for member in cluster.members:
                    member.process.start()
                who = f"{options.providers} providers and {options.verifiers} verifiers"
                display.line(f"contracts deployed; {who} start, each a process of its own")
                running = await _submit(options, cluster, worker, display, stack)
                if stranger is not None:
                    running = await _attacked(running, stranger, stack)
                yield running
    finally:
        worker.kill()
        cluster.stop()


async def _submit(
    options: RunOptions, cluster: Cluster, worker: Worker, display: Display, stack: AsyncExitStack
) -> Running:
    """Submits the job, and looks at it until the stack ends."""
    client = await stack.enter_async_context(_client(cluster, worker))
    draft = await client.draft(with_text(options.job))
    around = _Around(cluster, client, worker, display)
    return await stack.enter_async_context(around.running(draft, skips=options.skip_windows))


@dataclass(frozen=True)
class _Around:
    """What the jobs of a run have in common."""

    cluster: Cluster
    client: Client
    worker: Worker
    display: Display

    @asynccontextmanager
    async def running(self, job: Draft | Manifest, *, skips: bool) -> AsyncIterator[Running]:
        """Submits a job, and looks at it until the context ends.

        Args:
            skips: whether its windows are.
        """
        handle = await self.client.submit(job, max_spend=MAX_SPEND)
        manifest = job if isinstance(job, Manifest) else job.manifest
        self.display.line(f"job {handle.id} submitted: {manifest.terms.rounds} rounds")
        async with open_session(_watching(self.client, handle.id)) as session:
            watched = Watched(
                session,
                handle.id,
                manifest.to_bytes(),
                self.worker,
                _names(self.cluster),
                self.display,
            )
            observer = Observer(watched, quiet_since=asyncio.get_running_loop().time())
            running = Running(self.cluster, self.client, handle, observer, self.worker)
            work = [_give_up(running), _hear_members(running)]
            if skips:
                work.append(skip_windows(self.cluster, _seen(running.observer), self.display.line))
            async with background_tasks(work):
                yield running


@asynccontextmanager
async def another_job(running: Running, job: JobSpec | Manifest) -> AsyncIterator[Running]:
    """One more job on a network whose last is over; its windows are skipped.

    Args:
        running: any earlier job of the network.
    """
    watched = running.observer.watched
    around = _Around(running.cluster, running.client, running.worker, watched.display)
    made = job if isinstance(job, Manifest) else await running.client.draft(with_text(job))
    async with around.running(made, skips=True) as more:
        yield replace(more, stranger=running.stranger)


async def _attacked(running: Running, stranger: Stranger, stack: AsyncExitStack) -> Running:
    """The same, with the stranger beside the job until the stack ends."""
    watched, views = running.observer.watched, _seen(running.observer).views
    manifest = Manifest.from_bytes(watched.manifest)
    beside_it = stranger.beside_job(manifest.terms, manifest.cid(), views)
    await stack.enter_async_context(beside_it)
    watched.display.line("a stranger offers free jobs, holds connections open and damages files")
    return replace(running, stranger=stranger)


def _seen(observer: Observer) -> Seen:
    def views() -> Mapping[JobId, JobView]:
        return {} if observer.view is None else {observer.watched.job: observer.view}

    follower = observer.watched.session.follower
    return Seen(views, lambda: observer.now, lambda: follower.confirmed)


async def _hear_members(running: Running) -> None:
    """Has it be quiet only while no member is at work, so that no clock says who is gone."""
    observer, clock = running.observer, asyncio.get_running_loop().time
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if observer.view is None or _quiet_seconds(observer) < HEAR_SECONDS:
            continue
        if await is_anybody_at_work(running.cluster, observer.view):
            observer.quiet_since = clock()


async def _give_up(running: Running) -> None:
    """Cancels a job that waits for members whom nothing can bring back."""
    observer = running.observer
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if is_stuck(observer):
            observer.watched.display.line("too few members are left: the submitter cancels the job")
            await running.job.cancel()
            return


def is_stuck(observer: Observer) -> bool:
    """Whether a job that has begun waits, and no bond is still held that somebody waits for."""
    view = observer.view
    if view is None or view.phase is not Phase.WAITING or not view.settled:
        return False
    if any(view.auditing(observer.now)) or any(game.is_open for game in view.games.values()):
        return False
    return _quiet_seconds(observer) > GIVE_UP_SECONDS


def is_over(observer: Observer) -> bool:
    """Whether the job has closed, and everything has been paid, penalised, burnt and released."""
    view = observer.view
    if view is None or not has_ended(view, observer.now):
        return False
    is_settled = not any(keeper_calls(view, observer.now)) and not any(view.credits.values())
    # Someone who is gone neither claims nor is waited for.
    return is_settled or _quiet_seconds(observer) > QUIET_SECONDS


def _quiet_seconds(observer: Observer) -> float:
    return asyncio.get_running_loop().time() - observer.quiet_since


def _watchful(running: Running) -> Callable[[Observer], bool]:
    """`is_over`, which also notices a chain that ended and a job that nobody takes.

    Raises ProcessFailed or ProtocolError then.
    """

    def until(observer: Observer) -> bool:
        running.cluster.check()
        if not _has_begun(observer.view) and _quiet_seconds(observer) > START_SECONDS:
            raise ProtocolError(
                f"the job does not start: for {START_SECONDS:.0f} seconds nothing happened",
                next_step=f"read the members' logs: {running.cluster.folder}/*/log",
            )
        return is_over(observer)

    return until


def _has_begun(view: JobView | None) -> bool:
    """Whether a round was ever opened."""
    if view is None:
        return False
    return view.open is not None or bool(view.settled) or view.phase is Phase.CLOSED


async def finish(running: Running, options: RunOptions) -> Result:
    """Refund, result, report."""
    view = running.observer.view
    if view is None:
        raise ProtocolError("the job was never seen")
    if not running.observer.is_refunded:
        await _refund(running, view)
        view = running.observer.view or view
    # Members are at work still: what they do from here on is not in the ledger.
    ledger = running.observer.ledger()
    block = hex(running.observer.watched.session.follower.confirmed)
    escrow = await running.client.chain.escrow(view.job_id, block)
    result_dir, sample = await _export(running, view, options.folder / "result")
    result = await _result(running, ledger, escrow, result_dir)
    given = Sample(SAMPLE_PROMPT, sample, len(view.settled)) if sample else None
    gas = await Fees().of(running.client.chain, ledger)
    distances = await _distances(running) if options.measures else {}
    beside = Beside(result.manifest, gas=gas, sample=given, distances=distances)
    result = replace(result, beside=beside)
    report = build_report(result)
    for path in {options.folder / "report.json", options.report or options.folder / "report.json"}:
        write_report(report, path)
    write_page(report, options.folder / "report.html")
    return Result(report, sample, options.folder)


async def _refund(running: Running, view: JobView) -> None:
    try:
        await running.job.refund()
    except ChainError as error:
        running.observer.watched.display.line(f"no refund: {error}")
        return
    await running.observer.run(lambda observer: observer.is_refunded)


async def _export(running: Running, view: JobView, folder: Path) -> tuple[Path | None, str]:
    """The result through the SDK, and some text from it; (None, "") where there is none."""
    if not view.model_cid:
        return None, ""
    watched, merged = running.observer.watched, view.model_cid
    try:
        await running.job.result(folder)
        call = SAMPLE_TEXT(watched.manifest, merged, watched.store_dir)
        sample = await running.worker.run(call)
    except AtollError as error:
        watched.display.line(f"no result: {error}")
        return None, ""
    return folder, sample


async def _distances(running: Running) -> dict[tuple[int, int], float]:
    """By round and seat, of the rounds whose updates members serve still."""
    watched = running.observer.watched
    try:
        async with asyncio.timeout(MEASURE_SECONDS):
            manifest = Manifest.from_bytes(watched.manifest)
            await measure_here(running.job, manifest, running.worker)
    except (AtollError, TimeoutError) as error:
        watched.display.line(f"not all distances to the merge are measured: {error}")
    return await running.job.distances()


async def _result(
    running: Running, ledger: Ledger, escrow: Escrow, result_dir: Path | None
) -> RunResult:
    chain, observer = running.client.chain, running.observer
    manifest = observer.watched.manifest
    update, parameters = await running.worker.run(SIZES(manifest))
    return RunResult(
        cluster=running.cluster,
        manifest=Manifest.from_bytes(manifest),
        ledger=ledger,
        escrow=escrow,
        losses=observer.losses,
        blocks=(await chain.head()).number,
        parameters=parameters,
        update_bytes=update,
        result_dir=result_dir,
        stranger={} if running.stranger is None else dict(running.stranger.deeds),
    )


def _watching(client: Client, job: JobId) -> SessionConfig:
    """A session that sees every block at once, as a person who watches wants it."""
    submitting = client.session.config
    return SessionConfig(
        rpc_urls=submitting.rpc_urls,
        deployment=submitting.deployment,
        folder=client.home / f"observer-{job}",
        store=submitting.store,
        jobs=frozenset({job}),
        confirmations=0,
    )


def _client(cluster: Cluster, worker: Worker) -> Client:
    return Client(
        cluster.chain.rpc_url,
        cluster.deployment,
        cluster.submitter,
        ClientConfig(
            home=cluster.submitter_folder,
            store=cluster.config.store,
            poll_seconds=cluster.config.poll_interval_s,
        ),
        ask=lambda question: worker.run(ANSWER(question)),
    )


def _cluster_config(options: RunOptions) -> ClusterConfig:
    return ClusterConfig(
        folder=options.folder,
        providers=options.providers,
        verifiers=options.verifiers,
        watchers=options.watchers,
        provider_cheats=options.cheats,
        verifier_cheats=options.verifier_cheats,
        watcher_cheats=options.watcher_cheats,
        backend=options.backend,
        block_seconds=options.block_seconds,
        poll_interval_s=block_interval(options.backend, options.block_seconds),
        store=options.store,
        beginning=options.beginning,
        deployment=None if options.beginning else DeployConfig(decimals=DECIMALS),
    )


def _names(cluster: Cluster) -> Any:
    known: dict[Address, str] = {
        member.account: member.name + (f" ({member.cheat})" if member.cheat else "")
        for member in cluster.members
    }
    known[Address(cluster.submitter.address)] = "the submitter"
    return lambda account: known.get(account, account)
