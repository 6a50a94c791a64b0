"""The devices that are named, held against those that this host has."""

from __future__ import annotations

import torch

from atoll.errors import ConfigError
from atoll.numerics.kernels.devices import (
    ALL,
    CPU_NAME,
    MOST_RANKS,
    Devices,
    device_kind,
    no_such_device,
    show_devices,
    shown_gpus,
    told_devices,
)
from atoll.numerics.kernels.variables import DEVICES_VARIABLE
from atoll.train.torchrun import Torchrun


def devices_here() -> tuple[str, ...]:
    """Those that this process's environment names, a rank each.

    Raises ConfigError as `there`, and where the environment names what no host can have.
    """
    show_devices()
    devices = told_devices()
    return (CPU_NAME,) if devices is None else there(devices)


def there(devices: Devices) -> tuple[str, ...]:
    """Their names.

    Raises:
        ConfigError: there is no GPU, or one that is named is none of those.
    """
    if devices != ALL and device_kind(devices) == "cpu":
        return devices
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count and devices == ALL:
        raise ConfigError(
            "this machine has no CUDA device that torch can use, and all of them are to be used",
            next_step="name no devices for one rank on the CPU, or install the driver and a torch "
            f"built for CUDA; `devices` is under [machine], or in {DEVICES_VARIABLE}",
        )
    if devices == ALL:
        return tuple(f"cuda:{at}" for at in range(min(count, MOST_RANKS)))
    missing = next((name for name in devices if int(name.removeprefix("cuda:")) >= count), None)
    if missing is not None:
        raise no_such_device(missing)
    return devices


def gpus_of_ranks(here: Torchrun | None) -> tuple[str, ...]:
    """What CUDA calls the GPU of each rank of this host; none where they compute on the CPU.

    Args:
        here: of the ranks that torchrun started, where these are meant.

    Raises:
        ConfigError: as `devices_here`, and where torchrun has started another number of ranks.
    """
    devices = devices_here()
    if here is not None and told_devices() is not None:
        here.require_ranks(len(devices))
    return () if device_kind(devices) == "cpu" else shown_gpus(len(devices))
