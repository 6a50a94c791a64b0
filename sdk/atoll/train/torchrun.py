"""What torchrun tells a process that it started: its rank, and where all ranks meet. No torch.

Rule of this file: torchrun starts a rank for each device that its host has by the config.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, Self

from atoll.errors import ConfigError

LEADS_VARIABLE: Final = "ATOLL_LEADS_TORCHRUN"
"""Set in the one process that leads the ranks which torchrun started, on however many hosts."""
_RUN: Final = "TORCHELASTIC_RUN_ID"
"""Set by torchrun alone, while a batch system may set `RANK` and `WORLD_SIZE` of its own."""


@dataclass(frozen=True, slots=True)
class Torchrun:
    """One rank of those that it started.

    Attributes:
        size: how many there are on all hosts; host_size: on this one.
        host_rank: among those of this host.
        address, port: of the store that torchrun's first agent serves.
    """

    rank: int
    size: int
    host_rank: int
    host_size: int
    address: str
    port: int

    @classmethod
    def here(cls) -> Self | None:
        """This process, and what it starts; None where it was started by itself."""
        variables = os.environ
        if _RUN not in variables or int(variables["WORLD_SIZE"]) == 1:
            return None
        return cls(
            rank=int(variables["RANK"]),
            size=int(variables["WORLD_SIZE"]),
            host_rank=int(variables["LOCAL_RANK"]),
            host_size=int(variables["LOCAL_WORLD_SIZE"]),
            address=variables["MASTER_ADDR"],
            port=int(variables["MASTER_PORT"]),
        )

    @classmethod
    def led(cls) -> Self | None:
        """This process, where it leads the ranks that torchrun started."""
        return cls.here() if os.environ.get(LEADS_VARIABLE) else None

    def require_ranks(self, devices: int) -> None:
        """Raises ConfigError where this host has another number of devices than ranks."""
        if devices != self.host_size:
            raise ConfigError(
                f"torchrun has started {self.host_size} ranks on this host, and the config names "
                f"{devices} devices of it",
                next_step=f"start it with --nproc-per-node {devices}, or name as many devices "
                "under [machine]",
            )
