"""Plays games about settled rounds: for the work that we did, or against work that we found wrong.

The chain is the memory: what is next follows from the moves so far and from what can be computed
again, so whoever was killed at a move makes the same one.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar

import structlog

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.chain.deploy import FAMILIES
from atoll.errors import ProtocolError
from atoll.protocol.game_records import GameRecord, parties
from atoll.protocol.games.explanations import explain
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.games.judge import Need
from atoll.protocol.games.moves import Move
from atoll.protocol.games.players import Question
from atoll.protocol.manifest import Manifest
from atoll.protocol.reset_periods import earlier_rounds
from atoll.protocol.types import Address, Digest, Role, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.commands import ContractCall, Transaction
from atoll.service.config import KeeperConfig
from atoll.service.duties.fetch_model import model_of_round
from atoll.service.duties.material import DataReady, DoFetchData, spec_of
from atoll.service.duties.send_keeper_calls import is_turn, position_in_line
from atoll.service.entries import Done, Entry
from atoll.service.machine import AnyCommand, Decision, State
from atoll.service.task import Task
from atoll.train.earlier import EarlierRound
from atoll.train.judge_task import JudgeTask, Position

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
Play: TypeAlias = Task[[JudgeTask, Position, str], Move | Question | None]
"""A worker's function that makes moves of games."""
PLAY: Final[Play] = Task("next-game-move.v1", "atoll.service.game_moves")
KEEPER = KeeperConfig()
log = structlog.get_logger("atoll.game")


@dataclass(frozen=True, slots=True)
class NoMove(Entry):
    """We have nothing to say at this point of a game, and why."""

    kind: ClassVar[str] = "no-game-move.v1"
    outlives_start: ClassVar[bool] = False
    reason: str


@dataclass(frozen=True, slots=True)
class BondCollected(Entry):
    """What a game that is over left us was sent."""

    kind: ClassVar[str] = "bond-collected.v1"


@dataclass(frozen=True, slots=True)
class SendMove(Transaction[NoMove]):
    """Make the next move of a game.

    Attributes:
        moves: how many were made before it.
        is_holder: whether we defend what we said.
        function: the worker's function that computes it.
    """

    kind: ClassVar[str] = "game-move.v1"
    once: ClassVar[bool] = True
    game: int
    moves: int
    manifest: bytes
    initial: Digest
    is_holder: bool
    function: Play

    @property
    def about(self) -> tuple[object, ...]:
        return (self.game, self.moves)

    async def perform(self, effects: Effects, view: JobView) -> Done[NoMove]:
        record = view.games[self.game]
        if not await self._may_move(effects, record):
            return Done(NoMove(f"{record.claim.holder} has not named {effects.context.me}"))
        task = await self._task(effects, view, record)
        async with effects.moves.taken(record.deadline, about=task):
            if await self._is_over(effects, view, record.deadline):
                return Done()
            move = await self._move(effects, task, record)
        if move is None:
            return Done(NoMove("our own run gives what the other side shows"))
        log.info("plays", job=view.job_id, game=self.game, move=explain(record.claim, move))
        stake = _at_stake(view, record, is_holder=self.is_holder)
        call = effects.calls.play(self.game, record.claim, move, stake)
        return await effects.transact(view, self, call)

    async def _may_move(self, effects: Effects, record: GameRecord) -> bool:
        """Whether the contract takes the move from us: of another holder, by its word alone."""
        holder = record.claim.holder
        if not self.is_holder or holder == effects.context.me:
            return True
        return await effects.context.chain.delegate_of(holder) == effects.context.me

    async def _is_over(self, effects: Effects, view: JobView, deadline: int) -> bool:
        """Whether nobody waits for this move any more; other moves, whose clocks run, wait for it.

        Raises ProtocolError where the time for it is over.
        """
        if (await effects.context.chain.head()).timestamp >= deadline:
            raise ProtocolError(f"the clock of game {self.game} ran out before its move was made")
        newest = effects.context.follower.views.get(view.job_id, view).games.get(self.game)
        return newest is None or not newest.is_open or len(newest.moves) != self.moves

    async def _move(self, effects: Effects, task: JudgeTask, record: GameRecord) -> Move | None:
        """The move; what the operations need for a proof is asked of their contracts."""
        position = Position(record.claim, record.began_at, self.is_holder, record.moves)
        while True:
            next_step = await effects.play(self.function(task, position, effects.store_dir))
            if not isinstance(next_step, Question):
                return next_step
            answer = await self._need(effects, next_step)
            position = replace(position, answers=(*position.answers, answer))

    async def _need(self, effects: Effects, asked: Question) -> Need:
        family = FAMILIES[asked.op >> 8]
        args = (asked.op, asked.attributes, asked.element, asked.opened)
        (need,) = await effects.context.chain.read("need", *args, contract=family)
        return Need(*need)

    async def _task(self, effects: Effects, view: JobView, record: GameRecord) -> JudgeTask:
        claim = record.claim
        model = await model_of_round(effects, view, claim.round, self.manifest)
        round, seat = RoundIndex(claim.round), SeatIndex(claim.seat)
        job, holder = Manifest.from_bytes(self.manifest), view.settled[round].seats[seat]
        earlier = []
        for before in earlier_rounds(view, job, round, seat, holder):
            cid = await model_of_round(effects, view, before, self.manifest)
            earlier.append(EarlierRound(before, view.settled[before].record.seed, cid))
        return JudgeTask(
            job=view.job_id,
            manifest=self.manifest,
            initial=self.initial,
            round=round,
            seat=seat,
            data_seed=claim.data_seed,
            model=model,
            segment=claim.segment,
            is_update_proof=claim.is_update_proof,
            earlier=tuple(earlier),
        )


@dataclass(frozen=True, slots=True)
class SendTimeOut(ContractCall):
    """End a game in which the other side let its time run out."""

    kind: ClassVar[str] = "end-timed-out-game.v1"
    game: int
    moves: int

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.timeout(self.game)


@dataclass(frozen=True, slots=True)
class SendConclude(ContractCall):
    """Have a game that the contract decided for us pay."""

    kind: ClassVar[str] = "conclude-game.v1"
    once: ClassVar[bool] = True
    game: int

    def call(self, calls: Calls, view: JobView) -> Call:
        outcome = view.games[self.game].decided.name.lower().replace("_", " ")
        log.info("concludes", job=view.job_id, game=self.game, outcome=outcome)
        return calls.conclude(self.game)


@dataclass(frozen=True, slots=True)
class SendCollect(Transaction[BondCollected]):
    """Collect what a game that is over left us."""

    kind: ClassVar[str] = "collect-bond.v1"
    once: ClassVar[bool] = True
    game: int

    async def perform(self, effects: Effects, view: JobView) -> Done[BondCollected]:
        call = effects.calls.game_withdraw(effects.context.me)
        mined = await effects.transact(view, self, call)
        return Done(BondCollected(), mined.block)


def _at_stake(view: JobView, game: GameRecord, *, is_holder: bool) -> int:
    """Wei of the bond that whoever does not move in time loses."""
    about = parties(game.claim)
    if not is_holder or about is None:
        return game.bond
    terms = view.require_terms()
    return terms.provider_bond if about[1] is Role.PROVIDER else terms.verifier_bond


# --- decisions ---


def decide_games(
    state: State[S],
    function: Play = PLAY,
    keeper: KeeperConfig = KEEPER,
    *,
    defends: Address | None = None,
) -> Decision:
    """Plays every game that we are a party of, and ends those that one of ours waits behind.

    Args:
        function: the worker's function that makes moves.
        keeper: how long those wait whose game it is not.
        defends: a holder that named us its delegate, whose moves we make, too.
    """
    games = state.view.games.values()
    holders = {state.me, defends}
    ours = [g for g in games if state.me == g.challenger or g.claim.holder in holders]
    if not ours:
        return Decision("games", "no game is about our work, or ours")
    held_up = {game.claim.set for game in ours if game.is_held_up}
    others = [g for g in games if g not in ours and g.is_open and g.claim.set in held_up]
    wanted = [_next(state, game, function, holders) for game in ours]
    wanted += [_end_for_both(state, game, keeper) for game in others if game.clock is not None]
    open_games = sum(game.is_open for game in ours)
    commands = tuple(command for command in wanted if command is not None)
    return Decision("games", f"{open_games} of {len(ours)} games are open", commands)


def _end_for_both(state: State[S], game: GameRecord, keeper: KeeperConfig) -> AnyCommand | None:
    """Ends a game of two others, who may be one: until then one of ours about the bond stands.

    They come first, since a call that comes second is paid for nothing.
    """
    if game.decided:
        line = position_in_line(state.view, state.me)
        return SendConclude(game.id) if is_turn(state.view, line, state.now, keeper) else None
    is_late = 0 < game.deadline <= state.now - keeper.stagger_s
    return SendTimeOut(game.id, len(game.moves)) if is_late else None


def _next(
    state: State[S], game: GameRecord, function: Play, holders: Set[Address | None]
) -> AnyCommand | None:
    """What is due in a game.

    Args:
        holders: for whom we defend.
    """
    if not game.is_open:
        holder_won = game.outcome is Outcome.CHALLENGER_LOST
        is_left = state.me == (game.claim.holder if holder_won else game.challenger)
        is_due = is_left and state.entries.of(SendCollect, game.id) is None
        return SendCollect(game.id) if is_due else None
    if game.decided:
        holder_lost = game.decided is Outcome.HOLDER_LOST
        is_ours = state.me == game.challenger if holder_lost else game.claim.holder in holders
        return SendConclude(game.id) if is_ours else None
    if not game.deadline:
        return None
    mine = game.claim.holder in holders if game.is_holders_turn else state.me == game.challenger
    if not mine:
        late = state.now >= game.deadline
        return SendTimeOut(game.id, len(game.moves)) if late else None
    return _move(state, game, function) if state.now < game.deadline else None


def _move(state: State[S], game: GameRecord, function: Play) -> SendMove | None:
    if state.entries.of(SendMove, game.id, len(game.moves)) is not None:
        return None
    spec, data = spec_of(state.entries), state.entries.of(DoFetchData)
    if spec is None or not isinstance(data, DataReady):
        return None
    return SendMove(game.id, len(game.moves), spec, data.initial, game.is_holders_turn, function)
