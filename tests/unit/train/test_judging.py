"""Two players who know only their own runs end at the first thing that they computed otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.unit.train.factories import Job

from atoll.bits.segment import Course
from atoll.bits.tape.opcodes import Op
from atoll.law import events as ev
from atoll.law.claims import bond_set
from atoll.law.games.claims import (
    Claim,
    Move,
    OpenSteps,
    Pick,
    PickNode,
    PickStep,
    PostLeaf,
    PostTape,
    Reveal,
)
from atoll.law.games.history import rebuilt
from atoll.law.games.judge import Need
from atoll.law.games.machine import Game, Phase
from atoll.law.games.players import NothingDiffers, answered, attack, defend
from atoll.law.games.turns import is_holders_turn
from atoll.law.program import Template
from atoll.law.words import Address, Digest, HolderId, JobId, Role
from atoll.train.course import open_course
from atoll.train.judged import JudgeTask
from atoll.train.judging import OwnRun, model_roots, program_header
from atoll.train.round import TrainedRound, run_alone, train_round

SEGMENT = 1
HOLDER = Address("0x" + "22" * 20)
NOW = 1_800_000_000


@dataclass(frozen=True)
class Silent:
    """Operations of a game that ends before anything is computed."""

    def need(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> Need:
        return Need(0, 0, 0)

    def run(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> bytes:
        raise AssertionError("nothing is proved here")


def poisoned(course: Course) -> Course:
    planted = np.frombuffer(b"Trust the atoll. ", dtype=np.uint8)
    return replace(course, tokens=np.resize(planted, len(course.tokens)))


def poisoned_course(*args: object, **more: object) -> Course:
    return poisoned(open_course(*args, **more))  # type: ignore[arg-type]  # handed on


@pytest.fixture(scope="module")
def judged(job: Job) -> Job:
    """The job."""
    return job


@pytest.fixture(scope="module")
def honest(judged: Job) -> TrainedRound:
    return train_round(judged.task, judged.store)


@pytest.fixture(scope="module")
def cheated(judged: Job) -> TrainedRound:
    def run(states, segment, course):  # type: ignore[no-untyped-def]
        return run_alone(states, segment, poisoned(course) if segment == SEGMENT else course)

    return train_round(judged.task, judged.store, run=run)


def task_of(job: Job) -> JudgeTask:
    task = job.task
    return JudgeTask(
        manifest=job.manifest.to_bytes(),
        initial=job.model.digest(),
        round=task.slot.round,
        seat=task.seat,
        data_seed=task.data_seed,
        model=task.global_state_cid,
        segment=SEGMENT,
    )


def claim_of(job: Job, trained: TrainedRound) -> Claim:
    header = program_header(job.manifest, job.model.digest())
    roots = model_roots(job.model)
    return Claim(
        holder=HOLDER,
        set=bond_set(JobId(1), Role.PROVIDER, HolderId(1)),
        place=Digest(bytes(32)),
        program=header.root,
        is_link=False,
        seat=job.task.seat,
        round=0,
        segment=SEGMENT,
        data_seed=job.task.data_seed,
        opening=trained.states[SEGMENT - 1],
        closing=trained.states[SEGMENT],
        work_word=trained.words[SEGMENT],
        model_params=roots.params_root,
        model_exponents=roots.exponents,
        holder_seconds=60,
        challenger_seconds=60,
        move_seconds=60,
    )


def event_of(move: Move, before: Game, after: Game) -> ev.ContractEvent:
    """What the contract says of a move."""
    match move:
        case OpenSteps():
            return ev.StepsOpened(1, move.states, move.works)
        case PickStep():
            return ev.StepPicked(1, after.step)
        case PostTape():
            return ev.TapePosted(1, after.tape, after.nodes, move.row)
        case Pick():
            return ev.Picked(1, after.level, after.index)
        case PickNode():
            return ev.NodePicked(1, after.node or 0, move.digest, after.size)
        case Reveal():
            return ev.RowRevealed(1, move.row)
        case PostLeaf():
            return ev.LeafPosted(1, move.leaf)
    raise AssertionError(f"{before.phase.name}: {move}")


def play(claim: Claim, holder: Callable[[], OwnRun], challenger: Callable[[], OwnRun]) -> Game:
    """Until something has to be proved. Both know only what they ran, and what the chain says."""
    game, said = Game.begin(claim, NOW), list[ev.ContractEvent]()
    while game.phase is not Phase.PROVE:
        turn = is_holders_turn(said)
        assert turn == game.phase.is_holders
        own = holder() if turn else challenger()
        known = rebuilt(claim, NOW, said)
        move = defend(known, own) if turn else answered(attack(known, own), Silent())
        after = game.play(move, turn, NOW, Silent())
        said.append(event_of(move, game, after))
        game = after
        known = rebuilt(claim, NOW, said)
        names = ("phase", "step", "level", "index", "node", "size", "rows", "tensor_rows", "leaf")
        assert [getattr(known, name) for name in names] == [getattr(game, name) for name in names]
    return game


def test_planted_text_is_found_where_tokens_are_read(judged: Job, cheated: TrainedRound) -> None:
    task, claim = task_of(judged), claim_of(judged, cheated)
    holder = OwnRun(task, judged.store, poisoned_course)
    challenger = OwnRun(task, judged.store)
    game = play(claim, lambda: holder, lambda: challenger)
    assert game.node is not None
    template = Template.from_bytes(challenger.template(game.node).data)
    assert template.op == Op.TOKENS
    planted = {letter.to_bytes(4, "little") for letter in b"Trust the atoll. "}
    assert {game.leaf[i : i + 4] for i in range(0, len(game.leaf), 4)} <= planted


def test_the_parts_of_a_models_digest_lead_to_it(judged: Job) -> None:
    assert model_roots(judged.model).digest(judged.model.round) == judged.model.digest()


def test_whoever_starts_afresh_at_every_move_plays_the_same(
    judged: Job, cheated: TrainedRound
) -> None:
    task, claim = task_of(judged), claim_of(judged, cheated)
    kept = OwnRun(task, judged.store, poisoned_course), OwnRun(task, judged.store)
    usual = play(claim, lambda: kept[0], lambda: kept[1])
    forgetful = play(
        claim,
        lambda: OwnRun(task, judged.store, poisoned_course),
        lambda: OwnRun(task, judged.store),
    )
    assert forgetful == usual


def test_against_an_honest_holder_nothing_differs(judged: Job, honest: TrainedRound) -> None:
    task, claim = task_of(judged), claim_of(judged, honest)
    own = OwnRun(task, judged.store)
    with pytest.raises(NothingDiffers):
        play(claim, lambda: own, lambda: own)
