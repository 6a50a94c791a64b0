"""Which devices of a host a process computes on: one for itself, and one for each rank it starts.

Rule of this file: one device, one rank, in the order in which they are named. Needs no torch, so
that a service reads its config without it; `train.island` holds them against what is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from atoll.errors import ConfigError
from atoll.numerics.kernels.variables import DEVICES_VARIABLE

ALL: Final = "all"
CPU_NAME: Final = "cpu"
MOST_RANKS: Final = 64
"""Of one host."""
GPUS_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
Devices: TypeAlias = Literal["all"] | tuple[str, ...]
"""All CUDA devices that there are, or names: a GPU's as `cuda:0`, or `cpu`, once for each rank."""
_GPU: Final = re.compile("cuda:(0|[1-9][0-9]{0,2})")


def require_devices(names: Sequence[str]) -> None:
    """Raises ConfigError for a list that no host can have."""
    if not 1 <= len(names) <= MOST_RANKS:
        raise _refused(f"{len(names)} devices are named, and 1 to {MOST_RANKS} can be")
    for name in names:
        if name != CPU_NAME and _GPU.fullmatch(name) is None:
            raise _refused(f"{name!r} is no device")
    gpus = [name for name in names if name != CPU_NAME]
    if gpus and len(gpus) < len(names):
        raise _refused("GPUs and CPUs are named, and the slower would have the others wait")
    twice = next((name for at, name in enumerate(gpus) if name in gpus[:at]), None)
    if twice is not None:
        raise _refused(f"{twice} is named twice, and a GPU is one rank's")


def as_text(devices: Devices) -> str:
    """As the variable has them."""
    return devices if isinstance(devices, str) else ",".join(devices)


def told_devices(environ: Mapping[str, str] = os.environ) -> Devices | None:
    """Those that the environment names; None where it names none, which is one rank on the CPU.

    Raises ConfigError where no host can have them.
    """
    text = environ.get(DEVICES_VARIABLE, "").strip()
    if not text:
        return None
    if text == ALL:
        return ALL
    names = tuple(name.strip() for name in text.split(","))
    require_devices(names)
    return names


def device_kind(devices: Devices | None) -> str:
    """What torch calls the kind of them: `cpu` or `cuda`."""
    is_cpu = devices is None or (devices != ALL and devices[0] == CPU_NAME)
    return "cpu" if is_cpu else "cuda"


def kind_here() -> str:
    """Of the devices that this process computes on. Raises ConfigError as `told_devices`."""
    return device_kind(told_devices())


def show_devices() -> None:
    """Has this process, and those that it starts, see the GPUs that are named and no others, in
    their order; they have new numbers then. Called again it changes nothing.

    A process uses CUDA's first device, so that this comes before it uses any.

    Raises:
        ConfigError: one is not among those that it was shown.
    """
    devices = told_devices()
    if devices is None or devices == ALL or device_kind(devices) == "cpu":
        return
    shown = tuple(_shown(int(name.removeprefix("cuda:"))) for name in devices)
    os.environ[GPUS_VARIABLE] = ",".join(shown)
    os.environ[DEVICES_VARIABLE] = as_text(tuple(f"cuda:{at}" for at in range(len(shown))))


def shown_gpus(count: int) -> tuple[str, ...]:
    """What CUDA calls the first so many GPUs that it shows this process."""
    return tuple(map(_shown, range(count)))


def _shown(index: int) -> str:
    shown = os.environ.get(GPUS_VARIABLE)
    if shown is None:
        return str(index)
    gpus = [name.strip() for name in shown.split(",") if name.strip()]
    if index >= len(gpus):
        raise no_such_device(f"cuda:{index}")
    return gpus[index]


def no_such_device(name: str) -> ConfigError:
    """What to raise where one is named that is not there."""
    shown = os.environ.get(GPUS_VARIABLE)
    among = "" if shown is None else f" among {GPUS_VARIABLE}={shown}"
    return ConfigError(
        f"this machine has no {name}{among}",
        next_step=f"look at `nvidia-smi -L`, and correct `devices` of [machine], or "
        f"{DEVICES_VARIABLE}",
    )


def _refused(why: str) -> ConfigError:
    return ConfigError(
        why,
        next_step=f'name devices as "{ALL}", ["cuda:0", "cuda:1"] or ["cpu", "cpu"] under '
        f"[machine], or as cuda:0,cuda:1 in {DEVICES_VARIABLE}: a rank each",
    )
