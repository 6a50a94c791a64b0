"""Where a provider decides for itself. Honest by default; a subclass departs from that on purpose.

Rule of this file: every hook is a pure function of the view, so that a restarted provider departs
in the same way. Overriding one can cost the bond: see PROVIDER.md for what is expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from atoll.protocol.views import JobView
from atoll.protocol.words import Digest
from atoll.service.duties.game import PLAY
from atoll.service.machine import Setup, State


class ProviderBehaviour:
    """An honest provider.

    Attributes:
        train_function: the worker's function, `package.module:name`, with the signature of
            `atoll_node.tasks.train`.
        judge_function: the worker's function that makes our moves in games about our work, with
            the signature of `atoll.service.judging.next_move`.
        serve_function: the gateway's function that says of a CID whether others get the block;
            empty serves all.
    """

    train_function: str = "atoll_node.tasks:train"
    judge_function: str = PLAY
    serve_function: str = ""

    def may_join(self, view: JobView) -> bool:
        """Whether to take a seat now, everything else being ready."""
        return True

    def pick_place(self, view: JobView, free: Sequence[int]) -> int | None:
        """Which free seat to take; None leaves it to chance, so that two do not want one."""
        return None

    def train_extra(self, view: JobView) -> tuple[bytes, ...]:
        """CIDs to fetch before training and to hand to the worker function as `extra`."""
        return ()

    def commit_override(self, view: JobView, commitment: Digest) -> Digest:
        """What is committed instead of the commitment to our own work."""
        return commitment

    def skips_commit(self, view: JobView) -> bool:
        """Whether nothing is committed in this round."""
        return False

    def skips_reveal(self, view: JobView) -> bool:
        """Whether a commitment of this round is never revealed."""
        return False

    def skips_key(self, view: JobView) -> bool:
        """Whether the key of a drawn seat is not shown."""
        return False


ProviderState: TypeAlias = State[Setup[ProviderBehaviour]]
