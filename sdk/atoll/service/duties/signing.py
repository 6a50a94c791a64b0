"""Claims a subject in the journal for one content; nothing is sent that was not signed so."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar

from atoll.protocol.views import JobView
from atoll.service.commands import Work
from atoll.service.entries import Done, Entry

if TYPE_CHECKING:
    from atoll.service.effects import Effects

F_co = TypeVar("F_co", bound=Entry, covariant=True)


class Signing(Work[F_co]):
    """Sign what was decided to be said on chain; `about` names the subject, never the content.

    After a restart what was signed is said again, and nothing else.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def said(self) -> F_co:
        """What is signed."""

    @property
    @abstractmethod
    def content(self) -> bytes:
        """What the journal's guard compares: equal iff the same thing is said, in bytes that no
        refactoring changes.
        """

    def claim(self, effects: Effects, view: JobView) -> None:
        """Takes the subject in the journal for this content; raises as `Journal.sign_once`."""
        effects.context.journal.sign_once(f"{view.job_id}:{self.key}", self.content)

    async def perform(self, effects: Effects, view: JobView) -> Done[F_co]:
        self.claim(effects, view)
        return Done(self.said)
