"""What finished commands leave in the journal, and the one key by which both are known.

Rule of this file: pure. What a command leaves lies under the command's own key, so that whoever can
name the work finds its result, and nobody writes a key down.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar

from atoll.errors import AtollError
from atoll.law.words import Slot

F = TypeVar("F", bound="Fact")
R_co = TypeVar("R_co", bound="Fact", covariant=True)
OF_SERVICE: Final = 0
"""The job under which the journal keeps what is of no job."""


class Fact:
    """Base of what finished commands leave in the journal; subclasses are frozen dataclasses.

    Attributes:
        outlives_start: whether a restart (with another version, say) still believes it.
    """

    __slots__ = ()
    outlives_start: ClassVar[bool] = True
    kinds: ClassVar[dict[str, type[Fact]]] = {}
    """Every kind there is, by the name it has in a journal."""

    def __init_subclass__(cls) -> None:
        Fact.kinds[cls.kind()] = cls

    @classmethod
    def kind(cls) -> str:
        return f"{cls.__module__}:{cls.__qualname__}"


class Named(Generic[R_co]):
    """Base of commands: what names one, and with it the fact `R_co` that it leaves."""

    __slots__ = ()

    @property
    def about(self) -> tuple[object, ...]:
        """What names the effect among those of its kind; by default every field."""
        return tuple(getattr(self, f.name) for f in dataclasses.fields(self))  # type: ignore[arg-type]

    @property
    def key(self) -> str:
        """Kind and `about`, as text; unique within a job."""
        return key_of(type(self), *self.about)


@dataclass(frozen=True, slots=True)
class Done(Generic[R_co]):
    """What an effect left: a fact, and the block of its transaction (0 for work)."""

    fact: R_co | None = None
    block: int = 0


class NotYet(AtollError):
    """The chain's state says that this is not due, and not that it is done.

    Attributes:
        due_at: when it will be, unix seconds of the chain; None where the contract named no time.
    """

    def __init__(self, message: str, due_at: int | None) -> None:
        super().__init__(message)
        self.due_at = due_at


def key_of(kind: type[Named[Any]], *about: object) -> str:
    """The key of a command of that kind with that `about`."""
    return ":".join([kind.__name__, *map(_text, about)])


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, Slot):
        return str(value.round)  # the rest of it is the same in all of a journal
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    if dataclasses.is_dataclass(value):
        return ":".join(_text(getattr(value, f.name)) for f in dataclasses.fields(value))
    return str(value)


class Facts:
    """An immutable set of facts, by the keys of the commands that left them."""

    __slots__ = ("_by_key",)

    def __init__(self, by_key: Mapping[str, Fact] | None = None) -> None:
        self._by_key = dict(by_key or {})

    def of(self, kind: type[Named[F]], *about: object) -> F | None:
        """What the command of that kind with that `about` left, or None."""
        found: Any = self._by_key.get(key_of(kind, *about))
        return found  # type: ignore[no-any-return]  # a key belongs to one kind, a kind to one F

    def all_of(self, cls: type[F]) -> list[F]:
        """Every fact of a kind, in the order of their keys."""
        return [fact for _, fact in sorted(self._by_key.items()) if isinstance(fact, cls)]

    def __len__(self) -> int:
        return len(self._by_key)

    def plus(self, key: str, fact: Fact) -> Facts:
        """These facts and one more, which replaces what lay under its key."""
        return Facts({**self._by_key, key: fact})

    def after_restart(self) -> Facts:
        """Those that a restart still believes."""
        return Facts({key: fact for key, fact in self._by_key.items() if fact.outlives_start})
