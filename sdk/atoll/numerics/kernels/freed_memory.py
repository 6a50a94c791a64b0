"""Keeps freed memory in the process, so that each step's tensors do not fault their pages in again.

A training step frees and asks for the same sizes over and over. glibc gives large blocks back to
the kernel each time; at width 128 that was a third of the step's time, and so it was at width 512
where a step gave back what it had left between tensors. Tensors too large for the heap cannot use
what is free there: before they are made, that goes back. No bit depends on this.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import cache

from torch import Tensor

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_DONTNEED = 4
"""MADV_DONTNEED (mman.h)."""
_KEPT_BYTES = 1 << 28
"""What is free beyond this goes back all the same: at the heap's end by itself, elsewhere by
`make_room_for`."""
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


class _HeapInfo(ctypes.Structure):
    """glibc's struct mallinfo2 (malloc.h, since 2.33)."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost",
    ))  # fmt: skip


@cache
def _heap() -> tuple[Callable[[], _HeapInfo], Callable[[int], int]] | None:
    """glibc's mallinfo2 and malloc_trim; None where the allocator has not both."""
    library = ctypes.CDLL(None)
    info, trim = (getattr(library, name, None) for name in ("mallinfo2", "malloc_trim"))
    if info is None or trim is None:
        return None
    info.restype, trim.argtypes = _HeapInfo, (ctypes.c_size_t,)
    return info, trim


@cache
def _madvise() -> Callable[[int, int, int], int] | None:
    """The system's madvise; None where it has none."""
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is not None:
        advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return advise


def let_go_of_pages(tensor: Tensor) -> None:
    """Has the pages of a mapped file leave the process until they are read; they stay the file's.

    Tensors that are not mapped are left alone: their pages would be lost.
    """
    storage, advise = tensor.untyped_storage(), _madvise()
    if advise is not None and storage.filename is not None:
        advise(storage.data_ptr(), storage.nbytes(), _DONTNEED)


def make_room_for(tensors: Iterable[Tensor]) -> bool:
    """Gives the kernel what is free in the heap, where it is much and blocks as large as the
    largest of these are mapped beside it; whether it did.
    """
    heap = _heap()
    if heap is None or all(tensor.nbytes <= _LARGEST_BLOCK for tensor in tensors):
        return False
    return heap[0]().fordblks > _KEPT_BYTES and bool(heap[1](0))
