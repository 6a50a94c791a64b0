"""The held-out loss, computed by the submitter itself, as committees do, where it has torch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TypeAlias

import structlog

from atoll.errors import AtollError, ProtocolError
from atoll.job.figures import cid_of, model_of, named
from atoll.job.followed import FollowedJob
from atoll.numerics.state_layout import max_state_bytes
from atoll.protocol.manifest import Manifest
from atoll.protocol.views import JobView
from atoll.service.background_tasks import background_tasks
from atoll.service.duties.evaluation import EVALUATE_STATE
from atoll.service.duties.round_start import INSPECT_STATE, MAKE_INITIAL_STATE
from atoll.service.worker import Worker

log = structlog.get_logger("atoll.job.own_evaluation")
Measure: TypeAlias = Callable[[FollowedJob, Manifest, Worker], Awaitable[None]]
"""Computes here what is missing of a job's settled rounds."""


def can_evaluate() -> bool:
    """Whether this machine has what computing takes."""
    return find_spec("torch") is not None


async def evaluate_here(job: FollowedJob, manifest: Manifest, worker: Worker) -> None:
    """Computes and keeps the loss of every model that has none of ours yet, in their order.

    Raises:
        NotFound: no gateway has a model, or the evaluation set is not here.
        ProtocolError: a model is not the one that a committee signed.
    """
    view, figures = await job.view(), job.client.figures
    for merged in range(len(view.settled) + 1) if manifest.data.is_evaluated else ():
        model = model_of(view, merged)
        if figures.loss(view.spec_digest, merged, model) is None:
            loss = await _loss(job, view, merged, manifest, worker)
            figures.note_loss(view.spec_digest, merged, model, loss)


async def keep_measuring(job: FollowedJob, measure: Measure) -> None:
    """Measures every settled round as it comes, until cancelled.

    What cannot be computed is logged, and tried again with the next one.
    """
    measured, worker = -1, Worker()
    try:
        while can_evaluate():
            settled = measured
            try:
                settled = len((await job.view()).settled)
                if settled != measured:
                    manifest = job.own_manifest() or await job.manifest()
                    await measure(job, manifest, worker)
            except AtollError as error:
                log.info("a round is not measured here", job=job.id, cause=str(error))
            measured = settled
            await asyncio.sleep(job.client.config.poll_seconds)
    finally:
        worker.kill()


@asynccontextmanager
async def measuring(job: FollowedJob, measure: Measure) -> AsyncIterator[None]:
    """`keep_measuring`, beside what is inside."""
    async with background_tasks([keep_measuring(job, measure)]):
        yield


async def _loss(
    job: FollowedJob, view: JobView, merged: int, manifest: Manifest, worker: Worker
) -> bytes:
    with job.client.store.holding():
        cid = await bring_model(job, view, merged, manifest, worker)
        where = str(job.client.store.root)
        return await worker.run(EVALUATE_STATE(manifest.to_bytes(), cid, where))


async def bring_model(
    job: FollowedJob, view: JobView, merged: int, manifest: Manifest, worker: Worker
) -> bytes:
    """The CID of the model after so many rounds, which is in the store then; who calls holds it.

    Raises as `evaluate_here`.
    """
    spec, where, cid = manifest.to_bytes(), str(job.client.store.root), cid_of(view, merged)
    if not cid:
        return (await worker.run(MAKE_INITIAL_STATE(spec, where))).cid
    fetcher = job.client.fetcher_of(job.id)
    await fetcher.fetch(named(cid, "model"), max_state_bytes(manifest))
    state = await worker.run(INSPECT_STATE(spec, cid, where))
    if state.digest != model_of(view, merged):
        raise ProtocolError(f"the model after {merged} rounds is not the settled one")
    return cid
