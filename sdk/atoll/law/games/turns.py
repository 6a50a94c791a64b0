"""Whose turn it is in a game, by what was done last."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.law import events as ev


def is_holders_turn(moves: Sequence[object]) -> bool:
    """Whose turn it is in a game that has begun and is not over: the holder's or the other's."""
    return not moves or isinstance(moves[-1], ev.StepPicked | ev.Picked | ev.NodePicked)
