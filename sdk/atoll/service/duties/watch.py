"""Looks at settled rounds as an outsider: replays revealed seats and disputes what is wrong.

It owes nobody anything, and is paid for what it finds: the winner's share of a bond, and half of
the pay of a seat whose key it was told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeVar

import structlog

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.protocol.hashing import hash_fields
from atoll.protocol.keeper_calls import leaked_keys
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Address, Digest, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.commands import ContractCall, Work
from atoll.service.duties.challenge import (
    SendChallenge,
    may_challenge,
    one_at_a_time,
    valid_authors,
)
from atoll.service.duties.material import DataReady, DoFetchData, spec_of
from atoll.service.duties.replay_seat import (
    REPLAY,
    DoReplay,
    Replay,
    SeatReplayed,
    replayed,
    replaying,
    wrong_tag_at,
)
from atoll.service.entries import Done, Entry, key_of
from atoll.service.machine import AnyCommand, Decision, State

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
MARGIN_SECONDS: Final = 2
"""So long before a window ends nothing is begun any more that it would have to contain."""
_ALL: Final = 1 << 256
log = structlog.get_logger("atoll.watch")


class Looks(NamedTuple):
    """What an outsider looks at.

    Attributes:
        share: of the revealed seats of every round, which are replayed, in (0, 1].
        keys: that it was told; each names its own seat.
        function: the worker's function that replays.
    """

    share: float = 1.0
    keys: tuple[Digest, ...] = ()
    function: Replay = REPLAY


@dataclass(frozen=True, slots=True)
class SendLeak(ContractCall):
    """Show a key that somebody told before AUDIT was over."""

    kind: ClassVar[str] = "show-leaked-key.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    seat: SeatIndex
    key_shown: Digest

    def call(self, calls: Calls, view: JobView) -> Call:
        log.info("leaks", job=view.job_id, round=self.round, seat=self.seat)
        return calls.about(view.settled[self.round]).leak(self.seat, self.key_shown)


@dataclass(frozen=True, slots=True)
class CameTooLate(Entry):
    """A window ended before our replay did: whatever it gave could not be disputed."""

    kind: ClassVar[str] = "replay-too-late.v1"


@dataclass(frozen=True, slots=True)
class NoteTooLate(Work[CameTooLate]):
    """Say so: this machine is too slow for so many seats."""

    kind: ClassVar[str] = "note-replay-too-late.v1"
    round: int
    seat: int

    async def perform(self, effects: Effects, view: JobView) -> Done[CameTooLate]:
        log.warning("came too late", job=view.job_id, round=self.round, seat=self.seat)
        return Done(CameTooLate())


# --- decisions ---


@dataclass(frozen=True, slots=True)
class _Job:
    """A job's manifest, in bytes, and the digest of the model that it begins with."""

    spec: bytes
    initial: Digest


def decide_watch(state: State[S], looks: Looks) -> Decision:
    """Replays seats of rounds that can still be disputed, and disputes what is wrong."""
    view, now = state.view, state.now
    wanted: list[AnyCommand] = [*_leaks(state, looks.keys), *_too_late(state)]
    spec, data = spec_of(state.entries), state.entries.of(DoFetchData)
    if spec is None or not isinstance(data, DataReady):
        return Decision("watch", "waits for the manifest and the data", tuple(wanted))
    for settled_round in view.auditing(now + MARGIN_SECONDS):
        wanted += _of_round(state, settled_round, _Job(spec, data.initial), looks)
    return Decision("watch", f"{len(wanted)} things to look at", one_at_a_time(state, wanted))


def is_sampled(me: Address, settled_round: SettledRound, seat: SeatIndex, share: float) -> bool:
    """Whether we replay this seat: nobody can tell before it has revealed."""
    types = ("bytes32", "address", "uint256")
    ticket = hash_fields(types, (settled_round.record.audit_seed, me, seat))
    return int.from_bytes(ticket, "big") < share * _ALL


def _of_round(
    state: State[S], settled_round: SettledRound, job: _Job, looks: Looks
) -> list[AnyCommand]:
    wanted: list[AnyCommand] = []
    for seat, revealed in settled_round.reveals.items():
        if revealed.account == state.me:
            continue
        replay = replayed(state, settled_round, seat)
        if replay is not None:
            wanted += _disputes(state, settled_round, replay, job)
            continue
        slashed = state.view.providers[revealed.holder].is_slashed
        if not slashed and is_sampled(state.me, settled_round, seat, looks.share):
            wanted.append(replaying(state.view, settled_round, seat, job.spec, looks.function))
    return wanted


def _disputes(
    state: State[S], settled_round: SettledRound, replay: SeatReplayed, job: _Job
) -> Iterator[SendChallenge]:
    """What a seat said that our replay does not give; and who knew its work_tags and called it
    valid."""
    entry, seat = replay.entry, replay.entry.seat
    at = wrong_tag_at(settled_round, seat, replay.work_tags) if entry.is_valid else entry.at
    if at is None or not settled_round.clock.takes_challenges(state.now):
        return
    through_round = None if replay.earlier is None else settled_round.round
    round, at = (settled_round.round, at) if replay.earlier is None else replay.earlier
    challenge = SendChallenge(round, seat, at, job.spec, job.initial, through_round=through_round)
    slashed = state.view.providers[settled_round.seats[seat]].is_slashed
    if not slashed and may_challenge(state, settled_round, challenge):
        yield challenge
    revealed = state.view.settled[round].reveals[seat]
    if at == revealed.segments:
        return  # a *valid* is a claim of segments, not of an update proof
    for member in valid_authors(state.view, settled_round, seat):
        other = replace(challenge, member=member)
        is_other = state.view.verifiers[member].account != state.me
        if is_other and may_challenge(state, settled_round, other):
            yield other


def _leaks(state: State[S], keys: tuple[Digest, ...]) -> Iterator[SendLeak]:
    """Keys that somebody told, or showed on the chain, before AUDIT was over."""
    for settled_round in state.view.auditing(state.now):
        for shown in leaked_keys(settled_round, state.now, keys):
            if settled_round.reveals[shown.seat].account != state.me:
                yield SendLeak(settled_round.round, shown.seat, shown.key)


def _too_late(state: State[S]) -> Iterator[NoteTooLate]:
    """Replays that run, or are waited with, of rounds whose windows are over."""
    begun = key_of(DoReplay, "")
    for key in {*state.in_flight, *state.holds}:
        if not key.startswith(begun):
            continue
        round, seat = map(int, key.removeprefix(begun).split(":")[:2])
        settled_round = state.view.settled_round(RoundIndex(round))
        is_over = (
            settled_round is not None
            and state.now + MARGIN_SECONDS >= settled_round.clock.window_end
        )
        is_done = (
            settled_round is not None
            and replayed(state, settled_round, SeatIndex(seat)) is not None
        )
        if is_over and not is_done and state.entries.of(NoteTooLate, round, seat) is None:
            yield NoteTooLate(round, seat)
