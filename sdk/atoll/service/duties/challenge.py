"""Brings what differs before the judge, with a bond: a member its accusation, anyone what it found.

Nobody has to be believed for it: what is found is decided by a game.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import structlog

from atoll.chain.call import Call
from atoll.chain.txconfig import MOST_CALLDATA
from atoll.chain.txqueue import unspent_key
from atoll.errors import InsufficientFunds, ProtocolError
from atoll.protocol import events as ev
from atoll.protocol.audit_reports import AuditEntry
from atoll.protocol.claims import (
    MAX_OPEN,
    ModelRoots,
    ProgramHeader,
    SeatStatements,
    lowest_bond,
)
from atoll.protocol.game_records import GameRecord, accusation, parties, window_of
from atoll.protocol.games.game_machine import Outcome as GameOutcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.obligations import Duty, accused, games_about, obligations_of
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import NO_HOLDER, Address, Digest, HolderId, Role, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.commands import Transaction
from atoll.service.duties.fetch_model import model_of_round
from atoll.service.duties.game import SendMove
from atoll.service.entries import Done, Entry, key_of
from atoll.service.machine import AnyCommand, State
from atoll.service.task import Task

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
LAST_PART: Final = 4
"""With so large a part of its time left an accusation is made, whatever else is played."""
_BESIDE: Final = 256
"""Bytes, at least as many as a challenge has beside its evidence."""
log = structlog.get_logger("atoll.watch")
SHOWN: Final[Task[[bytes, Digest, bytes, str], tuple[ModelRoots, ProgramHeader]]] = Task(
    "show-claim-roots.v1", "atoll.service.game_moves"
)


@dataclass(frozen=True, slots=True)
class NotChallenged(Entry):
    """A challenge that cannot be made, and why."""

    kind: ClassVar[str] = "not-challenged.v1"
    outlives_start: ClassVar[bool] = False
    reason: str


@dataclass(frozen=True, slots=True)
class SendChallenge(Transaction[NotChallenged]):
    """Dispute what a seat said, or who called it valid, with a bond as large as its holder's.

    The least bond is enough where a game of ours about it is open already: one slash takes all.

    Attributes:
        at: the segment; of the update proof, how many the seat did.
        member: the auditor whose *valid* it is; NO_HOLDER of the seat's own claim.
        through_round: the later round of the reset period whose window is open; None for the round
            itself.
        owed: an accusation that our audit report made, each of which is played by itself.
    """

    kind: ClassVar[str] = "challenge.v1"
    round: RoundIndex
    seat: SeatIndex
    at: int
    manifest: bytes
    initial: Digest
    member: HolderId = NO_HOLDER
    through_round: RoundIndex | None = None
    owed: bool = False

    @property
    def about(self) -> tuple[object, ...]:
        where: tuple[object, ...] = (self.round, self.seat, self.at)
        if self.through_round is not None:
            where = (*where, NO_HOLDER, self.through_round)
        return where if self.member == NO_HOLDER else (*where, self.member)

    @property
    def run(self) -> tuple[RoundIndex, SeatIndex, int]:
        """What has to be run for its game; others may be about the same."""
        return (self.round, self.seat, self.at)

    async def perform(self, effects: Effects, view: JobView) -> Done[NotChallenged]:
        model = await model_of_round(effects, view, self.round, self.manifest)
        shown = SHOWN(self.manifest, self.initial, model, effects.store_dir)
        roots, header = await effects.work_soon(shown)
        try:
            statements = SeatStatements.of(view, self.round, self.seat, roots, header)
            statements = replace(statements, member=self.member, through_round=self.through_round)
            is_update_proof = self.at == statements.segments
            segment = self.at - is_update_proof
            evidence = statements.evidence(segment, is_update_proof=is_update_proof)
            claim = statements.claim(segment, is_update_proof=is_update_proof)
        except ProtocolError as error:
            return Done(NotChallenged(str(error)))
        if len(evidence) > MOST_CALLDATA - _BESIDE:
            return Done(NotChallenged(f"its {len(evidence)} bytes fit into no transaction"))
        async with effects.staking:  # one allowance is for one challenge
            call = await self._call(effects, view, claim, evidence)
            if call is None:
                return Done(NotChallenged("the queue into which it came once is full"))
            return await effects.transact(view, self, call)

    async def _call(
        self, effects: Effects, view: JobView, claim: Claim, evidence: bytes
    ) -> Call | None:
        """A challenge; or where the queue has no room for what we have, that it has none.

        That is all that an accusation owes, and what a game of ours in that queue leaves to say.
        None of one that was pushed out of a queue that is full: it counts as challenged already.
        """
        me = effects.context.me
        auditor = _owes(view, claim, me) if self.owed else NO_HOLDER
        is_owed = auditor != NO_HOLDER
        least, ours = _to_be_taken(view, claim, is_owed=is_owed), _open_games(view, claim, me)
        unowed = sum(not game.is_owed for game in ours)
        lowest = lowest_bond(claim, 0 if is_owed else unowed)
        bond = max(lowest, least, 0 if ours else self._worth(view))
        if is_owed:
            balance = await effects.context.chain.token_balance(me)
            is_out = least > 0 and (balance < max(least, lowest) or len(ours) > 0)
            if is_out and games_about(view, accusation(me, claim)):
                return None
            if is_out:
                return effects.calls.crowded_out(evidence)
            kept = await _kept_for_others(effects, view, self, claim)
            bond = max(lowest, least, min(bond, balance - kept))
        await _allow(effects, bond)
        log.info("disputes", job=view.job_id, round=self.round, seat=self.seat, bond=bond)
        if not is_owed:
            return effects.calls.challenge(evidence, bond)
        body = view.settled[window_of(claim)].opened_reports[auditor].to_bytes()
        return effects.calls.challenge_owed(evidence, bond, auditor, body)

    def _worth(self, view: JobView) -> int:
        """What we bid where we have it, so that nobody gets before us for less than it costs."""
        terms = view.require_terms()
        return terms.provider_bond if self.member == NO_HOLDER else terms.verifier_bond


async def _kept_for_others(
    effects: Effects, view: JobView, challenge: SendChallenge, claim: Claim
) -> int:
    """The bonds of our further accusations, which are all to be played: each is dropped for itself,
    and asks for the lowest.
    """
    now = (await effects.context.chain.head()).timestamp
    view = effects.context.follower.views.get(view.job_id, view)
    owed = obligations_of(view, effects.context.me, now)
    about = {(o.round, o.seats) for o in owed if o.duty is Duty.CHALLENGE}
    return len(about - {(window_of(claim), (challenge.seat,))}) * lowest_bond(claim, 0)


async def _allow(effects: Effects, bond: int) -> None:
    """Lets the game contract take the bond.

    What it finds may be as it was before an earlier challenge, whose bond came home.
    """
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
    key = unspent_key(queue, f"approve-game:{allowed}:{balance}:{bond}")
    await queue.submit(key, effects.calls.approve(game, bond), retry_failed=True)
    await queue.wait(key)


def _open_games(view: JobView, claim: Claim, me: Address) -> list[GameRecord]:
    """Games of ours about this bond."""
    games = (game for game in view.games.values() if game.is_open and game.challenger == me)
    return [game for game in games if game.claim.set == claim.set]


def _owes(view: JobView, claim: Claim, me: Address) -> HolderId:
    """By which id of ours we said in an audit report what is claimed, and may still play it as
    owed: no owed game of ours about it is open or was played.
    """
    settled_round, wanted = view.settled[window_of(claim)], accusation(me, claim)
    owed = (game for game in games_about(view, wanted) if game.is_owed)
    if any(game.outcome is not GameOutcome.SENT_HOME for game in owed):
        return NO_HOLDER
    for id, body in settled_round.opened_reports.items():
        entry = body.of(SeatIndex(claim.seat))
        if entry is None or entry.is_valid or view.verifiers[id].account != me:
            continue
        if accused(settled_round, claim.position, me, entry) == wanted:
            return id
    return NO_HOLDER


def _to_be_taken(view: JobView, claim: Claim, *, is_owed: bool) -> int:
    """The least bond that a full queue takes; 0 where the one about this bond is not full: of what
    is owed.
    """
    about = [g for g in view.games.values() if g.claim.set == claim.set and g.is_open]
    waiting = [game for game in about if game.clock is None]
    has_room = len(about) < MAX_OPEN or (is_owed and not all(g.is_owed for g in waiting))
    if has_room:
        return 0
    return min((game.bond for game in waiting if game.is_owed == is_owed), default=0) + 1


# --- decisions ---


def may_challenge(state: State[S], settled_round: SettledRound, wanted: SendChallenge) -> bool:
    """Whether no game of ours about the holder is open or lost, and nothing says there can be none.

    One that was sent home is asked for again. What our audit report accuses is owed beside others.

    Args:
        settled_round: the one whose window is open.
    """
    about = (state.view.job_id, Role.PROVIDER, settled_round.seats[wanted.seat])
    if wanted.member != NO_HOLDER:
        about = (state.view.job_id, Role.VERIFIER, wanted.member)
    if state.entries.of(SendChallenge, *wanted.about) is not None:
        return False
    games = state.view.games.values()
    ours = (g for g in games if g.challenger == state.me and parties(g.claim) == about)
    return wanted.owed or all(g.outcome is GameOutcome.SENT_HOME for g in ours)


def one_at_a_time(state: State[S], wanted: list[AnyCommand]) -> tuple[AnyCommand, ...]:
    """What is wanted, of challenges only the next, and that when our games leave time for it.

    Who found more liars at once than it can play with at once would lose bonds to them. Those of
    one run are one. What our audit report accuses is brought in time all the same: it costs more
    not to.
    """
    challenges = [command for command in wanted if isinstance(command, SendChallenge)]
    chosen = {
        command.run
        for command in challenges
        if command.owed and state.now >= _last_time(state, command)
    }
    games = state.view.games.values()
    if not _is_under_way(state) and not any(_takes_our_time(state, game) for game in games):
        free = (command.run for command in challenges if not _has_failed(state, command.key))
        chosen.update(islice(free, 1))
    return tuple(o for o in wanted if not isinstance(o, SendChallenge) or o.run in chosen)


def _last_time(state: State[S], owed: SendChallenge) -> int:
    clock = state.view.settled[
        owed.round if owed.through_round is None else owed.through_round
    ].clock
    return clock.half - (clock.half - clock.audit_end) // LAST_PART


def _is_under_way(state: State[S]) -> bool:
    """Whether a challenge is being sent, or was and is not in the view yet."""
    ours = key_of(SendChallenge, "")
    sent = (key for key, hold in state.holds.items() if hold.until_block > state.block)
    return any(key.startswith(ours) for key in (*state.in_flight, *sent))


def _has_failed(state: State[S], key: str) -> bool:
    """Whether it is asked for again later; others do not wait for it."""
    hold = state.holds.get(key)
    return hold is not None and hold.failures > 0 and state.now < hold.until_time


def _takes_our_time(state: State[S], game: GameRecord) -> bool:
    """Whether a game has us make a step's trace yet, or we are late with a move of it.

    Who lets its own time run in a game keeps us from no other one.
    """
    claim, clock = game.claim, game.clock
    if clock is None or not game.deadline or state.me not in (claim.holder, game.challenger):
        return False
    if state.entries.of(SendMove, game.id, len(game.moves)) is not None:
        return False  # we have no move
    is_late = state.now >= clock.since + clock.move
    has_trace = any(isinstance(move, ev.Picked | ev.NodePicked) for move in game.moves)
    if state.me == (claim.holder if game.is_holders_turn else game.challenger):
        return is_late or not has_trace
    return not is_late and not has_trace


def valid_authors(
    view: JobView, settled_round: SettledRound, seat: SeatIndex
) -> Iterator[HolderId]:
    """Auditors that can be held to their *valid* of a seat: its work_tags are those of the shown
    key.

    It speaks of all rounds that the seat's state comes from. Wrong work_tags are no claim; they are
    contested.
    """
    revealed, key = settled_round.reveals[seat], settled_round.known_key(seat)
    if key is None:
        return
    work_tags = revealed.work_tags(key)
    for auditor, body in settled_round.opened_reports.items():
        author = view.verifiers[auditor]
        right = AuditEntry.valid(seat, author.account, work_tags)
        if body.of(seat) == right and not author.is_slashed:
            yield auditor
