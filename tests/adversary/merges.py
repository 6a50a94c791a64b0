"""The merges that adversaries are tried against: the project's own, and every rule by itself."""

from __future__ import annotations

from tests.adversary.run import Arrived, Merge

from atoll.bits.state import GlobalState
from atoll.law.manifest import CONTRIBUTOR_MEAN, SPARSE_CODECS
from atoll.merge.round import merge, seats_to_replay
from atoll.merge.rules import Rule


def default(arrived: Arrived) -> GlobalState:
    """The whole pipeline: whoever is on the full-replay list and lied is caught, then the rule."""
    replayed = seats_to_replay(arrived.state, arrived.updates, arrived.data_seed, arrived.manifest)
    found = arrived.colluders & set(replayed)
    return merge(
        arrived.state,
        {seat: data for seat, data in arrived.updates.items() if seat not in found},
        data_seed=arrived.data_seed,
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
            data_seed=arrived.data_seed,
            caught=arrived.caught,
            manifest=arrived.manifest.model_copy(update={"robust": robust}),
            replayed_in_full=arrived.updates,
        ).global_state

    return merged


def rule_alone(arrived: Arrived) -> GlobalState:
    """The manifest's rule without checks and replays."""
    return by_rule(arrived.manifest.robust.rule)(arrived)


def among_friends(arrived: Arrived) -> GlobalState:
    """What merges honest updates: their mean, of sparse ones that over contributors."""
    sparse = arrived.manifest.codec.kind in SPARSE_CODECS
    return by_rule(CONTRIBUTOR_MEAN if sparse else Rule.MEAN)(arrived)


OF_ANY_CODEC: dict[str, Merge] = {"default": default, "rule_alone": rule_alone}
OF_DENSE_CODECS: dict[str, Merge] = {
    name: by_rule(name) for rule in Rule for name in (str(rule), f"nnm_{rule}")
}
MERGES = OF_ANY_CODEC | OF_DENSE_CODECS
