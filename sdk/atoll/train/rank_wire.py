"""How ranks reach one another: the group that they are, and tensors and documents that go round.

Rule of this file: what arrives are the bits that were sent. The first rank sends, and whoever asks
for what it sent names shape and type.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]  # theirs

from atoll.nested import loads

FIRST: Final = 0
"""The rank of the process that trains or replays."""
GLOO, NCCL = "gloo", "nccl"
_INTERFACE: Final = "GLOO_SOCKET_IFNAME"
Document: TypeAlias = dict[str, Any]
SILENCE: Final = timedelta(minutes=10)
"""As long as a rank may take for its part of a step."""


@dataclass(frozen=True, slots=True)
class Group:
    """Which ranks there are, and which of them this is.

    Attributes:
        silence: after which a rank counts as gone.
        backend: of torch.distributed: NCCL where each rank has a GPU to itself, else gloo.
    """

    rank: int
    size: int
    silence: timedelta
    backend: str = GLOO


def join(group: Group, *, file: str = "", store: Store | None = None) -> None:
    """Meets the other ranks. Raises RuntimeError where they do not come.

    Args:
        file: that only they can read, where ranks of one machine find each other.
        store: where those of several do.
    """
    if store is None:
        # By no name of this machine's, which may lead to no address, or to one that others reach.
        os.environ.setdefault(_INTERFACE, "lo0" if sys.platform == "darwin" else "lo")
    dist.init_process_group(
        group.backend,
        init_method=f"file://{file}" if store is None else None,
        store=store,
        rank=group.rank,
        world_size=group.size,
        timeout=group.silence,
    )


def leave() -> None:
    """Ends this process's part in its group, if it has one."""
    if dist.is_initialized():
        with suppress(RuntimeError):  # of a group that is broken
            dist.destroy_process_group()


def backend_of(gpus: Sequence[str]) -> str:
    """What ranks speak by that have these GPUs of a host, or none; two that share one cannot speak
    by NCCL.
    """
    return NCCL if gpus and len(set(gpus)) == len(gpus) else GLOO


def on_wire(tensor: Tensor) -> Tensor:
    """What a group can send of a tensor: in one piece, and where the group's backend reads it."""
    return tensor.detach().to(wire_device()).contiguous()


def wire_device() -> torch.device:
    """Where this group sends from and receives to."""
    return torch.device("cuda" if dist.get_backend() == NCCL else "cpu")


def send(tensor: Tensor) -> None:
    """Of the first rank, to all others."""
    dist.broadcast(words_of(on_wire(tensor)), FIRST)


def received(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """What `send` sends."""
    tensor = torch.empty(shape, dtype=dtype, device=wire_device())
    dist.broadcast(words_of(tensor), FIRST)
    return tensor


def send_document(document: Document) -> None:
    """Of the first rank, to all others."""
    data = torch.frombuffer(bytearray(json.dumps(document).encode()), dtype=torch.uint8)
    send(torch.tensor([len(data)]))
    send(data)


def received_document() -> Document:
    """What `send_document` sends."""
    count = int(received((1,), torch.int64))
    data = received((count,), torch.uint8)
    document: Document = loads(data.cpu().numpy().tobytes())
    return document


def words_of(tensor: Tensor) -> Tensor:
    """The same memory, no number of which is looked at."""
    return tensor.view(torch.int32) if tensor.dtype == torch.float32 else tensor
