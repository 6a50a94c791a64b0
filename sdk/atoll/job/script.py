"""A job from a script, from the text to the model's folder, in one call that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atoll.job.client import Client, ClientConfig, wei_of
from atoll.job.handle import check_folder
from atoll.job.presets import preset
from atoll.job.spec import JobSpec


def train_model(
    data: str | Path | Sequence[str | Path],
    *,
    budget: int | str,
    job: JobSpec | str = "nano",
    changes: Mapping[str, Any] | None = None,
    folder: str | Path = "model",
    config: ClientConfig | None = None,
) -> Path:
    """Has a model trained on text, and waits for it; the folder with the model.

    The network and the key are those of `Client.from_env`. Called again, after a crash too, it
    goes on with the same job, which is paid once.

    Args:
        data: files and folders.
        budget: never exceeded; wei, or tokens as text. The price follows from it where the job
            writes none, as "demo" does.
        job: a spec, or a preset's name.
        changes: of the job, by key path: `{"rounds": 2}`.
        folder: where the model goes, as for `JobHandle.result`.

    Raises:
        AtollError: as `Client.submit` and `JobHandle.result`.
    """
    check_folder(Path(folder))
    paths = [data] if isinstance(data, str | Path) else data
    spec = preset(job) if isinstance(job, str) else job
    mine = {"data.paths": [str(path) for path in paths], "money.budget": wei_of(budget)}
    return asyncio.run(_train(spec.but(mine | dict(changes or {})), folder, config))


async def _train(spec: JobSpec, folder: str | Path, config: ClientConfig | None) -> Path:
    assert spec.money.budget is not None  # `train` has set it
    async with Client.from_env(config) as client:
        job = await client.submit(spec, max_spend=spec.money.budget)
        await job.wait()
        return await job.result(folder)
