"""What cheating providers decide. What they compute is in `training`, which the worker runs."""

from __future__ import annotations

from collections.abc import Mapping

from atoll.content.cid import DAG_CBOR, Cid
from atoll.law.views import JobView, ReportRecord
from atoll.law.words import Digest
from atoll_node.behaviour import ProviderBehaviour

_TRAINING = "atoll_devnet.cheats.training"


class Lazy(ProviderBehaviour):
    """Trains every second segment; the last one, which is always replayed, among them."""

    train_function = f"{_TRAINING}:lazy"


class SignFlip(ProviderBehaviour):
    """Pulls the merge the other way."""

    train_function = f"{_TRAINING}:sign_flip"


class Scale(ProviderBehaviour):
    """Outweighs everyone else."""

    train_function = f"{_TRAINING}:scale"


class ForgeMoments(ProviderBehaviour):
    """Moves the model honestly, and would have the next round open with moments that nobody has."""

    train_function = f"{_TRAINING}:forge_moments"


class PoisonSegment(ProviderBehaviour):
    """Plants text through one segment, and stands by it in a game; everything else is honest."""

    train_function = f"{_TRAINING}:poison_segment"
    judge_function = f"{_TRAINING}:poisoned_move"


class WrongData(ProviderBehaviour):
    """Claims the drawn batches and trains on others."""

    train_function = f"{_TRAINING}:wrong_data"


class StaleModel(ProviderBehaviour):
    """From round 1 on, starts from the model before the last merge and claims the new one."""

    train_function = f"{_TRAINING}:stale_model"

    def train_extra(self, view: JobView) -> tuple[bytes, ...]:
        before = view.state.round - 2
        return (view.settled[before].verdict.merged_cid,) if before >= 0 else ()


class Garbage(ProviderBehaviour):
    """Sends bytes that are no update."""

    train_function = f"{_TRAINING}:garbage_bytes"


class GarbageNan(ProviderBehaviour):
    """Sends NaNs under an honest header."""

    train_function = f"{_TRAINING}:garbage_nan"


class GarbageShapes(ProviderBehaviour):
    """Sends another model's update."""

    train_function = f"{_TRAINING}:garbage_shapes"


class Copy(ProviderBehaviour):
    """Round 0: another's commitment, which cannot be revealed. Later: another's last update."""

    train_function = f"{_TRAINING}:copied"

    def train_extra(self, view: JobView) -> tuple[bytes, ...]:
        if not view.settled:
            return ()
        reveals = view.settled[-1].reveals
        return tuple(reveals[seat].reveal.update_cid for seat in sorted(reveals)[:1])

    def skips_commit(self, view: JobView) -> bool:
        return self._repeats(view) and not view.work.commits

    def commit_override(self, view: JobView, commitment: Digest) -> Digest:
        commits = view.work.commits
        if not self._repeats(view) or not commits:
            return commitment
        return commits[min(commits)].commitment

    def skips_reveal(self, view: JobView) -> bool:
        return self._repeats(view)

    @staticmethod
    def _repeats(view: JobView) -> bool:
        """Whether there is nothing yet to copy but a commitment."""
        return not view.settled


class Withhold(ProviderBehaviour):
    """Serves nothing to anyone, and answers no challenge."""

    def may_serve(self, cid: Cid) -> bool:
        return False

    def answers(self, view: JobView, record: ReportRecord, now: int) -> bool:
        return False


class LateServe(ProviderBehaviour):
    """Serves all but its trace, which it shows to nobody until it must, and then on the chain."""

    def may_serve(self, cid: Cid) -> bool:
        return cid.codec != DAG_CBOR

    def answers(self, view: JobView, record: ReportRecord, now: int) -> bool:
        return True


class NoReveal(ProviderBehaviour):
    """Keeps its commitments to itself."""

    def skips_reveal(self, view: JobView) -> bool:
        return True


BEHAVIOURS: Mapping[str, type[ProviderBehaviour]] = {
    "lazy": Lazy,
    "sign-flip": SignFlip,
    "scale": Scale,
    "forge-moments": ForgeMoments,
    "poison-segment": PoisonSegment,
    "copy": Copy,
    "wrong-data": WrongData,
    "stale-model": StaleModel,
    "garbage": Garbage,
    "garbage-nan": GarbageNan,
    "garbage-shapes": GarbageShapes,
    "withhold": Withhold,
    "late-serve": LateServe,
    "no-reveal": NoReveal,
}
