"""Looks at settled rounds as an outsider: replays accepted seats and disputes what is wrong.

Nobody has to be believed for it: the trace is what the seat revealed, and model, moments and data
are what the chain names. What is found is decided by a game.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import structlog

from atoll.content.cid import Cid
from atoll.errors import InsufficientFunds, MalformedTrace, ProtocolError
from atoll.law.claims import MAX_WAITING, Said
from atoll.law.games.claims import Claim
from atoll.law.games.machine import Outcome as GameOutcome
from atoll.law.trace import MAX_TRACE_BYTES, TraceDocument
from atoll.law.views import JobView, SettledRound
from atoll.law.words import ZERO_DIGEST, Address, Digest, RoundIndex, SeatIndex, bits
from atoll.service.commands import Done, Fact, Transaction, Work
from atoll.service.duties.material import DataReady, DoFetchData, spec_of
from atoll.service.duties.model import model_of_round
from atoll.service.machine import AnyCommand, Decision, State
from atoll.train.judged import JudgeTask, ReplayedRound

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
TASKS = "atoll.service.judging"
REPLAY = f"{TASKS}:replay_round"
MARGIN_SECONDS = 2
"""So long before a window ends nothing is begun any more that it would have to contain."""
log = structlog.get_logger("atoll.watch")


@dataclass(frozen=True, slots=True)
class RoundReplayed(Fact):
    """A seat's settled round was replayed.

    Attributes:
        segment: the first that differs, −1 for none; of a link the last one.
        state: the state that it begins with, in the store; empty where nothing differs.
        reason: why nothing could be replayed; empty where it could.
    """

    segment: int
    is_link: bool
    state: bytes
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NotChallenged(Fact):
    """A challenge that cannot be made, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class DoReplayRound(Work[RoundReplayed]):
    """Replay an accepted seat's settled round from public inputs.

    Attributes:
        function: the worker's function that replays.
    """

    round: RoundIndex
    seat: SeatIndex
    trace_root: Digest
    manifest: bytes
    initial: Digest
    function: str

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.seat, self.trace_root)

    async def perform(self, effects: Effects, view: JobView) -> Done[RoundReplayed]:
        past = _settled(view, self.round)
        told = past.reveals[self.seat]
        try:
            document = await _trace(effects, view, past, self.seat)
        except MalformedTrace as error:
            return Done(RoundReplayed(-1, False, b"", str(error)))
        model = await model_of_round(effects, view, self.round, self.manifest)
        task = JudgeTask(
            manifest=self.manifest,
            initial=self.initial,
            round=self.round,
            seat=self.seat,
            data_seed=past.data_seed,
            state=b"",
            model=model,
            segment=0,
        )
        with effects.context.store.holding():
            args = (task, document.to_bytes(), told.reveal, effects.store_dir)
            found: ReplayedRound = await effects.work(self.function, *args)
            if found.segment is None:
                return Done(RoundReplayed(-1, False, b""))
            await effects.keep(view, self.round, found.state)
        what = "the update" if found.is_link else f"segment {found.segment}"
        log.info("differs", job=view.job_id, round=self.round, seat=self.seat, what=what)
        return Done(RoundReplayed(found.segment, found.is_link, found.state))


async def _trace(
    effects: Effects, view: JobView, past: SettledRound, seat: SeatIndex
) -> TraceDocument:
    """Raises NotFound where nobody has it, MalformedTrace where it is not what was revealed."""
    told, round = past.reveals[seat], past.slot.round
    cid = Cid.from_bytes(told.reveal.trace_cid)
    prefer = view.gateways.get(told.account, "")
    await effects.fetch(view, round, cid, MAX_TRACE_BYTES, prefer)
    document = TraceDocument.from_bytes(effects.context.store.read_bytes(cid, MAX_TRACE_BYTES))
    if document.trace_root != told.reveal.trace_root:
        raise MalformedTrace("the trace is not the revealed one")
    return document


@dataclass(frozen=True, slots=True)
class SendChallenge(Transaction[NotChallenged]):
    """Dispute a segment or the link of an accepted seat, with a bond as large as the holder's."""

    round: RoundIndex
    seat: SeatIndex
    segment: int
    is_link: bool
    manifest: bytes
    initial: Digest

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.seat)

    async def perform(self, effects: Effects, view: JobView) -> Done[NotChallenged]:
        model = await model_of_round(effects, view, self.round, self.manifest)
        args = (self.manifest, self.initial, model, effects.store_dir)
        roots, header = await effects.work(f"{TASKS}:shown", *args)
        document = await _trace(effects, view, _settled(view, self.round), self.seat)
        try:
            said = Said.of(view, (self.round, self.seat), roots, header, document)
            evidence = said.evidence(self.segment, is_link=self.is_link)
        except ProtocolError as error:
            return Done(NotChallenged(str(error)))
        lowest = said.claim(self.segment, is_link=self.is_link).lowest_bond
        bond = max(lowest, view.require_terms().provider_bond, _to_be_taken(view, said.holder))
        async with effects.staking:  # one allowance is for one challenge
            await _allow(effects, bond)
            log.info("disputes", job=view.job_id, round=self.round, seat=self.seat, bond=bond)
            call = effects.calls.challenge_claim(evidence, bond)
            return await effects.transact(view, self, call)


async def _allow(effects: Effects, bond: int) -> None:
    """Lets the game contract take the bond. Keys name what was allowed, so none is sent twice."""
    chain, queue, me = effects.context.chain, effects.context.queue, effects.context.me
    game = chain.deployment.addresses["Game"]
    allowed = await chain.allowance(me, game)
    if allowed >= bond:
        return
    balance = await chain.token_balance(me)
    if balance < bond:
        raise InsufficientFunds(
            f"{me} has {balance} wei of the stake token, the challenge's bond is {bond}",
            next_step="send stake tokens to this account",
        )
    key = f"approve-game:{allowed}:{balance}:{bond}"
    await queue.submit(key, effects.calls.approve(game, bond), retry_failed=True)
    await queue.wait(key)


def _to_be_taken(view: JobView, holder: Address) -> int:
    """The least bond that a full queue takes; 0 where the holder's is not full."""
    about = (game for game in view.games.values() if game.claim.holder == holder)
    waiting = [game.bond for game in about if game.is_open and game.clock is None]
    return min(waiting) + 1 if len(waiting) >= MAX_WAITING else 0


def _settled(view: JobView, round: RoundIndex) -> SettledRound:
    past = view.settled_round(round)
    if past is None:
        raise ProtocolError(f"round {round} is not settled")
    return past


# --- decisions ---


def decide_watch(state: State[S], function: str = REPLAY) -> Decision:
    """Replays the accepted seats of rounds that can still be disputed, and disputes them.

    Args:
        function: the worker's function that replays.
    """
    view = state.view
    spec, data = spec_of(state.facts), state.facts.of(DoFetchData)
    if spec is None or not isinstance(data, DataReady):
        return Decision("watch", "waits for the manifest and the data")
    if view.require_terms().program == ZERO_DIGEST:
        return Decision("watch", "the job has no judge")
    wanted: list[AnyCommand] = []
    for past in view.settled:
        if past.dispute_until > state.now + MARGIN_SECONDS:
            wanted += _of_round(state, past, (spec, data.initial), function)
    return Decision("watch", f"{len(wanted)} things to look at", tuple(wanted))


def _of_round(
    state: State[S], past: SettledRound, job: tuple[bytes, Digest], function: str
) -> list[AnyCommand]:
    wanted: list[AnyCommand] = []
    for seat in map(SeatIndex, bits(past.evidence.accepted)):
        told = past.reveals[seat]
        if told.account == state.me or told.account in state.view.fallen:
            continue
        about = (past.slot.round, seat, told.reveal.trace_root)
        found = state.facts.of(DoReplayRound, *about)
        if found is None:
            wanted.append(DoReplayRound(*about, *job, function))
        elif found.segment >= 0 and _may_challenge(state, past, seat):
            place = (past.slot.round, seat, found.segment, found.is_link)
            wanted.append(SendChallenge(*place, *job))
    return wanted


def _may_challenge(state: State[S], past: SettledRound, seat: SeatIndex) -> bool:
    """Whether no game of ours about the holder is open or lost, and nothing says there can be none.

    One that was sent home is asked for again.
    """
    if state.facts.of(SendChallenge, past.slot.round, seat) is not None:
        return False
    holder, games = past.reveals[seat].account, state.view.games.values()
    ours = (g for g in games if g.challenger == state.me and g.claim.holder == holder)
    return all(g.outcome is GameOutcome.SENT_HOME for g in ours)


def replayed_of(state: State[S], claim: Claim) -> RoundReplayed | None:
    """What our replay of a claim's round showed."""
    past = state.view.settled_round(RoundIndex(claim.round))
    if past is None:
        return None
    root = past.reveals[SeatIndex(claim.seat)].reveal.trace_root
    return state.facts.of(DoReplayRound, claim.round, claim.seat, root)
