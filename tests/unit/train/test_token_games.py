"""A game about a generated token goes on in that token's own trace, whoever is wrong."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest
from tests.unit.train.factories import task_of as seat_task_of
from tests.unit.train.plays import play
from tests.unit.train.test_judging import HOLDER, SEGMENT
from tests.unit.train.test_rollouts import rl_manifest

from atoll.numerics.segment import Course
from atoll.numerics.state import SeatState
from atoll.numerics.step import StepInput
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.claims import bond_set
from atoll.protocol.games.game_machine import Game, GamePhase, result_of
from atoll.protocol.games.moves import Claim
from atoll.protocol.games.players import NothingDiffers
from atoll.protocol.hashing import keccak256
from atoll.protocol.program import TraceTemplate
from atoll.protocol.types import Digest, HolderId, JobId, Role, RoundIndex
from atoll.storage.local import LocalStore
from atoll.train.course import open_course
from atoll.train.earlier import EarlierRound
from atoll.train.initial_model import open_initial_state
from atoll.train.judge_task import JudgeTask
from atoll.train.own_run import OwnRun, model_roots, program_header
from atoll.train.round import train_round
from atoll.train.seat_task import TrainTask


class EditedCourse(Course):
    """The last token that the step's first sequence samples is another."""

    def input_of(self, step: int, begun: SeatState) -> StepInput:
        given = super().input_of(step, begun)
        made = given.rollouts
        assert made is not None
        at = int((made.targets[0] >= 0).nonzero().max())
        ids, targets = made.ids.clone(), made.targets.clone()
        ids[0, at + 1] = targets[0, at] = ids[0, at + 1] ^ 1
        edited = replace(made, ids=ids, targets=targets)
        batch = edited.micro_batches(self.manifest.inner.micro_batch)
        return replace(given, batch=batch, rollouts=edited)


def edited_course(*args: object, **more: object) -> Course:
    course = open_course(*args, **more)  # type: ignore[arg-type]  # handed on
    return EditedCourse(**{field.name: getattr(course, field.name) for field in fields(Course)})


@dataclass(frozen=True)
class Disputed:
    """A job that samples, and a seat's task in its first round."""

    store: LocalStore
    seat: TrainTask
    task: JudgeTask

    def claim(self, run: OwnRun, *, is_update_proof: bool = False) -> Claim:
        """What whoever has that run says of its segment, or of its update."""
        manifest, initial = self.seat.manifest, self.task.initial
        model = open_initial_state(manifest, self.store)
        roots = model_roots(model)
        before = replace(self.seat, segments=SEGMENT + is_update_proof)
        done = train_round(before, self.store)
        claim = Claim(
            holder=HOLDER,
            set=bond_set(JobId(1), Role.PROVIDER, HolderId(1)),
            position=Digest(bytes(32)),
            program=program_header(manifest, initial).root,
            is_update_proof=is_update_proof,
            seat=self.seat.seat,
            round=0,
            segment=SEGMENT,
            data_seed=self.seat.data_seed,
            initial_state=done.states[-1],
            model_params=roots.params_root,
            model_exponents=roots.exponents,
            holder_seconds=60,
            challenger_seconds=60,
            move_seconds=60,
        )
        if is_update_proof:
            return replace(claim, update_root=done.update_root)
        return replace(claim, closing=run.states[-1], work_tag=keccak256(run.works))


@pytest.fixture
def disputed(tmp_path: Path) -> Disputed:
    store = LocalStore(tmp_path / "store", sync=False)
    manifest = rl_manifest(store)
    model = open_initial_state(manifest, store)
    seat = seat_task_of(manifest, store.add_bytes(model.to_bytes()).to_bytes())
    task = JudgeTask(
        job=JobId(1),
        manifest=manifest.to_bytes(),
        initial=model.digest(),
        round=seat.round_id.round,
        seat=seat.seat,
        data_seed=seat.data_seed,
        model=seat.global_state_cid,
        segment=SEGMENT,
    )
    return Disputed(store, seat, task)


def op_of(run: OwnRun, game: Game) -> int:
    assert game.node is not None
    return TraceTemplate.from_bytes(run.template(game.node).data).op


def test_an_edited_token_is_disputed_in_its_own_trace(disputed: Disputed) -> None:
    """The holder's own pass gives the sampler's token, so its trace does not end with the other."""
    holder = OwnRun(disputed.task, disputed.store, edited_course)
    challenger = OwnRun(disputed.task, disputed.store)
    claim = disputed.claim(holder)
    game = play(claim, lambda: holder, lambda: challenger)
    assert game.phase is GamePhase.PROVE and game.token is None
    assert op_of(challenger, game) == Op.GENERATED
    manifest = disputed.seat.manifest
    tokens = holder.trace(game.step).read(game.node or 0, 0, 16 * (manifest.model.seq + 1))
    own = challenger.trace(game.step).read(game.node or 0, 0, len(tokens))
    first = next(i for i, (a, b) in enumerate(zip(tokens, own, strict=True)) if a != b) // 16
    trace = challenger.token_trace(game.step, first)
    last = trace.tree.count - 1
    assert trace.read(last, 0, 16) == own[16 * first :][:16]
    assert holder.token_trace(game.step, first).read(last, 0, 16) != tokens[16 * first :][:16]


def test_against_an_honest_holder_nothing_differs(disputed: Disputed) -> None:
    own = OwnRun(disputed.task, disputed.store)
    claim = disputed.claim(own)
    with pytest.raises(NothingDiffers):
        play(claim, lambda: own, lambda: own)


def test_an_update_has_the_ids_of_the_rounds_steps(disputed: Disputed) -> None:
    task = replace(disputed.task, is_update_proof=True)
    own = OwnRun(task, disputed.store)
    claim = disputed.claim(own, is_update_proof=True)
    with pytest.raises(NothingDiffers):
        play(claim, lambda: own, lambda: own)
    trace = own.trace(0)
    update = train_round(disputed.seat, disputed.store).update
    assert trace.read(trace.tree.count - 1, 0, len(update)) == update


def test_a_carried_rounds_first_step_ends_its_own_trace(tmp_path: Path) -> None:
    """Its state's digest begins with no ids, whatever the round before sampled."""
    store = LocalStore(tmp_path / "store", sync=False)
    manifest = rl_manifest(store, codec={"kind": "two_bit", "feedback": "0.9"})
    assert not manifest.opens_publicly(RoundIndex(1))
    model = open_initial_state(manifest, store)
    cids = [store.add_bytes(replace(model, round=r).to_bytes()).to_bytes() for r in range(2)]
    seat = seat_task_of(manifest, cids[0])
    task = JudgeTask(
        job=JobId(1),
        manifest=manifest.to_bytes(),
        initial=model.digest(),
        round=RoundIndex(1),
        seat=seat.seat,
        data_seed=seat.data_seed,
        model=cids[1],
        segment=0,
        earlier=(EarlierRound(RoundIndex(0), seat.data_seed, cids[0]),),
    )
    own = OwnRun(task, store)
    size = len(own.works) // len(own.states)
    trace = own.trace(0)
    assert trace.roots.buffers_root != bytes(32)  # of the round before
    last = trace.tree.leaf(trace.tree.count - 1)
    assert last == result_of(own.states[0], own.works[:size])
