"""How the service stands to jobs, signed and served for submitters who look for members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from atoll.protocol.types import JobId
from atoll.service.choice import Choice
from atoll.service.context import Context
from atoll.service.effects import ROLES
from atoll.service.machines import Machines
from atoll.service.pace import promised_per_hour
from atoll.service.stand_statements import (
    MOST_SAID,
    Stand,
    StandStatement,
    message_of,
    note_name,
    stand_of,
    to_bytes,
)

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class StandNote:
    """To one job, with the reason in words."""

    stand: Stand
    text: str


class StandNotes(Generic[S]):
    """What was last said to each job; a job hears what is another than before."""

    def __init__(self, role: str, machines: Machines[S], choice: Choice) -> None:
        self._role = role
        self._machines = machines
        self._choice = choice
        self._served: dict[JobId, StandNote] = {}

    def begin(self, context: Context) -> None:
        """What an earlier run said is not known to hold."""
        context.journal.withdraw(note_name("*"))

    def current(self) -> dict[JobId, StandNote]:
        """How it stands to the open jobs that promise most; an outsider's stands to none."""
        role = ROLES.get(self._role)
        if role is None:
            return {}
        notes, promised = dict[JobId, StandNote](), dict[JobId, float]()
        for job, state in self._machines.states.items():
            if (stand := stand_of(state, self._choice)) is not None:
                notes[job] = StandNote(*stand)
                promised[job] = promised_per_hour(role, state.view.require_terms())
        best = sorted(notes, key=lambda job: (-promised[job], job))[:MOST_SAID]
        return {job: notes[job] for job in best}

    def say(self, context: Context) -> None:
        """Signs and serves what is another than before; its latest word alone."""
        notes, head = self.current(), self._machines.head
        for job in self._served.keys() - notes.keys():
            context.journal.withdraw(note_name(job))
            del self._served[job]
        for job, note in notes.items():
            if self._served.get(job) == note or head is None:
                continue
            statement = StandStatement(ROLES[self._role], note.stand, head.time, note.text)
            domain = self._machines.states[job].view.domain
            message = message_of(domain, job, context.me, statement)
            signed = to_bytes(statement, context.sign(message))
            context.journal.publish(note_name(job), signed)
            self._served[job] = note
