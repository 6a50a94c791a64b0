"""One question to a contract, and how its answer is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from atoll.chain.decode import converter, from_abi

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View(Generic[T]):
    """A view function with its arguments.

    Attributes:
        result: what one output becomes, or the dataclass whose fields are several outputs.
    """

    contract: str
    name: str
    args: tuple[Any, ...]
    result: type[T]

    def read(self, outputs: tuple[Any, ...]) -> T:
        """The answer. Raises ValueError where it is not what the type says."""
        if len(outputs) == 1:
            return cast(T, converter(self.result)(outputs[0]))
        return from_abi(self.result, outputs)
