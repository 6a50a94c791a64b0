"""Commits to what was trained, to one thing only; opens it; shows its key when that is owed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Never

import structlog

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.errors import StorageError
from atoll.protocol.checkpoint_commitments import CheckpointCommitments, key_message, key_of
from atoll.protocol.hashing import commitment
from atoll.protocol.obligations import Duty, Obligation
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import ZERO_DIGEST, Digest, Reveal, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.commands import ContractCall, Transaction
from atoll.service.duties.disagreement import disagreement
from atoll.service.entries import Done
from atoll.service.entries import key_of as name_of
from atoll.service.machine import AnyCommand, Decision
from atoll.storage.block_links import walk_dag
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.checkpoints import release
from atoll_node.behaviour import ProviderState
from atoll_node.duties.train import DoTrain, make_again, trained_of, training_of

if TYPE_CHECKING:
    from atoll.service.effects import Effects


log = structlog.get_logger("atoll.node.commit")
KEY_WAITS: Final = 8
"""Of the time in which keys are owed, the part that is let pass first."""
WAITS_PART: Final = 2
"""With so large a part of REVEAL left it is opened by a machine that could not train it again."""


@dataclass(frozen=True, slots=True)
class SendCommit(ContractCall):
    kind: ClassVar[str] = "commit.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    seat: SeatIndex
    data_seed: Digest
    commitment: Digest

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.commitment)

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.commit(view.job_id, self.seat, self.data_seed, self.commitment)

    async def perform(self, effects: Effects, view: JobView) -> Done[Never]:
        # The data seed is part of it: a reorg that changes the seed makes another round of it.
        guard = name_of(SendCommit, view.job_id, self.round, self.seat, self.data_seed)
        effects.context.journal.sign_once(guard, self.commitment)
        return await ContractCall.perform(self, effects, view)


@dataclass(frozen=True, slots=True)
class SendReveal(ContractCall):
    """Open what was committed to, whose update is served from now on: it has to be here whole.

    Attributes:
        training: what made it, and makes it again where the disk has lost some of it; None where
            this machine trains no more, or not yet: what is lost costs the pay, and no missed duty.
    """

    kind: ClassVar[str] = "reveal.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    seat: SeatIndex
    data_seed: Digest
    reveal: Reveal
    training: DoTrain | None

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.data_seed, self.reveal.salt)

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.reveal(view.job_id, self.seat, self.data_seed, self.reveal)

    async def perform(self, effects: Effects, view: JobView) -> Done[Never]:
        store = effects.context.store
        lost = await asyncio.to_thread(_lost_of, store, self.reveal.update_cid)
        if lost and self.training is not None:
            where = {"job": view.job_id, "round": self.round}
            log.warning("the update is damaged here, and made again", cause=lost, **where)
            segments = CheckpointCommitments.from_bytes(self.reveal.checkpoint_commitments).segments
            await make_again(effects, view, self.training, segments)
        sent = await ContractCall.perform(self, effects, view)
        await asyncio.to_thread(release, store, view.job_id, self.round)
        return sent


@dataclass(frozen=True, slots=True)
class SendKey(Transaction[Never]):
    """Show the key of a drawn seat's work tags; it follows from our account's."""

    kind: ClassVar[str] = "show-key.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    seat: SeatIndex
    data_seed: Digest

    async def perform(self, effects: Effects, view: JobView) -> Done[Never]:
        message = key_message(view.round_id(self.round), self.data_seed, self.seat)
        key = key_of(effects.context.sign(message))
        bond = view.require_terms().provider_bond
        call = effects.calls.show_key(view.job_id, self.round, key, bond)
        return await effects.transact(view, self, call)


def _lost_of(store: LocalStore, update: bytes) -> str:
    """What of an update is not here as it should be; empty where all is, or there is none."""
    if not update:
        return ""
    try:
        for _ in walk_dag(store.get_block, [Cid.from_bytes(update)]):
            pass
    except StorageError as error:  # the damaged block is gone now, and can be written again
        return str(error)
    return ""


# --- decisions ---


def decide_owed(state: ProviderState, owed: tuple[Obligation, ...]) -> Decision:
    """What the seat owes now, but for moves in games.

    Whose model is another commits to nothing: it disagrees.
    """
    if disagreement(state) is not None:
        owed = tuple(one for one in owed if one.duty is not Duty.COMMIT)
    made = {Duty.COMMIT: _commit, Duty.REVEAL: _reveal, Duty.KEY: _key}
    wanted = [made[one.duty](state, one) for one in owed if one.duty in made]
    commands = tuple(command for command in wanted if command is not None)
    names = ", ".join(f"{one.duty} of round {one.round}" for one in owed if one.duty in made)
    return Decision("owed", names or "owes nothing", commands)


def _commit(state: ProviderState, owed: Obligation) -> AnyCommand | None:
    view, behaviour, (seat,) = state.view, state.setup.behaviour, owed.seats
    trained, running = trained_of(state, seat), view.open
    if trained is None or running is None or behaviour.skips_commit(view):
        return None
    # In round 0 the chain does not know the model that everybody makes from the manifest.
    model = trained.model if view.settled else ZERO_DIGEST
    value = commitment(
        running.round_id, running.seed, seat, state.me, reveal=trained.reveal, model=model
    )
    value = behaviour.commit_override(view, value)
    return SendCommit(running.round, seat, running.seed, value)


def _reveal(state: ProviderState, owed: Obligation) -> AnyCommand | None:
    view, (seat,) = state.view, owed.seats
    trained, running = trained_of(state, seat), view.open
    if trained is None or running is None or state.setup.behaviour.skips_reveal(view):
        return None
    training = training_of(state, seat)
    left, whole = running.deadline - state.now, view.require_terms().reveal_seconds
    if training is None and left * WAITS_PART > whole:
        return None  # who has just started can make again what the disk has lost in a moment
    return SendReveal(running.round, seat, running.seed, trained.reveal, training)


def shown_from(view: JobView, settled_round: SettledRound) -> int:
    """Chain time from which a key is shown: earlier is a leak, and a reorg may bring that back."""
    return settled_round.clock.open_end + view.require_terms().key_seconds // KEY_WAITS


def _key(state: ProviderState, owed: Obligation) -> AnyCommand | None:
    """Shown some time after the last opening, so that no reorg makes a leak of it."""
    view, (seat,) = state.view, owed.seats
    settled_round = view.settled_round(owed.round)
    if settled_round is None or state.setup.behaviour.skips_key(view):
        return None
    if state.now < shown_from(view, settled_round):
        return None
    return SendKey(owed.round, seat, settled_round.record.seed)
