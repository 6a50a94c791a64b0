"""What torchrun tells a process that it started: its rank, and where all ranks meet. No torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, Self

RANKS_OF_TORCHRUN: Final = 0
"""In place of a number of ranks: those that torchrun started, on however many hosts."""
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
