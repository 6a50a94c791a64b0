"""Keeps freed memory in the process, so that each step's tensors do not fault their pages in again.

A training step frees and asks for the same sizes over and over. glibc gives large blocks back to
the kernel each time; at width 128 that was a third of the step's time. No bit depends on this.
"""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES = 1 << 30  # what is free beyond this goes back all the same
_LARGEST_BLOCK = 1 << 25
"""glibc's own maximum: larger blocks are mapped each on its own whatever is asked."""


@cache
def keep_freed_memory() -> bool:
    """Whether this process' allocator accepted the setting (only glibc's has it)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    accepted = mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK), mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    return accepted == (1, 1)
