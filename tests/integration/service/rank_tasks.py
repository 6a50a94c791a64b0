"""What a worker of several ranks runs in the tests."""

from __future__ import annotations

from typing import Final

from tests.property.train.test_island import bits, given, recipe
from tests.property.train.test_one_state import start_of

from atoll.numerics.gradients import batch_gradients
from atoll.service.task import Task
from atoll.train import island

SHARED: Final[Task[[], tuple[bool, list[int]]]] = Task("test-shared-gradients.v1", __name__)


@SHARED.runs
def shared() -> tuple[bool, list[int]]:
    """Whether all ranks have the bits of one, and the processes of those that follow."""
    how = recipe(2)
    params = start_of(how, None).params
    together = island.gradients_here()
    assert together is not None
    is_same = bits(together(params, given(), how)) == bits(batch_gradients(params, given(), how))
    return is_same, island._island(island.ranks_here()).processes
