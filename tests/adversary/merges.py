"""The merges that adversaries are tried against: the project's own, and every rule by itself."""

from __future__ import annotations

from dataclasses import replace

from tests.adversary.run import Arrived, Merge
from tests.merging import all_standing

from atoll.bits.codec.dither import DitherKey
from atoll.bits.sections import UpdateLayout
from atoll.bits.state import GlobalState
from atoll.law.manifest import CONTRIBUTOR_MEAN, SPARSE_CODECS
from atoll.law.merge_inputs import MergeTerms, merge_inputs
from atoll.law.words import SeatIndex, to_bitmap
from atoll.merge.round import combine, merge, named_inputs
from atoll.merge.rules import Rule


def default(arrived: Arrived) -> GlobalState:
    """The whole pipeline: whoever is audited in full and lied is caught, then the merge."""
    state, updates, manifest = arrived.state, arrived.updates, arrived.manifest
    seed = arrived.data_seed
    facts = all_standing(updates, manifest, arrived.caught)
    inputs = named_inputs(state, updates, facts=facts, data_seed=seed, manifest=manifest)
    found = to_bitmap(arrived.colluders & set(inputs.in_full))
    facts = replace(facts, rejected=found, caught=facts.caught + found.bit_count())
    return merge(state, updates, facts=facts, data_seed=seed, manifest=manifest).global_state


def unaudited(arrived: Arrived) -> GlobalState:
    """The pipeline without audits: what the checks leave out and the rule bears, no more."""
    state, updates, manifest = arrived.state, arrived.updates, arrived.manifest
    seed, facts = arrived.data_seed, all_standing(updates, manifest, arrived.caught)
    return merge(state, updates, facts=facts, data_seed=seed, manifest=manifest).global_state


def by_rule(name: str) -> Merge:
    """A rule over whatever was sent: nobody is replayed or set aside for standing out."""

    def merged(arrived: Arrived) -> GlobalState:
        robust = arrived.manifest.robust.model_copy(update={"rule": name})
        manifest = arrived.manifest.model_copy(update={"robust": robust})
        state = arrived.state
        layout = UpdateLayout.of(manifest, state.shapes, state.round)
        rows = {}
        for seat, data in sorted(arrived.updates.items()):
            dither = DitherKey(arrived.data_seed, seat)
            rows[SeatIndex(seat)] = layout.open(data, state, dither)
        facts = all_standing(rows, manifest, arrived.caught)
        nobody_named = merge_inputs(facts, list(rows), None, MergeTerms.of(manifest))
        return combine(state, rows, nobody_named, manifest).moves(state.copied(), manifest)

    return merged


def rule_alone(arrived: Arrived) -> GlobalState:
    """The manifest's rule without checks and replays."""
    return by_rule(arrived.manifest.robust.rule)(arrived)


def among_friends(arrived: Arrived) -> GlobalState:
    """What merges honest updates: their mean, of sparse ones that over contributors."""
    sparse = arrived.manifest.codec.kind in SPARSE_CODECS
    return by_rule(CONTRIBUTOR_MEAN if sparse else Rule.MEAN)(arrived)


OF_ANY_CODEC: dict[str, Merge] = {
    "default": default,
    "unaudited": unaudited,
    "rule_alone": rule_alone,
}
OF_DENSE_CODECS: dict[str, Merge] = {
    name: by_rule(name) for rule in Rule for name in (str(rule), f"nnm_{rule}")
}
MERGES = OF_ANY_CODEC | OF_DENSE_CODECS
