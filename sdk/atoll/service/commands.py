"""What a machine asks for: one effect each, as data.

Rule of this file: pure. A command carries everything its effect needs and says what names it; doing
it twice under one key is doing it once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Never

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.protocol.views import JobView
from atoll.service.entries import Done, Named, R_co

if TYPE_CHECKING:
    from atoll.service.effects import Effects


class Command(Named[R_co], ABC):
    """One effect as data; `R_co` is the entry that it leaves, `Never` where it leaves none.

    Subclasses are frozen dataclasses.

    Attributes:
        is_work: whether it may be cancelled once no longer wanted.
    """

    __slots__ = ()
    is_work: ClassVar[bool]

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
