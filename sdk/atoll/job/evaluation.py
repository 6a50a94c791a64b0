"""The held-out loss, computed by the submitter itself, as committees do, where it has torch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import structlog

from atoll.bits.layout import max_state_bytes
from atoll.errors import AtollError, ProtocolError
from atoll.job.figures import cid_of, model_of, named
from atoll.service.beside import beside
from atoll.service.commands import TASKS
from atoll.service.worker import Worker

if TYPE_CHECKING:
    from atoll.job.handle import JobHandle
    from atoll.law.manifest import Manifest
    from atoll.law.views import JobView

log = structlog.get_logger("atoll.job.evaluation")


def can_evaluate() -> bool:
    """Whether this machine has what computing takes."""
    return find_spec("torch") is not None


async def evaluate_here(handle: JobHandle, manifest: Manifest, worker: Worker) -> None:
    """Computes and keeps the loss of every model that has none of ours yet, in their order.

    Raises:
        NotFound: no gateway has a model, or the evaluation set is not here.
        ProtocolError: a model is not the one that a committee signed.
    """
    view, figures = await handle.view(), handle.client.figures
    for merged in range(len(view.settled) + 1) if manifest.data.is_evaluated else ():
        model = model_of(view, merged)
        if figures.loss(view.spec_digest, merged, model) is None:
            loss = await _loss(handle, view, merged, manifest, worker)
            figures.note_loss(view.spec_digest, merged, model, loss)


async def keep_evaluating(handle: JobHandle) -> None:
    """Computes every settled model's loss as it comes, until cancelled.

    What cannot be computed is logged, and tried again with the next one.
    """
    done, worker = -1, Worker()
    try:
        while can_evaluate():
            settled = done
            try:
                settled = len((await handle.view()).settled)
                if settled != done:
                    await evaluate_here(handle, await handle.manifest(), worker)
                    done = settled
            except AtollError as error:
                log.info("a model is not evaluated here", job=handle.id, cause=str(error))
                done = settled
            await asyncio.sleep(handle.client.config.poll_seconds)
    finally:
        worker.kill()


@asynccontextmanager
async def evaluating(handle: JobHandle) -> AsyncIterator[None]:
    """`keep_evaluating`, beside what is inside."""
    async with beside([keep_evaluating(handle)]):
        yield


async def _loss(
    handle: JobHandle, view: JobView, merged: int, manifest: Manifest, worker: Worker
) -> bytes:
    store, spec = handle.client.store, manifest.to_bytes()
    where, cid = str(store.root), cid_of(view, merged)
    with store.holding():
        if cid:
            fetcher = handle.client.fetcher_of(handle.id)
            await fetcher.fetch(named(cid, "model"), max_state_bytes(manifest))
            found = await worker.run(f"{TASKS}:inspect_state", spec, cid, where)
            if found.digest != model_of(view, merged):
                raise ProtocolError(f"the model after {merged} rounds is not the settled one")
        else:
            cid = (await worker.run(f"{TASKS}:make_initial_state", spec, where)).cid
        loss: bytes = await worker.run(f"{TASKS}:evaluate_state", spec, cid, where)
    return loss
