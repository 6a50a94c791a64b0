"""Work of another process as typed handles, which are declared where torch is not imported.

`MERGE_ROUND(command, store_dir)` is what the worker is given. The type checker holds its arguments
and its result to the handle's type, and `@MERGE_ROUND.runs` holds the function to it. A handle is
known by a written tag: function and handle may be called otherwise, and the work is the same.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, cast

from atoll.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")

_declared: dict[str, Task[..., Any]] = {}
_functions: dict[str, Callable[..., Any]] = {}
"""By tag: what the modules that were imported here decorated."""


@dataclass(frozen=True, slots=True)
class Task(Generic[P, R]):
    """A function that another process runs.

    Attributes:
        kind: its tag, as `merge-round.v1`; of other arguments, or of another result, another tag.
        module: where the function is. It is imported only where the function runs.

    Raises:
        TypeError: the tag is another module's.
    """

    kind: str
    module: str

    def __post_init__(self) -> None:
        if _declared.setdefault(self.kind, self) != self:
            places = f"{_declared[self.kind].module} and of {self.module}"
            raise TypeError(f"{self.kind} is work of {places}: give one another tag")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> TaskCall[R]:
        """What is to be run: the function with these arguments, which have to be picklable."""
        return TaskCall(self, args, kwargs)

    def runs(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorates the function that does this work.

        Raises:
            TypeError: it is in another module, or another function does this work already.
        """
        known = _functions.setdefault(self.kind, function)
        # One module can be run twice, as by a reload: then the newer function counts.
        if function.__module__ != self.module or known.__qualname__ != function.__qualname__:
            here = f"{function.__module__}:{function.__qualname__}"
            raise TypeError(f"{here} is not what runs {self.kind} of {self.module}")
        _functions[self.kind] = function
        return function

    def resolve(self) -> Callable[P, R]:
        """The function; imports its module.

        Raises:
            ConfigError: there is no such module, or it has no function for this.
        """
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            raise ConfigError(f"nothing here runs {self.kind}: {error}") from error
        if self.kind not in _functions:
            raise ConfigError(f"nothing in {self.module} runs {self.kind}")
        return cast(Callable[P, R], _functions[self.kind])


@dataclass(frozen=True, slots=True)
class TaskCall(Generic[R]):
    """A task and its arguments, as they go to another process."""

    task: Task[..., R]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> R:
        """Calls the function here. Raises what it raises, or ConfigError as `Task.resolve`."""
        return self.task.resolve()(*self.args, **self.kwargs)


def declared() -> dict[str, Task[..., Any]]:
    """The handles that the modules imported here declared, by their tags."""
    return dict(sorted(_declared.items()))
