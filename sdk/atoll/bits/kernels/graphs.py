"""A GPU's work as a CUDA graph: thousands of kernels that are launched as one.

Launched one by one, the kernels of a step's gradients take the CPU three times as long as the GPU.
A graph is captured from the calls themselves and runs the same kernels on the same shapes, so that
no bit depends on it. Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog
import torch
from torch import Tensor

from atoll.bits.kernels.gpu import is_gpu_failure

Work: TypeAlias = Callable[[Sequence[Tensor]], list[Tensor]]
"""A function of tensors on a GPU that never waits for it."""
_MOST: Final = 4
"""Graphs kept, each with memory of its own. A step has one, and one of a last, shorter
micro-batch."""
_log = structlog.get_logger("atoll.bits.kernels")


@dataclass(frozen=True, slots=True)
class _Graph:
    """Work that reads and writes tensors of its own."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    outputs: list[Tensor]
    held: object

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        pairs = list(zip(self.inputs, inputs, strict=True))
        for kind in {own.dtype for own in self.inputs}:  # in one kernel each
            alike = [pair for pair in pairs if pair[0].dtype == kind]
            torch._foreach_copy_([own for own, _ in alike], [given for _, given in alike])
        self.graph.replay()
        return list(self.outputs)


class Graphs:
    """Work by name and shapes: run as it is the first time, and captured the second."""

    def __init__(self) -> None:
        self._known: dict[Hashable, _Graph | None] = {}
        self._is_possible = True

    def run(
        self, work: Work, inputs: Sequence[Tensor], what: Hashable, held: object
    ) -> list[Tensor]:
        """What the work gives of the inputs, which lasts until the next call.

        Args:
            what: names all that the work depends on beside the inputs.
            held: has the tensors that it reads beside them, which a graph reads where they lie.
        """
        key = (what, *((tuple(x.shape), x.dtype) for x in inputs))
        if not self._is_possible:
            return work(inputs)
        if key not in self._known:
            # It compiles kernels and loads libraries, which nobody may who is captured.
            self._remember(key, None)
            return work(inputs)
        graph = self._known[key] or self._captured(work, inputs, held)
        if graph is None:
            return work(inputs)
        self._remember(key, graph)
        return graph.run(inputs)

    def _remember(self, key: Hashable, graph: _Graph | None) -> None:
        self._known[key] = graph
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]

    def _captured(self, work: Work, inputs: Sequence[Tensor], held: object) -> _Graph | None:
        """None where the GPU lacks the room, or torch captures no such work."""
        graph = torch.cuda.CUDAGraph()
        try:
            own = [x.clone() for x in inputs]
            # Another thread may use the GPU meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                outputs = work(own)
        except RuntimeError as error:
            if not is_gpu_failure(error):
                raise
            self._is_possible = False
            self._known.clear()
            _log.warning("no CUDA graph, and each kernel is launched by itself", cause=str(error))
            return None
        return _Graph(graph, own, outputs, held)
