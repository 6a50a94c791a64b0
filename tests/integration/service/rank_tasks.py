"""What a worker of several ranks runs in the tests."""

from __future__ import annotations

from typing import Final

import torch.distributed as dist
from tests.property.train.test_island import bits, given, recipe, together
from tests.property.train.test_one_state import start_of

from atoll.numerics.gradients import batch_gradients
from atoll.service.task import Task
from atoll.train import island

SHARED: Final[Task[[], tuple[bool, list[int]]]] = Task("test-shared-gradients.v1", __name__)


@SHARED.runs
def shared() -> tuple[bool, list[int]]:
    """Whether all ranks have the bits of one, and the processes of those that follow."""
    how, here = recipe(2), island.island_here()
    assert not here.is_alone
    params = dict(start_of(how, None).params)
    expected = bits(batch_gradients(params, given(), how))
    return bits(together(here, params, given(), how)) == expected, here.processes


ON_HOSTS: Final[Task[[], tuple[bool, int]]] = Task("test-gradients-on-hosts.v1", __name__)


@ON_HOSTS.runs
def on_hosts() -> tuple[bool, int]:
    """Whether all ranks have the bits of one, and how many are there behind that."""
    is_same, _ = shared()
    return is_same, dist.get_world_size() if dist.is_initialized() else 1
