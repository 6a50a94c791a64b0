"""What ranks send one another, counted where it is handed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import Tensor

from atoll.numerics.step import step_in_place


def counted(sent: Counter[str]) -> Callable[..., Any]:
    """A step; what ranks send one another in it is added up by the kind of the call."""
    kinds = ("broadcast", "all_to_all_single", "gather", "all_reduce")
    calls = {name: getattr(dist, name) for name in kinds}

    def wrapped(name: str) -> Callable[..., Any]:
        def call(tensor: Tensor, *arguments: Any, **named: Any) -> Any:
            # All of it goes to, or comes from, each of the others; of an all-to-all each rank gives
            # its input away but for the part that is its own, and these parts are one input.
            moved = arguments[0] if name == "all_to_all_single" else tensor
            sent[name] += moved.numel() * moved.element_size() * (dist.get_world_size() - 1)
            return calls[name](tensor, *arguments, **named)

        return call

    def step(*arguments: Any) -> Any:
        for name in calls:
            setattr(dist, name, wrapped(name))
        try:
            return step_in_place(*arguments)
        finally:
            for name, call in calls.items():
                setattr(dist, name, call)

    return step
