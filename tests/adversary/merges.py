"""The merges that adversaries are tried against: the project's own, and every rule by itself."""

from __future__ import annotations

from tests.adversary.run import Arrived, Merge

from atoll.aggregate.merge import merge, seats_to_replay
from atoll.aggregate.rules import Rule
from atoll.train.state import GlobalState


def default(arrived: Arrived) -> GlobalState:
    """The whole pipeline: whoever is on the full-replay list and lied is caught, then the rule."""
    replayed = seats_to_replay(arrived.state, arrived.updates, arrived.manifest)
    found = arrived.colluders & set(replayed)
    return merge(
        arrived.state,
        {seat: data for seat, data in arrived.updates.items() if seat not in found},
        caught=arrived.caught + len(found),
        manifest=arrived.manifest,
        replayed_in_full=replayed,
    ).global_state


def by_rule(name: str) -> Merge:
    """A rule over whatever was sent: nobody is replayed or set aside for standing out."""

    def merged(arrived: Arrived) -> GlobalState:
        robust = arrived.manifest.robust.model_copy(update={"rule": name})
        return merge(
            arrived.state,
            arrived.updates,
            caught=arrived.caught,
            manifest=arrived.manifest.model_copy(update={"robust": robust}),
            replayed_in_full=arrived.updates,
        ).global_state

    return merged


MERGES: dict[str, Merge] = {
    "default": default,
    **{name: by_rule(name) for rule in Rule for name in (str(rule), f"nnm_{rule}")},
}
