"""What the environment says about how exact arithmetic is done. Needs no torch."""

from __future__ import annotations

from typing import Final

DEVICE_VARIABLE: Final = "ATOLL_DEVICE"
"""Where steps are computed, one of `DEVICES`; the CPU where it is not set."""
DEVICES: Final = ("cpu", "cuda")
RANKS_VARIABLE: Final = "ATOLL_RANKS"
"""How many processes hold a state and compute its steps together; one where it is not set."""
KERNELS_VARIABLE: Final = "ATOLL_KERNELS"
ROUTE_VARIABLE: Final = "ATOLL_ROUTE"
