"""What cheating providers decide. What they compute is in `training`, which the worker runs.

Rule of this file: a class decides one thing, and only that, so that cheats combine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from atoll.protocol.types import Phase
from atoll.protocol.views import JobView
from atoll.service.duties.game import Play
from atoll.service.gateway_process import Serves
from atoll.service.task import Task
from atoll_devnet.cheats import serving
from atoll_node.behaviour import ProviderBehaviour, Train

_TRAINING: Final = "atoll_devnet.cheats.training"
_ROLLOUTS: Final = "atoll_devnet.cheats.rollouts"


# --- what is trained, and what is sent of it ---


class Lazy(ProviderBehaviour):
    """Guesses half of its leaves; an auditor runs all of them."""

    train_function: Train = Task("cheat-lazy.v1", _TRAINING)


class Hollow(ProviderBehaviour):
    """Has a second's work look like a round's."""

    train_function: Train = Task("cheat-hollow.v1", _TRAINING)


class PoisonSegment(ProviderBehaviour):
    """Plants text through one segment, and stands by it in a game; everything else is honest."""

    train_function: Train = Task("cheat-poison-segment.v1", _TRAINING)
    judge_function: Play = Task("cheat-poisoned-move.v1", _TRAINING)


class PoisonResetPeriod(ProviderBehaviour):
    """Hopes not to be drawn in the one round that is false, which the later ones come from."""

    train_function: Train = Task("cheat-poison-reset-period.v1", _TRAINING)


class WrongData(ProviderBehaviour):
    """Claims the drawn batches and trains on others."""

    train_function: Train = Task("cheat-wrong-data.v1", _TRAINING)


class StaleModel(ProviderBehaviour):
    """From round 1 on, starts from the model before the last merge and claims the new one."""

    train_function: Train = Task("cheat-stale-model.v1", _TRAINING)

    def train_extra(self, view: JobView) -> tuple[bytes, ...]:
        is_running = view.phase is Phase.TRAIN
        trained = view.round if is_running else view.round + 1
        before = trained - 2  # the round whose merge the one before the trained one opened with
        return (view.settled[before].verdict.cid,) if before >= 0 else ()


class Copy(ProviderBehaviour):
    """Sends what another seat sent a round ago: nothing of this round is like it."""

    train_function: Train = Task("cheat-copied.v1", _TRAINING)

    def train_extra(self, view: JobView) -> tuple[bytes, ...]:
        if not view.settled:
            return ()
        reveals = view.settled[-1].reveals
        return tuple(reveals[seat].reveal.update_cid for seat in sorted(reveals)[:1])


class Partial(ProviderBehaviour):
    """Would hold its seat for ever for a part of the work."""

    train_function: Train = Task("cheat-partial.v1", _TRAINING)


class Alternate(ProviderBehaviour):
    """Would have rounds of nothing paid, without being short twice running."""

    train_function: Train = Task("cheat-alternate.v1", _TRAINING)


class WrongWorkTags(ProviderBehaviour):
    """Would have honest auditors lose their fees and slots."""

    train_function: Train = Task("cheat-wrong-work-tags.v1", _TRAINING)


class PickRollouts(ProviderBehaviour):
    """Learns from luckier rollouts than its draws."""

    train_function: Train = Task("cheat-pick-rollouts.v1", _ROLLOUTS)


class StalePolicy(ProviderBehaviour):
    """Saves what it costs to generate by parameters that move."""

    train_function: Train = Task("cheat-stale-policy.v1", _ROLLOUTS)


class RewardOne(ProviderBehaviour):
    """Has every completion learned, whatever it is worth."""

    train_function: Train = Task("cheat-reward-one.v1", _ROLLOUTS)


class EditRollouts(ProviderBehaviour):
    """Plants a token a step."""

    train_function: Train = Task("cheat-edit-rollouts.v1", _ROLLOUTS)


class Infinite(ProviderBehaviour):
    """Has who replays meet rows that are not finite."""

    train_function: Train = Task("cheat-infinite.v1", _ROLLOUTS)


class Endless(ProviderBehaviour):
    """Learns from answers that are longer than the task has them."""

    train_function: Train = Task("cheat-endless.v1", _ROLLOUTS)


class NoIds(ProviderBehaviour):
    """Has its auditors generate anew."""

    train_function: Train = Task("cheat-no-ids.v1", _ROLLOUTS)


class WrongIds(ProviderBehaviour):
    """Has its auditors check in vain, and generate anew."""

    train_function: Train = Task("cheat-wrong-ids.v1", _ROLLOUTS)


class SignFlip(ProviderBehaviour):
    """Pulls the merge the other way."""

    train_function: Train = Task("cheat-sign-flip.v1", _TRAINING)


class Flip5(ProviderBehaviour):
    """Pulls the merge the other way, harder than it bears from more than f."""

    train_function: Train = Task("cheat-flip5.v1", _TRAINING)


class Scale(ProviderBehaviour):
    """Outweighs everyone else."""

    train_function: Train = Task("cheat-scale.v1", _TRAINING)


class Noise(ProviderBehaviour):
    """Moves the model nowhere."""

    train_function: Train = Task("cheat-noise.v1", _TRAINING)


class Omniscient(ProviderBehaviour):
    """Runs everybody's round, which follows from public data, and hides among the results."""

    train_function: Train = Task("cheat-omniscient.v1", _TRAINING)


class ForgedMoments(ProviderBehaviour):
    """Would have the next round begin by going back."""

    train_function: Train = Task("cheat-forged-moments.v1", _TRAINING)


class ForgedSecondMoments(ProviderBehaviour):
    """Would have the next round begin with steps far too large."""

    train_function: Train = Task("cheat-forged-second-moments.v1", _TRAINING)


class NanMoments(ProviderBehaviour):
    """Would have the next round begin with nothing finite."""

    train_function: Train = Task("cheat-nan-moments.v1", _TRAINING)


class Garbage(ProviderBehaviour):
    """Sends bytes that are no update."""

    train_function: Train = Task("cheat-garbage-bytes.v1", _TRAINING)


class GarbageShapes(ProviderBehaviour):
    """Sends another model's update."""

    train_function: Train = Task("cheat-garbage-shapes.v1", _TRAINING)


# --- what is served ---


class BringsNothing(ProviderBehaviour):
    """Whoever needs its update has to ask for it."""

    def may_push(self, view: JobView) -> bool:
        return False


class Withhold(BringsNothing):
    """Serves nothing to anyone."""

    serve_function: Serves | None = serving.NOTHING


class Stall(BringsNothing):
    """Keeps whoever asks waiting."""

    serve_function: Serves | None = serving.STALLED


class Drip(BringsNothing):
    """Serves, but later than most can wait."""

    serve_function: Serves | None = serving.DRIPPED


class HalfServed(BringsNothing):
    """Would part the committee over what is there."""

    serve_function: Serves | None = serving.HALF


# --- what is said on the chain ---


class NoReveal(ProviderBehaviour):
    """Keeps its commitments to itself."""

    def skips_reveal(self, view: JobView) -> bool:
        return True


class NoKey(ProviderBehaviour):
    """Would have nobody's digests scored."""

    def skips_key(self, view: JobView) -> bool:
        return True


BEHAVIOURS: Mapping[str, type[ProviderBehaviour]] = {
    "lazy": Lazy,
    "hollow": Hollow,
    "poison-segment": PoisonSegment,
    "poison-reset-period": PoisonResetPeriod,
    "wrong-data": WrongData,
    "stale-model": StaleModel,
    "copy": Copy,
    "partial": Partial,
    "alternate": Alternate,
    "wrong-work-tags": WrongWorkTags,
    "pick-rollouts": PickRollouts,
    "stale-policy": StalePolicy,
    "reward-one": RewardOne,
    "edit-rollouts": EditRollouts,
    "infinite": Infinite,
    "endless": Endless,
    "no-ids": NoIds,
    "wrong-ids": WrongIds,
    "sign-flip": SignFlip,
    "flip5": Flip5,
    "scale": Scale,
    "noise": Noise,
    "omniscient": Omniscient,
    "forged-moments": ForgedMoments,
    "forged-second-moments": ForgedSecondMoments,
    "nan-moments": NanMoments,
    "garbage": Garbage,
    "garbage-shapes": GarbageShapes,
    "withhold": Withhold,
    "stall": Stall,
    "drip": Drip,
    "half-served": HalfServed,
    "no-reveal": NoReveal,
    "no-key": NoKey,
}
