"""What a GPU's failure looks like. Needs no torch, since whoever has none need not import it."""

from __future__ import annotations

from typing import Final

_OF_TORCH: Final = frozenset({"OutOfMemoryError", "AcceleratorError"})
"""The second from torch 2.8 on; before it, and for drivers, there are only words."""
_WORDS: Final = ("CUDA", "cuBLAS", "CUBLAS", "NVIDIA")


def is_gpu_failure(error: RuntimeError) -> bool:
    """Whether it is the GPU that failed."""
    return type(error).__name__ in _OF_TORCH or any(word in str(error) for word in _WORDS)


def lacks_kernel(error: RuntimeError) -> bool:
    """Whether a library only refused what it was asked for, and goes on."""
    return "NOT_SUPPORTED" in str(error) or not is_gpu_failure(error)
