"""How many bytes of tensors there are at once, counted as operations make them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """While it is entered every tensor's memory is counted, from the operation that makes it on.

    Attributes:
        peak: the most bytes that were there after an operation.
    """

    def __init__(self, there: Iterable[Tensor]) -> None:
        super().__init__()
        self.peak = 0
        self._living: dict[int, tuple[StorageWeakRef, int]] = {}
        for tensor in there:
            self._see(tensor)

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._see(leaf)
        self._living = {key: kept for key, kept in self._living.items() if not kept[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._living.values()))
        return result

    def _see(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        self._living[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
