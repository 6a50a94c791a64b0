"""What the ranks of a service compute on, looked at before anything is signed or staked."""

from __future__ import annotations

from typing import Final

from atoll.numerics.kernels.devices import ALL, CPU_NAME, device_kind, told_devices
from atoll.service.config import ServiceConfig
from atoll.service.task import Task
from atoll.service.worker import Worker
from atoll.train.torchrun import Torchrun

DEVICES_HERE: Final[Task[[], tuple[str, ...]]] = Task("devices-here.v1", "atoll.service.tasks")


async def devices_of(
    config: ServiceConfig, worker: Worker, here: Torchrun | None
) -> tuple[str, ...]:
    """The devices of this host, a rank each; of torchrun's where it started them.

    Args:
        worker: has been told of them, and is asked where they are GPUs: a service has no torch.

    Raises:
        ConfigError: one that is named is not there, or torchrun has started another number of
            ranks.
    """
    devices = told_devices() if config.machine.devices is None else config.machine.devices
    if devices is None:
        return (CPU_NAME,) * (1 if here is None else here.host_size)
    there = await worker.run(DEVICES_HERE()) if device_kind(devices) != "cpu" else ()
    names = there if devices == ALL else devices
    if here is not None:
        here.require_ranks(len(names))
    return names
