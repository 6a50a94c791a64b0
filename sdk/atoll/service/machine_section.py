"""`[machine]` of a config."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, field_validator

from atoll.errors import ConfigError
from atoll.numerics.kernels.devices import ALL, Devices, require_devices


class MachineSection(BaseModel):
    """What this host computes with.

    Attributes:
        devices: `all` CUDA devices that the host has, or those of a list, or `cpu` as often as it
            is to compute there: each has a rank, and all ranks hold a seat's state and compute its
            steps together, bit for bit what one computes. Left out, what ATOLL_DEVICES says, or one
            rank on the CPU; of torchrun's each on the CPU.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    devices: Devices | None = None

    @field_validator("devices", mode="before")
    @classmethod
    def _can_be_had(cls, devices: object) -> object:
        if devices is None or devices == ALL:
            return devices
        if not isinstance(devices, list | tuple) or not all(isinstance(d, str) for d in devices):
            raise ValueError(f'it should be "{ALL}" or a list such as ["cuda:0"] or ["cpu", "cpu"]')
        try:
            require_devices(devices)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return tuple(devices)
