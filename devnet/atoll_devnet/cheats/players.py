"""What lying players of games compute, as their worker processes run it."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.numerics.trace.imports import TraceSources
from atoll.numerics.trace.program_tree import Program
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.games.moves import Move
from atoll.protocol.games.players import Question
from atoll.protocol.games.trees import MemoryTree, piece_tree, top
from atoll.protocol.types import Digest
from atoll.service.duties.replay_seat import DoReplay
from atoll.service.game_moves import move_by
from atoll.train.judge_task import JudgeTask, Position
from atoll.train.own_run import OwnRun, OwnTrace
from atoll.train.replay import SeatReplay
from atoll_devnet.cheats.verifiers import SHAM_MOVE, SHAM_REPLAY


@SHAM_REPLAY.runs
def sham_replay(command: DoReplay, model: bytes, store_dir: str) -> SeatReplay:
    """Says of every seat that its first segment is wrong."""
    del model, store_dir
    revealed = CheckpointCommitments.from_bytes(command.checkpoint_commitments).items[0].state
    return SeatReplay(work_tags=(), mismatch_at=0, own=Digest(_turned(revealed)), seconds=0.0)


@SHAM_MOVE.runs
def sham_move(task: JudgeTask, position: Position, store_dir: str) -> Move | Question | None:
    """A move by an honest run with one bit of one tensor turned over."""
    return move_by(task, position, store_dir, ShamRun)


class ShamRun(OwnRun):
    """Says of the segment's last step that it leads elsewhere."""

    @property
    def states(self) -> Sequence[Digest]:
        *others, last = super().states
        return (*others, Digest(_turned(last)))

    def _trace_of(self, step: int, token: int | None) -> OwnTrace:
        return ShamTrace(self._program, self._part, self._sources(step, token))


class ShamTrace(OwnTrace):
    """Has a bit of its middle node turned over."""

    def __init__(self, program: Program, part: int, sources: TraceSources) -> None:
        super().__init__(program, part, sources)
        leaves = [self._tree.leaf(i) for i in range(self._tree.count)]
        self._false = len(leaves) // 2
        leaves[self._false] = top(piece_tree(self._node(self._false)))
        self._tree = MemoryTree(leaves)

    def _node(self, node: int) -> bytes:
        data = super()._node(node)
        is_false = node == getattr(self, "_false", None)
        return _turned(data) if is_false else data


def _turned(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]
