"""What the environment says about how exact arithmetic is done. Needs no torch."""

from __future__ import annotations

from typing import Final

DEVICES_VARIABLE: Final = "ATOLL_DEVICES"
"""What steps are computed on, a rank each: `all`, or names with commas; one rank on the CPU where
it is not set (`devices`)."""
DEVICES: Final = ("cpu", "cuda")
"""Kinds of them, as torch calls them."""
KERNELS_VARIABLE: Final = "ATOLL_KERNELS"
ROUTE_VARIABLE: Final = "ATOLL_ROUTE"
