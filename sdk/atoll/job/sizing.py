"""A draft without a network: what `atoll job check` speaks of."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from atoll.chain.default_params import BASE, default_params
from atoll.job.asking import asking
from atoll.job.draft import Draft, PreparedParts, write_draft
from atoll.job.hub import pin_hub
from atoll.job.pace_by_shape import NOTE, answer_by_shape
from atoll.job.plan import BondFloors
from atoll.job.prepare_manifest import (
    OnProgress,
    machine_numerics,
    prepare_text,
    prepare_weights,
    untold,
)
from atoll.job.spec import JobSpec
from atoll.job.submissions import key_of
from atoll.protocol.token_units import decimals_used
from atoll.storage.local import LocalStore


async def size_job(spec: JobSpec, home: Path, on_progress: OnProgress = untold) -> Draft:
    """Prepares text and weights in this home's store, measures, and completes the job. Without
    torch nothing is measured: the model's shape says what it can, and a note says so.

    Bonds and clocks are at least those of a network on Base with the usual parameters;
    `on_progress` is told how far the preparation of the text is, from another thread.

    Raises:
        AtollError: as `Client.draft`.
    """
    store = LocalStore(home / "store")
    spec, pinned = await asyncio.to_thread(pin_hub, spec)
    spec, init = await asyncio.to_thread(prepare_weights, spec, store)
    text = await asyncio.to_thread(prepare_text, spec, store, on_progress)
    data = text.spec(spec.evaluate.batches)
    floors = BondFloors.of(default_params(BASE, decimals_used()), decimals_used())
    key, now = key_of(spec, data, init), int(time.time())
    timed = find_spec("torch") is not None
    async with asking(None if timed else answer_by_shape) as ask:
        found = PreparedParts(data, init, await machine_numerics(ask), text.task)
        draft = await write_draft(key, spec, found, now, floors, ask=ask)
        return replace(
            draft, read=text.account, notes=(*pinned, *text.notes, *(() if timed else (NOTE,)))
        )
