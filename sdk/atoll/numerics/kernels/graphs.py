"""A GPU's work as a CUDA graph: thousands of kernels that are launched as one.

Launched one by one, the kernels of a step's gradients take the CPU three times as long as the GPU.
A graph is captured from the calls themselves and runs the same kernels on the same shapes, so that
no bit depends on it. Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, TypeAlias
from weakref import WeakSet

import structlog
import torch
from torch import Tensor

from atoll.numerics.kernels.gpu import is_gpu_failure

Work: TypeAlias = Callable[[Sequence[Tensor]], list[Tensor]]
"""A function of tensors on a GPU that never waits for it."""
_log = structlog.get_logger("atoll.numerics.kernels")


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
    """One work at a time, by name and shapes: run as it is first, and captured the second time.

    A job's micro-batches all have one shape.
    """

    _living: ClassVar[WeakSet[Graphs]] = WeakSet()
    _is_possible: ClassVar[bool] = True

    def __init__(self) -> None:
        self._key: Hashable = None
        self._graph: _Graph | None = None
        self._fits = True
        Graphs._living.add(self)

    @staticmethod
    def let_go() -> None:
        """Gives back the memory of every graph; whoever needs one captures it again."""
        for graphs in list(Graphs._living):
            graphs._graph = None

    def run(
        self, work: Work, inputs: Sequence[Tensor], what: Hashable, held: object
    ) -> list[Tensor]:
        """What the work gives of the inputs, which lasts until the next call.

        Args:
            what: names all that the work depends on beside the inputs.
            held: has the tensors that it reads beside them, which a graph reads where they lie.
        """
        key = (what, *((tuple(x.shape), x.dtype) for x in inputs))
        if key != self._key:
            self._key, self._graph = None, None
            # It compiles kernels and loads libraries, which nobody may who is captured.
            tensors = work(inputs)
            self._key = key
            return tensors
        if self._graph is None and self._fits and Graphs._is_possible:
            self._graph = self._captured(work, inputs, held)
        return work(inputs) if self._graph is None else self._graph.run(inputs)

    def _captured(self, work: Work, inputs: Sequence[Tensor], held: object) -> _Graph | None:
        """None where the GPU lacks the room, or torch captures no such work."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            own = [x.clone() for x in inputs]
            # Another thread may use the GPU meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                outputs = work(own)
        except RuntimeError as error:
            with suppress(RuntimeError):  # a capture that fails to end leaves its own
                torch.cuda.set_stream(stream)
            if not is_gpu_failure(error):
                raise
            self._fits = False
            Graphs._is_possible = isinstance(error, torch.OutOfMemoryError)
            _log.warning("no CUDA graph, and each kernel is launched by itself", cause=str(error))
            return None
        # A graph keeps all that the work needs: the next state has to fit beside it.
        self._fits = torch.cuda.mem_get_info()[0] >= 4 * sum(x.nbytes for x in inputs)
        return _Graph(graph, own, outputs, held) if self._fits else None
