"""A job from a script, from the text to the model's folder, in one call that waits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from atoll.job.certified import check_folder
from atoll.job.client import Client
from atoll.job.connection import ClientConfig
from atoll.job.followed import Tell, untold
from atoll.job.groups import wei_of
from atoll.job.loop_thread import run
from atoll.job.presets import preset
from atoll.job.spec import JobSpec
from atoll.protocol.token_units import parts_of


def train_model(
    data: str | Path | Sequence[str | Path],
    *,
    budget: int | str,
    job: JobSpec | str = "nano",
    folder: str | Path = "model",
    config: ClientConfig | None = None,
    tell: Tell = untold,
) -> Path:
    """Has a model trained on text, and waits for it, in a notebook, too; the folder with the model.

    The network and the key are those of `Client.from_env`. Called again, after a crash too, it
    goes on with the same job, which is paid once.

    Args:
        data: files and folders.
        budget: never exceeded; tokens as text, or wei. The price follows from it where the job
            writes none, as "demo" does.
        job: a spec, as of `preset("nano").but({"rounds": 2})`, or a preset's name.
        folder: where the model goes, as for `JobHandle.result`.
        tell: as for `JobHandle.wait`; `print` shows how far it is.

    Raises:
        AtollError: as `Client.submit` and `JobHandle.result`.
    """
    check_folder(Path(folder))
    paths = [data] if isinstance(data, str | Path) else data
    spec = preset(job) if isinstance(job, str) else job
    mine = spec.but({"data.paths": [str(path) for path in paths]})
    wei_of(budget)  # what is no amount is refused before any work is done for it
    return run(partial(_train, mine, budget, folder, config, tell))


async def _train(
    spec: JobSpec, budget: int | str, folder: str | Path, config: ClientConfig | None, tell: Tell
) -> Path:
    async with Client.from_env(config) as client:
        units = wei_of(budget)
        spec = spec.but({"money.budget": units * parts_of(client.deployment.decimals)})
        tell("prepares the text")
        job = await client.submit(spec, max_spend=units)
        if client.announces:
            tell(f"job {job.id} is paid; the data is served at {client.session.url}")
        else:
            tell(f"job {job.id} is paid")
            await job.hand_over(tell)
        await job.wait(tell)
        return await job.result(folder)
