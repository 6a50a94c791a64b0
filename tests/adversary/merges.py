"""The merges that adversaries are tried against: the project's own, and every rule by itself."""

from __future__ import annotations

from dataclasses import replace

from tests.adversary.run import Arrived, Merge
from tests.support.merging import all_standing

from atoll.aggregation.merge_round import combine, merge, merge_updates
from atoll.errors import MalformedUpdate
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.sections import StoredUpdate, UpdateLayout
from atoll.numerics.state import GlobalState
from atoll.protocol.merge_inputs import MergeInputs, MergeTerms, merge_inputs
from atoll.protocol.rules import RULES
from atoll.protocol.types import SeatIndex


def default(arrived: Arrived) -> GlobalState:
    """The whole pipeline, before any audit: the checks leave out whom they name, the rule bears."""
    record = all_standing(arrived.updates, arrived.manifest)
    where = {"data_seed": arrived.data_seed, "manifest": arrived.manifest}
    return merge(arrived.state, arrived.updates, record=record, **where).global_state


def checked(name: str) -> Merge:
    """The whole pipeline with another rule in place of the manifest's."""

    def merged(arrived: Arrived) -> GlobalState:
        return default(_with_rule(arrived, name))

    return merged


def inputs_of(arrived: Arrived) -> MergeInputs:
    """Who is named, excluded and merged there."""
    record = all_standing(arrived.updates, arrived.manifest)
    where = {"data_seed": arrived.data_seed, "manifest": arrived.manifest}
    return merge_updates(arrived.state, arrived.updates, record=record, **where).inputs


def by_rule(name: str) -> Merge:
    """A rule over whatever was sent: nobody has its momentum excluded for standing out."""

    def merged(arrived: Arrived) -> GlobalState:
        manifest, state = _with_rule(arrived, name).manifest, arrived.state
        layout = UpdateLayout.of(manifest, state.shapes, state.round)
        found: dict[SeatIndex, StoredUpdate] = {}
        for seat, data in sorted(arrived.updates.items()):
            dither = DitherKey(arrived.data_seed, SeatIndex(seat))
            try:
                found[SeatIndex(seat)] = layout.open(data, state, dither)
            except MalformedUpdate:
                continue
        record = all_standing(found, manifest)
        nobody_named = merge_inputs(record, list(found), [], MergeTerms.of(manifest))
        return combine(state, found, nobody_named, manifest).moves(state.copied(), manifest)

    return merged


def _with_rule(arrived: Arrived, name: str) -> Arrived:
    robust = arrived.manifest.robust.model_copy(update={"rule": name})
    return replace(arrived, manifest=arrived.manifest.model_copy(update={"robust": robust}))


def rule_alone(arrived: Arrived) -> GlobalState:
    """The manifest's rule without checks."""
    return by_rule(arrived.manifest.robust.rule)(arrived)


def among_friends(arrived: Arrived) -> GlobalState:
    """What merges honest updates: their mean, and a mean of nobody's sums but the largest."""
    robust = arrived.manifest.robust.model_copy(update={"f": 0})
    manifest = arrived.manifest.model_copy(update={"robust": robust})
    return by_rule("mean")(replace(arrived, manifest=manifest))


_NAMES = [name for name, rule in RULES.items() if not rule.is_sparse]
OF_ANY_CODEC: dict[str, Merge] = {"default": default, "rule_alone": rule_alone}
CHECKED: dict[str, Merge] = {f"checked_{name}": checked(name) for name in _NAMES}
ALONE: dict[str, Merge] = {name: by_rule(name) for name in _NAMES}
MERGES: dict[str, Merge] = OF_ANY_CODEC | CHECKED | ALONE
