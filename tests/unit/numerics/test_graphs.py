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

from atoll.numerics.kernels.graphs import Graphs


class Gpu:
    """Stands for `torch.cuda`: `replays` counts, `error` is what a capture ends with."""

    def __init__(self) -> None:
        self.replays = 0
        self.error: Exception | None = None
        self.work_runs = 0
        self.free = 1 << 40
        self.stream = "the default"

    def replay(self) -> None:
        self.replays += 1

    @contextmanager
    def graph(self, _: object, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        self.stream = "a capture's"
        yield
        if self.error is not None:
            raise self.error  # as where the capture cannot be ended: the stream stays
        self.stream = "the default"

    def work(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        self.work_runs += 1
        return [inputs[0] * 2.0]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: found)
    monkeypatch.setattr(torch.cuda, "graph", found.graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: found.stream)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(found, "stream", stream))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (found.free, 1 << 40))
    monkeypatch.setattr(Graphs, "_is_possible", True)
    return found


def test_work_is_captured_the_second_time_and_launched_from_then_on(gpu: Gpu) -> None:
    graphs, counts = Graphs(), []
    for value in (1.0, 2.0, 3.0):
        inputs = [torch.tensor([value]), torch.tensor([7])]
        graphs.run(gpu.work, inputs, "a", None)
        counts.append((gpu.work_runs, gpu.replays))
    assert counts == [(1, 0), (2, 1), (2, 2)]
    assert graphs._graph is not None
    assert [own.item() for own in graphs._graph.inputs] == [
        3.0,
        7,
    ]  # where the captured kernels read


def test_other_work_takes_the_place_of_what_was_captured(gpu: Gpu) -> None:
    graphs = Graphs()
    for what, count in (("a", 1), ("a", 2), ("b", 2), ("b", 2), ("a", 2)):
        graphs.run(gpu.work, [torch.ones(count)], what, None)
    assert (gpu.work_runs, gpu.replays) == (5, 1)
    assert graphs._graph is None


def test_work_that_failed_is_not_captured_but_tried_again(gpu: Gpu) -> None:
    def fails(_: Sequence[Tensor]) -> list[Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    graphs = Graphs()
    with pytest.raises(torch.OutOfMemoryError):
        graphs.run(fails, [torch.ones(1)], "a", None)
    graphs.run(gpu.work, [torch.ones(1)], "a", None)
    assert (gpu.work_runs, gpu.replays) == (1, 0)


def test_what_a_graph_reads_is_kept_with_it_until_it_is_let_go(gpu: Gpu) -> None:
    graphs, held = Graphs(), torch.ones(3)
    for _ in range(2):
        graphs.run(gpu.work, [torch.ones(1)], "a", held)
    assert graphs._graph is not None and graphs._graph.held is held
    Graphs.let_go()
    assert graphs._graph is None
    graphs.run(gpu.work, [torch.ones(1)], "a", held)
    assert (gpu.work_runs, gpu.replays) == (3, 2)  # captured again, and launched


def test_work_too_large_to_be_captured_runs_as_it_is(gpu: Gpu) -> None:
    graphs, small = Graphs(), Graphs()
    gpu.error = torch.OutOfMemoryError("CUDA out of memory")
    found = [graphs.run(gpu.work, [torch.tensor([v])], "a", None) for v in (1.0, 2.0, 3.0, 4.0)]
    assert [one.item() for (one,) in found] == [2.0, 4.0, 6.0, 8.0]
    assert (gpu.work_runs, gpu.replays) == (5, 0)  # one of them to be captured
    assert gpu.stream == "the default"
    gpu.error = None
    for _ in range(2):
        small.run(gpu.work, [torch.ones(1)], "a", None)
    assert gpu.replays == 1


def test_a_graph_that_leaves_no_room_for_the_next_state_is_not_kept(gpu: Gpu) -> None:
    graphs = Graphs()
    gpu.free = 4 * 400 - 1
    for _ in range(4):
        graphs.run(gpu.work, [torch.ones(100)], "a", None)
    assert (gpu.work_runs, gpu.replays, graphs._graph) == (5, 0, None)


def test_a_machine_that_captures_nothing_is_asked_once(gpu: Gpu) -> None:
    gpu.error = RuntimeError("CUDA error: operation not permitted when stream is capturing")
    for _ in range(2):
        graphs = Graphs()
        for _ in range(3):
            graphs.run(gpu.work, [torch.ones(1)], "a", None)
    assert (gpu.work_runs, gpu.replays) == (7, 0)


def test_an_error_of_the_work_itself_is_not_the_gpus(gpu: Gpu) -> None:
    graphs = Graphs()
    graphs.run(gpu.work, [torch.ones(1)], "a", None)
    gpu.error = RuntimeError("shapes differ")
    with pytest.raises(RuntimeError, match="shapes differ"):
        graphs.run(gpu.work, [torch.ones(1)], "a", None)
