"""Where a provider decides for itself. Honest by default; a subclass departs from that on purpose.

Rule of this file: every hook is a pure function of the view, so that a restarted provider departs
in the same way. Overriding one can cost the bond: see PROVIDER.md for what is expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from atoll.protocol.types import Digest
from atoll.protocol.views import JobView
from atoll.service.duties.game import PLAY, Play
from atoll.service.gateway_process import Serves
from atoll.service.machine import Setup, State
from atoll.service.task import Task

if TYPE_CHECKING:
    from atoll.train.round import TrainedRound
    from atoll.train.seat_task import TrainTask

Train: TypeAlias = "Task[[TrainTask, str, tuple[bytes, ...]], TrainedRound]"
"""A worker's function that trains: what, the store's folder, and what `train_extra` named."""
TRAIN: Final[Train] = Task("train-round.v1", "atoll_node.tasks")


class ProviderBehaviour:
    """An honest provider.

    Attributes:
        train_function: the worker's function that trains.
        judge_function: the worker's function that makes our moves in games about our work.
        serve_function: the gateway's function that says of a CID whether others get the block;
            None serves all.
    """

    train_function: Train = TRAIN
    judge_function: Play = PLAY
    serve_function: Serves | None = None

    def may_join(self, view: JobView) -> bool:
        """Whether to take a seat now, everything else being ready."""
        return True

    def pick_index(self, view: JobView, free: Sequence[int]) -> int | None:
        """Which free seat to take; None leaves it to chance, so that two do not want one."""
        return None

    def train_extra(self, view: JobView) -> tuple[bytes, ...]:
        """CIDs to fetch before training and to hand to the worker function as `extra`."""
        return ()

    def commit_override(self, view: JobView, commitment: Digest) -> Digest:
        """What is committed instead of the commitment to our own work."""
        return commitment

    def may_push(self, view: JobView) -> bool:
        """Whether our update is brought to those who need it; else they have to ask for it."""
        return True

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
