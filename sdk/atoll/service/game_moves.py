"""What players of games run in the worker process: their own run, and the moves that follow of it.

Rule of this file: arguments and results are plain values and binary CIDs. A run is kept between two
moves because it takes long, and made anew where the process is another: it follows from the task.
Games are played at once, so runs of several are kept whole, as far as memory has room for the next,
and of the others their digests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from atoll.protocol.claims import ModelRoots, ProgramHeader
from atoll.protocol.games.moves import Move
from atoll.protocol.games.players import NothingDiffers, Question, attack, defend
from atoll.protocol.manifest import Manifest
from atoll.protocol.played import rebuilt
from atoll.protocol.types import Digest
from atoll.service.doctor.machine_checks import memory
from atoll.service.duties.challenge import SHOWN
from atoll.service.duties.game import PLAY
from atoll.storage.local import LocalStore
from atoll.train.judge_task import JudgeTask, Position
from atoll.train.memory_needs import verifier_bytes
from atoll.train.own_run import OwnRun, model_roots, program_header
from atoll.train.probe import pin_torch
from atoll.train.stored_states import read_global_state

MakeRun: TypeAlias = Callable[[JudgeTask, LocalStore], OwnRun]
MOST_RUNS: Final = 16
"""So many games, of as many liars, may take turns."""
_runs: dict[tuple[JudgeTask, str, MakeRun], OwnRun] = {}
"""The one that moved last is the last."""


@PLAY.runs
def next_move(task: JudgeTask, position: Position, store_dir: str) -> Move | Question | None:
    """The next move by an honest run; a question to be answered first; None where nothing differs.

    Raises:
        NotFound, CorruptBlock, MalformedState, MalformedDataset: something is missing or damaged.
    """
    return move_by(task, position, store_dir, OwnRun)


def move_by(
    task: JudgeTask, position: Position, store_dir: str, make: MakeRun
) -> Move | Question | None:
    """`next_move` by a run that is made in some way."""
    pin_torch()
    run = _run(task, store_dir, make)
    game = rebuilt(position.claim, position.began_at, position.moves)
    if position.is_holder:
        return defend(game, run)
    moves = attack(game, run)
    try:
        question = next(moves)
        for answer in position.answers:
            question = moves.send(answer)
    except StopIteration as stop:
        move: Move = stop.value
        return move
    except NothingDiffers:
        return None
    return question


def _run(task: JudgeTask, store_dir: str, make: MakeRun) -> OwnRun:
    key = (task, store_dir, make)
    own_run = _runs.pop(key, None) or make(task, LocalStore(store_dir))
    if not own_run.holds_states:
        _make_room(Manifest.from_bytes(task.manifest))
    _runs[key] = own_run
    return own_run


def _make_room(manifest: Manifest) -> None:
    """Has the runs that moved longest ago let go, until there is memory for one of this job.

    As much again stays free: runs are kept when their games are over, and other work goes on.
    """
    needed = 2 * verifier_bytes(manifest, 0)
    for run in _runs.values():
        if memory()[1] >= needed:
            break
        run.let_go()
    while len(_runs) >= MOST_RUNS:
        _runs.pop(next(iter(_runs))).let_go()


@SHOWN.runs
def shown(
    manifest: bytes, initial: Digest, model: bytes, store_dir: str
) -> tuple[ModelRoots, ProgramHeader]:
    """What evidence shows of a round's model, and of the program."""
    job = Manifest.from_bytes(manifest)
    state = read_global_state(job, model, LocalStore(store_dir))
    return model_roots(state), program_header(job, initial)
