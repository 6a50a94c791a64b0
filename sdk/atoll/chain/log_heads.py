"""The word of state that a contract keeps of its logs, one for each job, and its fold from logs.

Rule of this file: it is `contracts/src/libraries/EventLog.sol` in Python, and SPEC-ROUNDS.md says
both. The word is a count (4 bytes) and 28 bytes of a hash over every log of that contract and job,
in order, with the number and the time of its block. Logs that an endpoint hides, loses, reorders or
makes up give another word than the state has.

The order of two contracts' logs within a block is not in their words, and views must not depend on
it. Where they would, the later log takes the other contract's word in: so all that ends or opens a
phase does with what the members contract has said before, and what is said of a round that may have
been settled in the same block does with what the rounds contract has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from eth_utils.crypto import keccak

from atoll.chain.abi import registry
from atoll.chain.decode import RawLog
from atoll.protocol.types import Address

NO_JOB: Final = 0
"""Whose log has what belongs to no job, and the creation of every job."""
EMPTY: Final = bytes(32)
"""The head of a log that has nothing."""
COUNT_BYTES: Final = 4
EMITTERS: Final = ("Rounds", "Members", "Audits", "LateVotes", "Jobs", "Stakes", "Game")
"""The contracts that views are folded from; the others say nothing, or nothing that is folded."""
BEHIND: Final[Mapping[str, frozenset[str]]] = {
    "Members": frozenset(
        {"RoundOpened", "RevealOpened", "MergeOpened", "Settled", "Stopped", "Waiting", "Closed"}
    ),
    "Rounds": frozenset({"Leaked", "LateVote"}),
}
"""Contracts, and the events of others whose log takes that one's head of the job in."""


@dataclass(frozen=True, slots=True, order=True)
class LogKey:
    """Which log of the deployment: a job's (or `NO_JOB`'s) in one contract."""

    job: int
    contract: Address


Heads = Mapping[LogKey, bytes]


def emitters(addresses: Mapping[str, Address]) -> tuple[Address, ...]:
    """Those of a deployment whose logs are read."""
    return tuple(addresses[name] for name in EMITTERS if name in addresses)


@cache
def topics_of(names: frozenset[str]) -> frozenset[bytes]:
    return frozenset(abi.topic for abi in registry().events.values() if abi.name in names)


@cache
def _job_topics() -> frozenset[bytes]:
    """Of events whose first topic is the job that they are of."""
    of_job = (
        abi
        for abi in registry().events.values()
        if abi.fields[:1] == ("jobId",) and abi.indexed[0] and abi.name != "JobCreated"
    )
    return frozenset(abi.topic for abi in of_job)


def behind_of(addresses: Mapping[str, Address]) -> dict[bytes, Address]:
    """First topics of a deployment's logs that take another contract's head in, and which."""
    present = {name: events for name, events in BEHIND.items() if name in addresses}
    return {
        topic: addresses[name] for name, events in present.items() for topic in topics_of(events)
    }


def key_of(raw: RawLog) -> LogKey:
    """Which log it is of."""
    has_job = raw.topics[0] in _job_topics() and len(raw.topics) > 1
    return LogKey(int.from_bytes(raw.topics[1], "big") if has_job else NO_JOB, raw.address)


def created_job(raw: RawLog) -> int | None:
    """The job that a log says to be new."""
    is_creation = raw.topics[0] in topics_of(frozenset({"JobCreated"})) and len(raw.topics) > 1
    return int.from_bytes(raw.topics[1], "big") if is_creation else None


def next_head(before: bytes, raw: RawLog, timestamp: int, other: bytes = EMPTY) -> bytes:
    """The head behind one more log.

    Args:
        timestamp: of the log's block.
        other: the head that it takes in.
    """
    words = (
        before,
        other,
        bytes.fromhex(raw.address[2:]).rjust(32, b"\0"),
        raw.block_number.to_bytes(32, "big"),
        timestamp.to_bytes(32, "big"),
        keccak(b"".join(raw.topics)),
        keccak(raw.data),
    )
    count = int.from_bytes(before[:COUNT_BYTES], "big") + 1
    return count.to_bytes(COUNT_BYTES, "big") + keccak(b"".join(words))[: 32 - COUNT_BYTES]


class HeadFold:
    """Folds logs, in chain order, into the heads behind each.

    Args:
        behind: see `behind_of`.
        known: heads to begin with; what is not among them is empty.
    """

    def __init__(self, behind: Mapping[bytes, Address], known: Heads | None = None) -> None:
        self.behind = behind
        self.heads: dict[LogKey, bytes] = dict(known or {})

    def needed(self, raw: RawLog) -> Iterator[LogKey]:
        """Whose heads the fold of a log asks for."""
        key = key_of(raw)
        yield key
        other = self.behind.get(raw.topics[0])
        if other is not None:
            yield LogKey(key.job, other)

    def fold(self, raw: RawLog) -> tuple[LogKey, bytes]:
        """Takes one log in, whose timestamp is known; whose it is, and the head behind it."""
        assert raw.timestamp is not None  # see `LogReader`
        first, *others = self.needed(raw)
        other = self.heads.get(others[0], EMPTY) if others else EMPTY
        head = next_head(self.heads.get(first, EMPTY), raw, raw.timestamp, other)
        self.heads[first] = head
        return first, head

    def fold_all(self, logs: Iterable[RawLog]) -> None:
        """Takes logs in, oldest first."""
        for raw in logs:
            self.fold(raw)
