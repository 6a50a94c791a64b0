"""The merge of a round: one digest for everyone, and the rules for small and odd rounds."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from tests.support.manifests import whole_manifest
from tests.support.merging import all_standing

from atoll.aggregation.merge_round import MergeResult, merge, merge_updates
from atoll.aggregation.rules import aggregate
from atoll.numerics.codec.dense import GRID8
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.registry import seat_codec
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.state import GlobalState
from atoll.protocol.codecs import CODECS
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import Manifest
from atoll.protocol.rules import RULES
from atoll.protocol.types import Bitmap, SeatIndex

EXPONENT = -10
SEED = sha256(b"data seed")


def merge_manifest(min_providers: int = 2, f: int = 2) -> Manifest:
    """Without moments: an update is what moves the model and nothing else."""
    plain = {"optimizer": "sgd", "beta1": "0", "beta2": "0", "eps": "0"}
    choice = {"rule": "median", "f": f, "kappa": "2.5"}
    manifest = whole_manifest({"inner": plain, "robust": choice, "terms.seats": 8})
    # A merge is computed of fewer than open a round, too: some are slashed before it.
    terms = replace(manifest.terms, min_providers=min_providers)
    return manifest.model_copy(update={"terms": terms})


def make_state() -> GlobalState:
    generator = torch.Generator().manual_seed(1)
    shapes = {"w": (40, 25), "b": (24,)}
    params = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return GlobalState(5, params, {}, dict.fromkeys(params, EXPONENT))


def make_updates(state: GlobalState, seats: Iterable[int]) -> dict[int, bytes]:
    """Honest updates: a common direction, noise of their own."""
    common = torch.Generator().manual_seed(2)
    signal = {n: torch.randn(p.shape, generator=common) / 50 for n, p in state.params.items()}
    updates = {}
    for seat in seats:
        own = torch.Generator().manual_seed(100 + seat)
        delta = {n: s + torch.randn(s.shape, generator=own) / 100 for n, s in signal.items()}
        updates[seat] = GRID8.encode(delta, state.exponents)
    return updates


def flipped(state: GlobalState, factor: float) -> bytes:
    common = torch.Generator().manual_seed(2)
    signal = {n: torch.randn(p.shape, generator=common) / 50 for n, p in state.params.items()}
    return GRID8.encode({n: -factor * s for n, s in signal.items()}, state.exponents)


def merged_of(state: GlobalState, updates: dict[int, bytes], manifest: Manifest) -> MergeResult:
    record = all_standing(updates, manifest)
    return merge(state, updates, record=record, data_seed=SEED, manifest=manifest)


def test_the_digest_does_not_depend_on_seat_order_or_threads():
    state = make_state()
    updates = make_updates(state, range(7))
    digest = merged_of(state, updates, merge_manifest()).global_state.digest()
    backwards = dict(reversed(updates.items()))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        again = merged_of(state, backwards, merge_manifest())
    finally:
        torch.set_num_threads(threads)
    assert again.global_state.digest() == digest
    assert again.global_state.round == 6


def test_equal_updates_move_the_model_by_exactly_that_update():
    state = make_state()
    step = 2.0**EXPONENT
    delta = {name: torch.full_like(p, 30 * step) for name, p in state.params.items()}
    update = GRID8.encode(delta, state.exponents)
    result = merged_of(state, dict.fromkeys(range(5), update), merge_manifest())
    for name, p in state.params.items():
        expected = (p.double() - 30 * step).float()
        assert torch.equal(result.global_state.params[name], expected)
    assert result.global_state.exponents == state.exponents
    assert result.weights == dict.fromkeys(range(5), Fraction(1, 5))


def test_zero_updates_change_nothing_but_refine_the_grid():
    state = make_state()
    update = GRID8.encode(
        {n: torch.zeros_like(p) for n, p in state.params.items()}, state.exponents
    )
    result = merged_of(state, dict.fromkeys(range(5), update), merge_manifest())
    assert all(torch.equal(result.global_state.params[n], p) for n, p in state.params.items())
    assert result.global_state.exponents == dict.fromkeys(state.params, EXPONENT - 4)


def test_below_the_minimum_the_model_is_carried_with_its_exponents():
    state = make_state()
    manifest = merge_manifest(min_providers=4)
    result = merged_of(state, make_updates(state, [1, 2, 6]), manifest)
    assert not result.merged
    assert set(result.weights.values()) == {0}
    carried = GlobalState(6, state.params, state.outer, state.exponents)
    assert result.global_state.digest() == carried.digest()


@pytest.mark.parametrize(("there", "borne"), [(1, 0), (4, 0), (5, 2), (8, 2)])
def test_faults_borne(there: int, borne: int):
    """All that the terms name, or nothing is merged."""
    result = merged_of(make_state(), make_updates(make_state(), range(there)), merge_manifest())
    assert result.merged == bool(borne)
    assert result.inputs.f_prime == borne


def test_who_stands_out_has_weight_zero():
    state = make_state()
    manifest = merge_manifest()
    updates = make_updates(state, range(6)) | {6: flipped(state, 3)}
    record = all_standing(updates, manifest)
    found = merge_updates(state, updates, record=record, data_seed=SEED, manifest=manifest)
    inputs = found.inputs
    assert inputs.excluded == (6,)
    result = merged_of(state, updates, manifest)
    assert result.inputs == inputs
    assert result.weights[6] == 0
    assert sum(result.weights.values()) == 1
    without = merged_of(state, make_updates(state, range(6)), manifest)
    assert result.global_state.digest() == without.global_state.digest()


def test_malformed_bytes_count_as_if_they_had_not_come():
    state, manifest = make_state(), merge_manifest()
    updates = make_updates(state, range(6))
    record = all_standing(updates, manifest)
    broken = merge(
        state, updates | {5: updates[5][:-1]}, record=record, data_seed=SEED, manifest=manifest
    )
    absent = merged_of(state, make_updates(state, range(5)), manifest)
    assert broken.inputs.mergeable == (0, 1, 2, 3, 4)
    assert broken.global_state.digest() == absent.global_state.digest()


def test_who_was_slashed_is_not_even_scored():
    """Its bytes need not be there: a seat that was found out cannot hold the merge up."""
    state, manifest = make_state(), merge_manifest()
    updates = make_updates(state, range(6))
    record = replace(all_standing(range(7), manifest), slashed=Bitmap(1 << 6))
    result = merge(state, updates, record=record, data_seed=SEED, manifest=manifest)
    alone = merged_of(state, updates, manifest)
    assert result.global_state.digest() == alone.global_state.digest()
    served = merge(
        state, updates | {6: flipped(state, 3)}, record=record, data_seed=SEED, manifest=manifest
    )
    assert served.inputs == result.inputs


def test_a_short_round_is_not_merged():
    state, manifest = make_state(), merge_manifest()
    updates = make_updates(state, range(5))
    record = all_standing(updates, manifest)
    short = replace(record, segments={**record.segments, SeatIndex(4): 5})
    assert merge(
        state, updates, record=short, data_seed=SEED, manifest=manifest
    ).inputs.mergeable == (0, 1, 2, 3)


def with_choice(manifest: Manifest, rule: str, kind: str = "grid8") -> Manifest:
    robust = manifest.robust.model_copy(update={"rule": rule})
    codec = manifest.codec.model_copy(update={"kind": kind})
    return manifest.model_copy(update={"robust": robust, "codec": codec})


@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if not rule.is_sparse])
def test_every_rule_can_be_the_manifests(rule: str):
    """The model moves by what the rule gives, in whole steps, and the weights are the rule's."""
    state = make_state()
    updates = make_updates(state, range(7))
    manifest = with_choice(merge_manifest(), rule)
    result = merged_of(state, updates, manifest)
    rows = [GRID8.decode_flat(updates[seat], Layout.of_tensors(state.params), state.exponents)
            for seat in range(7)]  # fmt: skip
    expected = aggregate(rule, rows, 2)
    assert tuple(result.weights.values()) == expected.weights
    moved = {n: (p - result.global_state.params[n]) * 1024 for n, p in state.params.items()}
    quotients = torch.from_numpy(expected.numerators.astype("float64")) / expected.denominator
    torch.testing.assert_close(
        torch.cat([moved[name].flatten() for name in sorted(moved)]).double(),
        quotients.round(), atol=2e-4, rtol=0,
    )  # fmt: skip


@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if rule.mixes])
def test_every_rule_merges_from_its_minimum_on(rule: str):
    """Krum needs two more than the others to bear as many."""
    manifest, state = with_choice(merge_manifest(), rule), make_state()
    least = RULES[rule].minimum(2)
    assert merged_of(state, make_updates(state, range(least)), manifest).merged
    assert not merged_of(state, make_updates(state, range(least - 1)), manifest).merged


@pytest.mark.parametrize("kind", CODECS)
def test_every_codec_is_merged(kind: str):
    """Two updates that agree move the model by what the codec says of them, rounded."""
    rule = "contributor_mean" if CODECS[kind].is_sparse else "mean"
    manifest = with_choice(merge_manifest(f=0), rule, kind)
    state = make_state()
    if CODECS[kind].is_exact:
        state = replace(state, exponents=dict.fromkeys(state.params, CODECS[kind].start))
    generator = torch.Generator().manual_seed(3)
    delta = {n: torch.randn(p.shape, generator=generator) / 50 for n, p in state.params.items()}
    codecs = {seat: seat_codec(manifest.codec, DitherKey(SEED, seat)) for seat in (0, 5)}
    updates = {seat: codec.encode(delta, state.exponents) for seat, codec in codecs.items()}
    result = merged_of(state, updates, manifest)
    layout = Layout.of_tensors(state.params)
    sent = [codecs[s].decode(update, layout, state.exponents) for s, update in updates.items()]
    for name, p in result.global_state.params.items():
        mean = (sent[0][name] + sent[1][name]) / 2
        fineness = CODECS[kind].fineness
        if fineness is not None:
            step = 2.0 ** (EXPONENT - fineness)
            mean = (mean / step).round() * step
        torch.testing.assert_close(
            p, state.params[name] - mean, atol=2.0**EXPONENT / 256, rtol=1e-6
        )
    assert result.inputs.named == ()  # where the rule bears nobody
