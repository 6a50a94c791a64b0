"""What finished commands leave in the journal, and the one key by which both are known.

Rule of this file: pure. What a command leaves lies under the command's own key, so that whoever can
name the work finds its result, and nobody writes a key down.

Entries and commands are known on disk by their `kind`, a written tag, and by nothing that a
refactoring changes: a guard that is keyed by a class's name forgets, once that is renamed, what was
signed.
`tests/vectors/tags.json` lists every tag that there ever was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar

from atoll.errors import AtollError
from atoll.protocol.types import RoundId

F = TypeVar("F", bound="Entry")
R_co = TypeVar("R_co", bound="Entry", covariant=True)
OF_SERVICE: Final = 0
"""The job under which the journal keeps what is of no job."""


class Entry:
    """Base of what finished commands leave in the journal; subclasses are frozen dataclasses.

    Attributes:
        kind: its tag in a journal, as `trained.v1`; of other fields, or of fields that mean
            something else, another tag, which was never used before.
        outlives_start: whether a restart (with another version, say) still believes it.
    """

    __slots__ = ()
    kind: ClassVar[str]
    outlives_start: ClassVar[bool] = True
    kinds: ClassVar[dict[str, type[Entry]]] = {}
    """Every kind there is, by its tag."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" not in cls.__dict__:
            raise TypeError(f"{cls.__name__} lacks a `kind` of its own")
        _enter(Entry.kinds, cls)


class Named(Generic[R_co]):
    """Base of commands: what names one, and with it the entry `R_co` that it leaves.

    Attributes:
        kind: the tag that its keys begin with, as `train.v1`; where `about` changes, another one.
            A class without one is no command yet, but a base of some.
    """

    __slots__ = ()
    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[Named[Any]]]] = {}
    """Every kind there is, by its tag."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            _enter(Named.kinds, cls)

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
    """What an effect left: an entry, and the block of its transaction (0 for work)."""

    entry: R_co | None = None
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
    return ":".join([kind.kind, *map(_text, about)])


K = TypeVar("K")


def _enter(kinds: dict[str, type[K]], cls: Any) -> None:
    """Adds a class. Raises TypeError where another one has its tag: they would share keys."""
    known = kinds.setdefault(cls.kind, cls)
    # A dataclass with slots is made twice: the second one has the first one's name, and stays.
    if (known.__module__, known.__name__) != (cls.__module__, cls.__name__):
        raise TypeError(f"{cls.__name__} and {known.__name__} are both {cls.kind}")
    kinds[cls.kind] = cls


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, RoundId):
        return str(value.round)  # the rest of it is the same in all of a journal
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    if dataclasses.is_dataclass(value):
        return ":".join(_text(getattr(value, f.name)) for f in dataclasses.fields(value))
    return str(value)


class Entries:
    """An immutable set of entries, by the keys of the commands that left them."""

    __slots__ = ("_by_key",)

    def __init__(self, by_key: Mapping[str, Entry] | None = None) -> None:
        self._by_key = dict(by_key or {})

    def of(self, kind: type[Named[F]], *about: object) -> F | None:
        """What the command of that kind with that `about` left, or None."""
        entry: Any = self._by_key.get(key_of(kind, *about))
        return entry  # type: ignore[no-any-return]  # a key belongs to one kind, a kind to one F

    def all_of(self, cls: type[F]) -> list[F]:
        """Every entry of a kind, in the order of their keys."""
        return [entry for _, entry in sorted(self._by_key.items()) if isinstance(entry, cls)]

    def __len__(self) -> int:
        return len(self._by_key)

    def plus(self, key: str, entry: Entry) -> Entries:
        """These entries and one more, which replaces what lay under its key."""
        return Entries({**self._by_key, key: entry})

    def after_restart(self) -> Entries:
        """Those that a restart still believes."""
        return Entries({key: entry for key, entry in self._by_key.items() if entry.outlives_start})
