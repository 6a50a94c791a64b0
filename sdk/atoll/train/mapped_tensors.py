"""Tensors in files: what the system writes out and reads in again where memory is short.

Rule of this file: a mapped tensor is a tensor. No bit depends on where it lies, and its file has no
name once it is mapped, so that nothing of it is left when the process ends.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from tempfile import NamedTemporaryFile

import torch
from torch import Tensor

from atoll.numerics.shards import Shape


class MappedTensors:
    """Makes tensors whose memory is a file's.

    Args:
        folder: on whose disk they lie; made where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def empty(self, shape: Shape, dtype: torch.dtype) -> Tensor:
        """A tensor of any values. Raises OSError where there is no room for it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        count = prod(shape)
        with NamedTemporaryFile(dir=self._folder) as file:
            # Of a file with holes a full disk is found out by the first write, which ends the
            # process.
            os.posix_fallocate(file.fileno(), 0, count * dtype.itemsize)
            made = torch.from_file(file.name, shared=True, size=count, dtype=dtype)
        return made.view(shape)
