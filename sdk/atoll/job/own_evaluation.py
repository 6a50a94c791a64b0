"""The held-out loss, computed by the submitter itself, as committees do, where it has torch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec

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


async def keep_evaluating(job: FollowedJob) -> None:
    """Computes every settled model's loss as it comes, until cancelled.

    What cannot be computed is logged, and tried again with the next one.
    """
    evaluated, worker = -1, Worker()
    try:
        while can_evaluate():
            settled = evaluated
            try:
                settled = len((await job.view()).settled)
                if settled != evaluated:
                    await evaluate_here(job, await job.manifest(), worker)
                    evaluated = settled
            except AtollError as error:
                log.info("a model is not evaluated here", job=job.id, cause=str(error))
                evaluated = settled
            await asyncio.sleep(job.client.config.poll_seconds)
    finally:
        worker.kill()


@asynccontextmanager
async def evaluating(job: FollowedJob) -> AsyncIterator[None]:
    """`keep_evaluating`, beside what is inside."""
    async with background_tasks([keep_evaluating(job)]):
        yield


async def _loss(
    job: FollowedJob, view: JobView, merged: int, manifest: Manifest, worker: Worker
) -> bytes:
    store, spec = job.client.store, manifest.to_bytes()
    where, cid = str(store.root), cid_of(view, merged)
    with store.holding():
        if cid:
            fetcher = job.client.fetcher_of(job.id)
            await fetcher.fetch(named(cid, "model"), max_state_bytes(manifest))
            state = await worker.run(INSPECT_STATE(spec, cid, where))
            if state.digest != model_of(view, merged):
                raise ProtocolError(f"the model after {merged} rounds is not the settled one")
        else:
            cid = (await worker.run(MAKE_INITIAL_STATE(spec, where))).cid
        return await worker.run(EVALUATE_STATE(spec, cid, where))
