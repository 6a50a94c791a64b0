"""Atoll: strangers train one model together, and cheating does not pay.

What a submitter needs, loaded when first used:

    atoll.train_model(data=["corpus.txt"], budget="25")  # the folder with the model

    async with atoll.Client.from_env() as client:
        job = await client.submit("job.toml", max_spend="25")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atoll.chain.deployment import Deployment
    from atoll.errors import AtollError
    from atoll.job.client import Client, Estimate
    from atoll.job.connection import ClientConfig
    from atoll.job.handle import JobHandle
    from atoll.job.job_snapshot import JobSnapshot
    from atoll.job.job_update import JobUpdate
    from atoll.job.presets import preset
    from atoll.job.script import train_model
    from atoll.job.spec import JobSpec
    from atoll.protocol.manifest import Manifest

    __version__: str

__all__ = [
    "AtollError",
    "Client",
    "ClientConfig",
    "Deployment",
    "Estimate",
    "JobHandle",
    "JobSnapshot",
    "JobSpec",
    "JobUpdate",
    "Manifest",
    "preset",
    "train_model",
]

_HOMES = {
    "AtollError": "atoll.errors",
    "ClientConfig": "atoll.job.connection",
    "Deployment": "atoll.chain.deployment",
    "JobHandle": "atoll.job.handle",
    "JobSnapshot": "atoll.job.job_snapshot",
    "JobSpec": "atoll.job.spec",
    "JobUpdate": "atoll.job.job_update",
    "Manifest": "atoll.protocol.manifest",
    "preset": "atoll.job.presets",
    "train_model": "atoll.job.script",
}


def __getattr__(name: str) -> Any:
    """Loads on first use, so that `import atoll` costs no torch."""
    if name == "__version__":  # what finds it costs more than all else here
        return import_module("importlib.metadata").version("atoll")
    if name not in __all__:
        raise AttributeError(f"module 'atoll' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "atoll.job.client")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
