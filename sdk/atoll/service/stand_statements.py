"""How a service stands to a job: a statement that it signs and its gateway serves, for free.

It is a note of the gateway, `stands/JOB`, the latest alone: role, stand, time, signature and text,
over which with chain, contracts, job and account the account's key signs. A submitter
counts those of accounts that have announced a gateway and could pay the bond: anybody can write
one, and nobody for somebody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from atoll.chain import response_checks
from atoll.protocol.certificates import signer_of
from atoll.protocol.typed_data import TypedField, TypedMessage
from atoll.protocol.types import Address, Domain, JobId, Role
from atoll.service.duties.material import refusal, spec_of
from atoll.service.machine import State

if TYPE_CHECKING:
    from atoll.service.choice import Choice

S = TypeVar("S")
MOST_TEXT: Final = 200
MOST_SAID: Final = 64
"""Jobs about which a service makes statements: those that promise most."""
_HEAD: Final = 10
_SIGNATURE: Final = 65
MAX_BYTES: Final = _HEAD + _SIGNATURE + MOST_TEXT


class Stand(IntEnum):
    """How somebody stands to a job."""

    MEASURES = 1
    REFUSES = 2
    WAITS = 3
    JOINS = 4
    JOINED = 5


@dataclass(frozen=True, slots=True)
class StandStatement:
    """What is said; `text` is why, without what would steer a terminal, `at` unix seconds."""

    role: Role
    stand: Stand
    at: int
    text: str


def stand_of(state: State[S], choice: Choice) -> tuple[Stand, str] | None:
    """How a machine stands to its job, and why; None where that is nobody's business any more."""
    view, job = state.view, state.view.job_id
    if view.terms is None or view.status.is_closed:
        return None
    if view.standing(state.me) is not None:
        return Stand.JOINED, ""
    refused = refusal(state.entries)
    if refused is not None or state.sits_out:
        stand = Stand.WAITS if refused is None else Stand.REFUSES
        return stand, _cut(state.sits_out if refused is None else refused.reason)
    if spec_of(state.entries) is None:
        return Stand.MEASURES, ""
    if not choice.may_take(job):
        return Stand.WAITS, "compares it with other jobs"
    return Stand.JOINS, ""


def _cut(text: str) -> str:
    """As much of a text, in a line, as a statement holds."""
    return response_checks.text(text).encode()[:MOST_TEXT].decode(errors="ignore")


def note_name(job: JobId | str) -> str:
    """The name of a statement about a job in `/notes/` of a gateway; `*` is of all jobs."""
    return f"stands/{job}"


def message_of(
    domain: Domain, job: JobId, account: Address, statement: StandStatement
) -> TypedMessage:
    """What is signed."""
    fields = (
        TypedField("uint256", "job", job),
        TypedField("address", "account", account),
        TypedField("uint8", "role", int(statement.role)),
        TypedField("uint8", "stand", int(statement.stand)),
        TypedField("uint64", "at", statement.at),
        TypedField("string", "text", statement.text),
    )
    return TypedMessage(domain.chain_id, domain.rounds, "Statement", fields)


def to_bytes(statement: StandStatement, signature: bytes) -> bytes:
    """As gateways serve it."""
    return _head(statement) + signature + statement.text.encode()


def from_bytes(data: bytes, domain: Domain, job: JobId, account: Address) -> StandStatement | None:
    """The statement, where it is the account's; None where it is anything else."""
    if not _HEAD + _SIGNATURE <= len(data) <= MAX_BYTES:
        return None
    try:
        at, text = int.from_bytes(data[2:_HEAD], "big"), data[_HEAD + _SIGNATURE :].decode()
        statement = StandStatement(Role(data[0]), Stand(data[1]), at, text)
    except ValueError:
        return None
    signature = data[_HEAD : _HEAD + _SIGNATURE]
    if signer_of(message_of(domain, job, account, statement).digest, signature) != account:
        return None
    return StandStatement(statement.role, statement.stand, at, response_checks.text(text))


def _head(statement: StandStatement) -> bytes:
    return bytes([statement.role, statement.stand]) + statement.at.to_bytes(8, "big")
