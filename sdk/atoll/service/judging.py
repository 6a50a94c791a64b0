"""What players of games run in the worker process: their own run, and the moves that follow of it.

Rule of this file: arguments and results are plain values and binary CIDs. A run is kept between two
moves because it takes long, and made anew where the process is another: it follows from the task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from atoll.bits.codec.dither import DitherKey
from atoll.bits.link import close_round
from atoll.bits.opening import open_round
from atoll.bits.pieces import root_of_update
from atoll.bits.segment import run_segment
from atoll.bits.state import SeatState
from atoll.content.local import LocalStore
from atoll.errors import ProtocolError
from atoll.law.claims import ModelRoots, ProgramHeader
from atoll.law.games.claims import Move
from atoll.law.games.history import rebuilt
from atoll.law.games.players import NothingDiffers, Question, attack, defend
from atoll.law.manifest import Manifest
from atoll.law.trace import LeafKind, TraceDocument
from atoll.law.words import Digest, Reveal
from atoll.train.course import open_course
from atoll.train.judged import JudgeTask, Position, ReplayedRound
from atoll.train.judging import OwnRun, model_roots, program_header
from atoll.train.probe import configure_native
from atoll.train.round import read_global_state

MakeRun: TypeAlias = Callable[[JudgeTask, LocalStore], OwnRun]
_runs: dict[tuple[JudgeTask, str, MakeRun], OwnRun] = {}


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
    configure_native()
    own = _run(task, store_dir, make)
    game = rebuilt(position.claim, position.began_at, position.moves)
    if position.is_holder:
        return defend(game, own)
    moves = attack(game, own)
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
    if key not in _runs:
        _runs.clear()  # one is enough: a player plays one game at a time
        _runs[key] = make(task, LocalStore(store_dir))
    return _runs[key]


def shown(
    manifest: bytes, initial: Digest, model: bytes, store_dir: str
) -> tuple[ModelRoots, ProgramHeader]:
    """What evidence shows of a round's model, and of the program."""
    job = Manifest.from_bytes(manifest)
    state = read_global_state(job, model, LocalStore(store_dir))
    return model_roots(state), program_header(job, initial)


def replay_round(task: JudgeTask, document: bytes, reveal: Reveal, store_dir: str) -> ReplayedRound:
    """Runs a seat's round again, from the round's model and the moments that were merged with it.

    Args:
        task: of the round; its state is not read.
        document: the trace.

    Raises:
        NotFound, CorruptBlock, MalformedState, MalformedDataset: something is missing or damaged.
        ProtocolError: no game is about what differs.
    """
    configure_native()
    job, store = Manifest.from_bytes(task.manifest), LocalStore(store_dir)
    model = read_global_state(job, task.model, store, outer=False)
    states = [open_round(job, task.round, model, None)]
    course = open_course(job, task.data_seed, task.seat, task.round, store)
    trace = TraceDocument.from_bytes(document)
    is_short, last = reveal.steps < job.inner.steps, len(trace.leaves) - 1
    for segment, leaf in enumerate(trace.leaves[: job.segments]):
        done = run_segment(states[-1], segment, course)
        said = (leaf.kind, leaf.state_digest, leaf.work_word)
        if (done.kind, done.roots.digest(), done.work_word) != said:
            if is_short and segment == last and leaf.kind is not LeafKind.OK:
                raise ProtocolError(f"segment {segment} is said to diverge: no game is about that")
            return ReplayedRound(segment, False, stored(states[-1], store))
        states = [done.state]
    closing = states[-1]
    if is_short:  # it has no update
        return ReplayedRound(None, False, b"")
    if len(trace.leaves) != job.segments:  # nobody can show a link of such a trace
        return ReplayedRound(last, True, stored(closing, store))
    update, _ = close_round(job, model, closing, DitherKey(task.data_seed, task.seat))
    carried = done.roots.optimiser_root  # nothing reads it yet, but the claim names it
    if (root_of_update(update), carried) != (reveal.update_root, reveal.optimiser_root):
        return ReplayedRound(last, True, stored(closing, store))
    return ReplayedRound(None, False, b"")


def stored(state: SeatState, store: LocalStore) -> bytes:
    """CID of the state, which is in the store then."""
    return store.add_pieces(state.pieces()).to_bytes()
