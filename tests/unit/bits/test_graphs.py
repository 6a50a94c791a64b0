"""When work is captured, when it is run as it is, and what is kept: by a GPU that only counts.

That a replayed graph gives the work's bits takes a GPU: `atoll numerics verify` has it among its
settings where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from atoll.bits.kernels.graphs import Graphs


class Gpu:
    """Stands for `torch.cuda`: `replays` counts, `error` is what a capture ends with."""

    def __init__(self) -> None:
        self.replays = 0
        self.error: Exception | None = None
        self.work_runs = 0

    def replay(self) -> None:
        self.replays += 1

    @contextmanager
    def graph(self, _: object, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        yield
        if self.error is not None:
            raise self.error

    def work(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        self.work_runs += 1
        return [inputs[0] * 2.0]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: found)
    monkeypatch.setattr(torch.cuda, "graph", found.graph)
    return found


def test_work_is_captured_the_second_time_and_launched_from_then_on(gpu: Gpu) -> None:
    graphs, counts = Graphs(), []
    for value in (1.0, 2.0, 3.0):
        inputs = [torch.tensor([value]), torch.tensor([7])]
        graphs.run(gpu.work, inputs, "a", None)
        counts.append((gpu.work_runs, gpu.replays))
    assert counts == [(1, 0), (2, 1), (2, 2)]
    (graph,) = graphs._known.values()
    assert graph is not None
    assert [own.item() for own in graph.inputs] == [3.0, 7]  # where the captured kernels read


def test_other_shapes_and_other_work_are_captured_apart(gpu: Gpu) -> None:
    graphs = Graphs()
    for what, count in (("a", 1), ("a", 2), ("b", 1)):
        graphs.run(gpu.work, [torch.ones(count)], what, None)
    assert (gpu.work_runs, gpu.replays) == (3, 0)


def test_the_oldest_graph_makes_room(gpu: Gpu) -> None:
    graphs = Graphs()
    for count in range(1, 7):
        graphs.run(gpu.work, [torch.ones(count)], "a", None)
    assert len(graphs._known) == 4
    graphs.run(gpu.work, [torch.ones(1)], "a", None)
    assert gpu.replays == 0  # it was forgotten


def test_what_a_graph_reads_is_kept_with_it(gpu: Gpu) -> None:
    graphs, held = Graphs(), torch.ones(3)
    for _ in range(2):
        graphs.run(gpu.work, [torch.ones(1)], "a", held)
    (graph,) = graphs._known.values()
    assert graph is not None and graph.held is held


def test_where_nothing_can_be_captured_work_runs_as_it_is(gpu: Gpu) -> None:
    graphs = Graphs()
    gpu.error = torch.OutOfMemoryError("CUDA out of memory")
    found = [graphs.run(gpu.work, [torch.tensor([v])], "a", None) for v in (1.0, 2.0, 3.0, 4.0)]
    assert [one.item() for (one,) in found] == [2.0, 4.0, 6.0, 8.0]
    assert (gpu.work_runs, gpu.replays) == (5, 0)  # one of them to be captured


def test_an_error_of_the_work_itself_is_not_the_gpus(gpu: Gpu) -> None:
    graphs = Graphs()
    graphs.run(gpu.work, [torch.ones(1)], "a", None)
    gpu.error = RuntimeError("shapes differ")
    with pytest.raises(RuntimeError, match="shapes differ"):
        graphs.run(gpu.work, [torch.ones(1)], "a", None)
