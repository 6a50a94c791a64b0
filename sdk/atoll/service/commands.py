"""What a machine asks for, and what that leaves: commands, facts, and the one key they share.

Rule of this file: pure. A command carries everything its effect needs and says what names it; doing
it twice under one key is doing it once. What it leaves in the journal lies under the same key, so
that whoever can name the work finds its result, and nobody writes a key down.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Never, TypeVar

from atoll.chain.calls import Call, Calls
from atoll.errors import AtollError
from atoll.law.views import JobView
from atoll.law.words import Slot

if TYPE_CHECKING:
    from atoll.service.effects import Effects

F = TypeVar("F", bound="Fact")
TASKS: Final = "atoll.service.tasks"
"""The module of what both roles run in the worker, by name: importing it needs torch."""
OF_SERVICE: Final = 0
"""The job under which the journal keeps what is of no job."""
R_co = TypeVar("R_co", bound="Fact", covariant=True)


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


class NotYet(AtollError):
    """The chain's state says that this is not due, and not that it is done.

    Attributes:
        due_at: when it will be, unix seconds of the chain; None where the contract named no time.
    """

    def __init__(self, message: str, due_at: int | None) -> None:
        super().__init__(message)
        self.due_at = due_at


@dataclass(frozen=True, slots=True)
class Done(Generic[R_co]):
    """What an effect left: a fact, and the block of its transaction (0 for work)."""

    fact: R_co | None = None
    block: int = 0


class Command(ABC, Generic[R_co]):
    """One effect as data; `R_co` is the fact that it leaves, `Never` where it leaves none.

    Subclasses are frozen dataclasses.

    Attributes:
        is_work: whether it may be cancelled once no longer wanted.
    """

    __slots__ = ()
    is_work: ClassVar[bool]

    @property
    def about(self) -> tuple[object, ...]:
        """What names the effect among those of its kind; by default every field."""
        return tuple(getattr(self, f.name) for f in dataclasses.fields(self))  # type: ignore[arg-type]

    @property
    def key(self) -> str:
        """Kind and `about`, as text; unique within a job."""
        return key_of(type(self), *self.about)

    @abstractmethod
    async def perform(self, effects: Effects, view: JobView) -> Done[R_co]:
        """Carries it out. Asked for again, it takes up where it was.

        Raises:
            AtollError: it did not take place; it may be asked for again.
        """


class Work(Command[R_co]):
    """May be cancelled when the view changes, and done again."""

    __slots__ = ()
    is_work = True


class Transaction(Command[R_co]):
    """Goes through the transaction queue; never taken back by the machine.

    Attributes:
        once: whether it can take effect once only. What may be due again (a place lost since, say)
            is asked for again where the view has the last one's block and lacks its effect.
        is_of_account: whether it says the same whatever the job, so that one serves them all.
    """

    __slots__ = ()
    is_work = False
    once: ClassVar[bool] = False
    is_of_account: ClassVar[bool] = False


class ContractCall(Transaction[Never]):
    """A transaction that is a call of a contract and nothing else."""

    __slots__ = ()

    @abstractmethod
    def call(self, calls: Calls, view: JobView) -> Call:
        """The call; pure."""

    async def perform(self, effects: Effects, view: JobView) -> Done[Never]:
        return await effects.transact(view, self, self.call(effects.calls, view))


def key_of(kind: type[Command[Any]], *about: object) -> str:
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

    def of(self, kind: type[Command[F]], *about: object) -> F | None:
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
