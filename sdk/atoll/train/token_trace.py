"""What the trace of one sampled token takes a side of a game: it is made in a game alone."""

from __future__ import annotations

from typing import Final, NamedTuple

from atoll.numerics.trace.build.generation_trace import make_generation
from atoll.protocol.games.trees import LAYER_LEVELS, height, pieces_of
from atoll.protocol.manifest import Manifest
from atoll.protocol.program import TraceTemplate

BYTE_SECONDS: Final = 2.5e-8
"""Of a trace, on one core: to compute it and to hash it (`bench/rl.py`)."""
RUNS: Final = 2
"""For its nodes' digests, and for the bytes of the node in dispute."""
_PART: Final = 0  # of no program


class TokenTrace(NamedTuple):
    """What a game's second search is about.

    Attributes:
        nodes, size: operations, and bytes of what they give.
        moves: of both sides, from `pickToken` to the proof, at most.
    """

    nodes: int
    size: int
    moves: int

    @property
    def seconds(self) -> float:
        """Of a side's own run."""
        return RUNS * self.size * BYTE_SECONDS


NO_TRACE: Final = TokenTrace(0, 0, 0)


def token_trace(manifest: Manifest) -> TokenTrace:
    """That of a job with a task, of a plain step; nothing of another."""
    if manifest.task is None:
        return NO_TRACE
    made, result = make_generation(manifest)
    nodes, templates = made.graph.templates(_PART, result)
    size = sum(template.size * template.count for template in templates)
    return TokenTrace(nodes, size, most_moves(nodes, templates))


def most_moves(nodes: int, templates: tuple[TraceTemplate, ...]) -> int:
    """`pickToken`, `postTrace`, `postLeaf` and `prove`; a pick a layer of the trace, with a reveal
    between two; and both for each layer of its largest node.
    """
    deepest = max(height(pieces_of(template.size)) for template in templates)
    return 4 + 2 * _layers(height(nodes)) - 1 + 2 * _layers(deepest)


def _layers(levels: int) -> int:
    return -(-levels // LAYER_LEVELS)
