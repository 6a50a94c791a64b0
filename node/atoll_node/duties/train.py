"""Trains the running round once; and the next one before it opens, from our own merge.

The next round's data seed is known when REVEAL is over, and its model follows from votes and
updates. Honest members will say what we have, so that not even their votes are waited for: whoever
has every update merges and trains on. Where votes or certificate name another model, that round is
trained anew.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from atoll.numerics.state_layout import max_state_bytes
from atoll.protocol.checkpoint_commitments import (
    CheckpointCommitments,
    key_hash,
    key_message,
    key_of,
    salt_message,
)
from atoll.protocol.holders import Holder
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import is_whole_enough
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.reset_periods import earlier_rounds, round_of
from atoll.protocol.types import Digest, Phase, Reveal, Role, RoundId, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.service import commands
from atoll.service.duties.apply_merge import (
    applied_of,
    applies,
    applying,
    own_model,
    part_of_train,
)
from atoll.service.duties.disagreement import disagreement
from atoll.service.duties.fetch_model import model_of_round
from atoll.service.duties.material import has_material, spec_of
from atoll.service.duties.merge import (
    DoMerge,
    checked_of,
    checking,
    foreseeing,
    foreseen_of,
    merging,
)
from atoll.service.duties.round_start import round_start_of
from atoll.service.duties.updates import decide_updates
from atoll.service.entries import Done, Entry
from atoll.service.machine import AnyCommand, Decision, by_view_and_entries
from atoll.service.task import Task
from atoll.storage.cid import Cid
from atoll.train.earlier import EarlierRound
from atoll_node.behaviour import ProviderState, Train
from atoll_node.deadlines import MARGIN_PART, deadline_file, tell

if TYPE_CHECKING:
    from atoll.service.effects import Effects

RUN_TRAINING: Final[Task[[DoTrain, str], Work]] = Task("run-training.v1", "atoll_node.tasks")


@dataclass(frozen=True, slots=True)
class Work:
    """What the worker made of a round: see `TrainedRound`; the update is in the store.

    Attributes:
        seconds: wall time in training steps.
        thread_seconds: of all that the training thread did for the round; of what it did before a
            restart, the steps alone.
        diverged: whether a step that was not finite ended it.
    """

    states: tuple[Digest, ...]
    work_tags: tuple[Digest, ...]
    update_root: Digest
    update_cid: bytes
    loss: float
    seconds: float
    thread_seconds: float
    diverged: bool = False


@dataclass(frozen=True, slots=True)
class Trained(Entry):
    """A trained round: what will be committed and revealed, salt included.

    Attributes:
        model: digest of the global state that it opened from.
        loss: mean of the last step trained, nats a token; 0.0 where no step was run.
        seconds: wall time in training steps.
        diverged: whether a step that was not finite ended it.
    """

    kind: ClassVar[str] = "trained.v1"
    round: int
    reveal: Reveal
    model: Digest
    loss: float
    seconds: float
    diverged: bool = False


@dataclass(frozen=True, slots=True)
class DoTrain(commands.Work[Trained]):
    """Train one round in the worker.

    Attributes:
        initial_state: CID of the round's global state, `round_start_digest` its digest.
        function: the worker function that trains.
        extra: CIDs to have in the store beforehand.
        earlier: the rounds that our state comes from, the oldest first, their CIDs once they are
            in the store.
        segments: how many it had when it was committed to; None for as many as there is time for.
    """

    kind: ClassVar[str] = "train.v1"
    round_id: RoundId
    seat: SeatIndex
    data_seed: Digest
    round_start_digest: Digest
    initial_state: bytes
    manifest: bytes
    function: Train
    extra: tuple[bytes, ...]
    earlier: tuple[EarlierRound, ...] = ()
    segments: int | None = None

    @property
    def about(self) -> tuple[object, ...]:
        """Everything that decides what is trained: a reorg that changes any of it trains anew."""
        return (self.round_id.round, self.seat, self.data_seed, self.round_start_digest)

    async def perform(self, effects: Effects, view: JobView) -> Done[Trained]:
        context, round_ = effects.context, self.round_id.round
        with context.store.holding():  # what the worker leaves is not pinned yet
            limit = max_state_bytes(Manifest.from_bytes(self.manifest))
            for cid in self.extra:
                await effects.fetch(view, round_, Cid.from_bytes(cid), limit)
            task = replace(self, earlier=await self._with_models(effects, view))
            call, due = RUN_TRAINING(task, effects.store_dir), _due(view, self.round_id.round)
            work = await effects.work(call, due=due)
            await effects.keep(view, round_, *filter(None, [work.update_cid]))
        where = (self.round_id, self.data_seed, self.seat)
        key = key_of(context.sign(key_message(*where)))
        reveal = Reveal(
            update_root=work.update_root,
            key_hash=key_hash(key),
            salt=key_of(context.sign(salt_message(*where))),
            checkpoint_commitments=CheckpointCommitments.of(
                work.states, work.work_tags, key
            ).to_bytes(),
            update_cid=work.update_cid,
        )
        steps = len(work.states) * Manifest.from_bytes(self.manifest).inner.segment
        context.journal.measure(view.job_id, round_, "train_seconds", work.seconds)
        context.journal.measure(view.job_id, round_, "thread_seconds", work.thread_seconds)
        context.journal.measure(view.job_id, round_, "trained_steps", steps)
        # Last: whatever failed before is asked for again, and has to end in time then, too.
        deadline_file(effects.store_dir, self.round_id, self.data_seed).unlink(missing_ok=True)
        measured = (work.loss, work.seconds, work.diverged)
        return Done(Trained(round_, reveal, self.round_start_digest, *measured))

    async def _with_models(self, effects: Effects, view: JobView) -> tuple[EarlierRound, ...]:
        fetched = list[EarlierRound]()
        for start in self.earlier:
            cid = await model_of_round(effects, view, start.round, self.manifest)
            fetched.append(replace(start, global_state_cid=cid))
        return tuple(fetched)


async def make_again(effects: Effects, view: JobView, training: DoTrain, segments: int) -> None:
    """Trains a round once more, whose update the disk has lost some of.

    Args:
        segments: how many were revealed, or the update would be another.
    """
    await replace(training, segments=segments).perform(effects, view)


def _due(view: JobView, round: RoundIndex) -> int:
    """By when a round's work is owed, unix seconds; of one that has not opened, about."""
    running = view.open
    if running is not None and running.round == round:
        return running.deadline
    return view.block.timestamp + view.require_terms().train_seconds


@dataclass(frozen=True, slots=True)
class DeadlineTold(Entry):
    """The worker knows when the round has to end; another process has to be told anew."""

    kind: ClassVar[str] = "deadline-told.v1"
    outlives_start: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class TellDeadline(commands.Work[DeadlineTold]):
    """Tell the worker, which may have begun before the round was open.

    Attributes:
        until: unix seconds of the chain.
    """

    kind: ClassVar[str] = "tell-deadline.v1"
    round_id: RoundId
    data_seed: Digest
    until: int

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round_id.round, self.data_seed, self.until)

    async def perform(self, effects: Effects, view: JobView) -> Done[DeadlineTold]:
        file = deadline_file(effects.store_dir, self.round_id, self.data_seed)
        now = (await effects.context.chain.head()).timestamp  # this may have waited
        await asyncio.to_thread(tell, file, self.until - now)
        return Done(DeadlineTold())


# --- decisions ---


class RoundStart(NamedTuple):
    """What a round is trained from."""

    round: RoundIndex
    data_seed: Digest
    digest: Digest
    cid: bytes


def seat_of(state: ProviderState) -> SeatIndex | None:
    """Our seat in the round that runs, or that opens next."""
    held: Holder | None = state.view.standing(state.me)
    if held is None or held.role is not Role.PROVIDER:
        return None
    running = state.view.open
    is_in = held.id in running.seats.values() if running else held.counts_in(state.view.round)
    return SeatIndex(held.index) if is_in else None


def decide_train(state: ProviderState) -> Decision:
    """Trains the running round; once that is revealed, the next one."""
    view, seat, spec = state.view, seat_of(state), spec_of(state.entries)
    initial_state = _running(state, seat) or _next(state)
    if disagreement(state) is not None and not owes_reveal(state, seat):
        return Decision("train", "trains nothing from a model that is not our own merge's")
    if seat is None or spec is None or initial_state is None or not has_material(state):
        return Decision("train", f"nothing to train from, or no seat ({view.phase.name})")
    about = (initial_state.round, seat, initial_state.data_seed, initial_state.digest)
    if state.entries.of(DoTrain, *about) is not None:
        return Decision("train", f"round {initial_state.round} is trained")
    command = _training(state, seat, initial_state, spec)
    wanted = (*_deadline(state, command), command)
    return Decision("train", f"trains round {initial_state.round}", wanted)


def training_of(state: ProviderState, seat: SeatIndex) -> DoTrain | None:
    """What trains the running round, whether it was trained already or not."""
    initial_state, running, spec = round_start_of(state), state.view.open, spec_of(state.entries)
    if initial_state is None or running is None or spec is None:
        return None
    start = RoundStart(running.round, running.seed, initial_state.digest, initial_state.cid)
    return _training(state, seat, start, spec)


def _training(
    state: ProviderState, seat: SeatIndex, initial_state: RoundStart, spec: bytes
) -> DoTrain:
    behaviour = state.setup.behaviour
    return DoTrain(
        state.view.round_id(initial_state.round),
        seat,
        initial_state.data_seed,
        initial_state.digest,
        initial_state.cid,
        spec,
        behaviour.train_function,
        behaviour.train_extra(state.view),
        _earlier(state, initial_state.round, seat, spec),
    )


def _earlier(
    state: ProviderState, round: RoundIndex, seat: SeatIndex, spec: bytes
) -> tuple[EarlierRound, ...]:
    """The rounds of the reset period since we opened publicly; their models are fetched when it
    begins.
    """
    view, held = state.view, state.view.standing(state.me)
    if held is None:
        return ()
    rounds = earlier_rounds(view, Manifest.from_bytes(spec), round, seat, held.id)
    starts = list[EarlierRound]()
    for index in rounds:
        before = round_of(view, index)
        assert before is not None  # it was revealed
        seed = before.seed if isinstance(before, OpenRound) else before.record.seed
        starts.append(EarlierRound(index, seed, b""))
    return tuple(starts)


def _deadline(state: ProviderState, training: DoTrain) -> tuple[TellDeadline, ...]:
    """By when the running round's training has to end, once that is known."""
    running = state.view.open
    if running is None or running.seed != training.data_seed or running.phase is not Phase.TRAIN:
        return ()
    until = running.deadline - state.view.require_terms().train_seconds // MARGIN_PART
    told = TellDeadline(training.round_id, training.data_seed, until)
    return () if state.entries.of(TellDeadline, *told.about) is not None else (told,)


def decide_merge(state: ProviderState) -> Decision:
    """Merges ourselves, to train on without waiting for a certificate, and to hold it against it.

    A certificate that came first is still looked at: whoever signs fast would not be found else.
    """
    view = state.view
    if applies(state) and seat_of(state) is not None and applying(state) is not None:
        return _decide_applied(state)
    command = None
    if not view.is_last(view.round) and not applies(state):
        command = merging(state) or foreseeing(state)
    if command is None and view.phase is not Phase.CLOSED and _was_seated(state):
        command = checking(state)
    if command is None or seat_of(state) is None:
        return Decision("merge", "nothing to merge for")
    if state.entries.of(type(command), *command.about) is not None:
        return Decision("merge", f"round {command.round_id.round} is merged")
    return Decision("merge", f"merges round {command.round_id.round}", (command,))


def _decide_applied(state: ProviderState) -> Decision:
    """Applies the last merge; merges where that cannot be applied, or not in time."""
    command, again = applying(state), checking(state)
    assert command is not None and again is not None  # nothing is applied else
    settled, applied = f"round {again.round_id.round}", applied_of(state)
    is_merged = state.entries.of(DoMerge, *again.about) is not None
    if own_model(state) or (applied is not None and is_merged):
        return Decision("merge", f"{settled} is merged")
    wanted: list[AnyCommand] = [] if applied is not None else [command]
    # Who waited for longer could neither merge nor train in the time that is left.
    if not is_merged and (applied is not None or part_of_train(state)):
        wanted.append(again)
    return Decision("merge", f"applies the merge of {settled}", tuple(wanted))


def decide_fetching(state: ProviderState) -> Decision:
    """Gets the running round's updates, unless their merge is applied."""
    if applies(state):
        return Decision("updates", "their merge is applied")
    return decide_updates(state)


def _was_seated(state: ProviderState) -> bool:
    """Whether we took part in the newest settled round, so that its updates are here."""
    held = state.view.standing(state.me)
    settled_round = state.view.settled[-1] if state.view.settled else None
    return (
        held is not None and settled_round is not None and held.id in settled_round.seats.values()
    )


def owes_reveal(state: ProviderState, seat: SeatIndex | None) -> bool:
    """Whether the running round waits for what we committed to."""
    running = state.view.open
    if running is None or seat not in running.commits or seat in running.reveals:
        return False
    return running.phase in {Phase.TRAIN, Phase.REVEAL}


def trained_of(state: ProviderState, seat: SeatIndex) -> Trained | None:
    """What training of the running round left, once it is done."""
    initial_state = round_start_of(state)
    running = state.view.open
    if initial_state is None or running is None:
        return None
    return state.entries.of(DoTrain, running.round, seat, running.seed, initial_state.digest)


@by_view_and_entries
def is_hopeless(state: ProviderState) -> bool:
    """Whether our training diverged, too early to be merged, and nothing has been merged since.

    Where all diverge the next round opens with the same model: a second such round running would be
    a missed duty, and who joined once more would train it for nothing.
    """
    view = state.view
    if view.is_last(view.round):
        return False
    whole = view.require_terms().segments
    for trained in state.entries.all_of(Trained):
        segments = CheckpointCommitments.from_bytes(trained.reveal.checkpoint_commitments).segments
        is_short = trained.diverged and not is_whole_enough(segments, whole)
        if is_short and not any(
            settled_round.verdict.merged for settled_round in view.settled[trained.round :]
        ):
            return True
    return False


def _running(state: ProviderState, seat: SeatIndex | None) -> RoundStart | None:
    """What runs, until we have revealed it: who lost its journal trains to the same checkpoint
    commitments."""
    running = state.view.open
    if running is None or state.now >= running.deadline:
        return None
    if running.phase is not Phase.TRAIN and not owes_reveal(state, seat):
        return None
    initial_state, merged = round_start_of(state), checked_of(state)
    if initial_state is not None:
        return RoundStart(running.round, running.seed, initial_state.digest, initial_state.cid)
    applied = applied_of(state)
    if applied is not None and applied.cid:
        return RoundStart(running.round, running.seed, running.model, applied.cid)
    if merged is None or merged.verdict.state != running.model:
        return None
    # What we began before the certificate came goes on while the model is looked at.
    return RoundStart(running.round, running.seed, merged.verdict.state, merged.verdict.cid)


def _next(state: ProviderState) -> RoundStart | None:
    """The round after the one that merges, as far as we know it."""
    running, merged = state.view.open, foreseen_of(state)
    if running is None or merged is None or not any(running.next_seed):
        return None
    if state.view.is_last(running.round):
        return None
    verdict = merged.verdict
    round = RoundIndex(running.round + 1)
    return RoundStart(round, running.next_seed, verdict.state, verdict.cid)
