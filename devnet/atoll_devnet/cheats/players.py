"""What lying players of games compute, as their worker processes run it."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.numerics.trace.imports import Sources
from atoll.numerics.trace.program import Program
from atoll.protocol.games.claims import Move
from atoll.protocol.games.players import Question
from atoll.protocol.games.trees import MemoryTree, piece_tree, top
from atoll.protocol.leaves import Leaves
from atoll.protocol.words import Digest
from atoll.service.duties.replay import DoReplay
from atoll.service.judging import move_by
from atoll.train.judged import JudgeTask, Position
from atoll.train.judging import OwnRun, OwnTrace
from atoll.train.replay import SeatReplay
from atoll_devnet.cheats.verifiers import SHAM_MOVE, SHAM_REPLAY


@SHAM_REPLAY.runs
def sham_replay(command: DoReplay, model: bytes, store_dir: str) -> SeatReplay:
    """Says of every seat that its first segment is wrong."""
    del model, store_dir
    revealed = Leaves.from_bytes(command.leaves).items[0].state
    return SeatReplay(words=(), differs_at=0, own=Digest(_turned(revealed)), seconds=0.0)


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

    def _trace_of(self, step: int) -> OwnTrace:
        return ShamTrace(self._program, self._part, self._sources(step))


class ShamTrace(OwnTrace):
    """Has a bit of its middle node turned over."""

    def __init__(self, program: Program, part: int, sources: Sources) -> None:
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
