"""The merge of a round: one digest for everyone, and the rules for small and odd rounds."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from atoll.bits.codec.dense import GRID8
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import codec_of
from atoll.bits.state import GlobalState
from atoll.errors import MalformedUpdate
from atoll.job.spec import Choices, Found, Members, build_manifest
from atoll.law.canonical import dag_cbor_cid
from atoll.law.hashing import sha256
from atoll.law.manifest import SPARSE_CODECS, DataSpec, Manifest, NumericsSpec
from atoll.law.words import Digest
from atoll.merge.round import merge, seats_to_replay
from atoll.merge.rules import Rule, aggregate

EXPONENT = -10


def make_manifest(seats: int = 8, min_providers: int = 2, f: int = 2) -> Manifest:
    cid = dag_cbor_cid(sha256(b"any"))
    numerics = NumericsSpec(
        mode="native",
        software_class="any",
        code_digest=Digest(bytes(32)),
        probe_digest=Digest(bytes(32)),
        tolerance=None,
    )
    data = DataSpec(
        cid=cid,
        dtype="uint8",
        train_tokens=10_000,
        eval_cid=None,
        eval_batches=0,
        tokenizer_cid=cid,
    )
    members = Members(seats=seats, min_providers=min_providers)
    manifest = build_manifest(
        Choices(members=members), Found(data=data, numerics=numerics, expiry=10**10)
    )
    return manifest.model_copy(update={"robust": manifest.robust.model_copy(update={"f": f})})


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


def test_the_digest_does_not_depend_on_seat_order_or_threads():
    state = make_state()
    updates = make_updates(state, range(7))
    digest = merge(state, updates, caught=1, manifest=make_manifest()).global_state.digest()
    backwards = dict(reversed(updates.items()))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        again = merge(state, backwards, caught=1, manifest=make_manifest())
    finally:
        torch.set_num_threads(threads)
    assert again.global_state.digest() == digest
    assert again.global_state.round == 6


def test_equal_updates_move_the_model_by_exactly_that_update():
    state = make_state()
    step = 2.0**EXPONENT
    delta = {name: torch.full_like(p, 30 * step) for name, p in state.params.items()}
    update = GRID8.encode(delta, state.exponents)
    result = merge(state, dict.fromkeys(range(5), update), caught=0, manifest=make_manifest())
    for name, p in state.params.items():
        expected = (p.double() - 30 * step).float()
        assert torch.equal(result.global_state.params[name], expected)
    assert result.global_state.exponents == state.exponents
    nearest = dict.fromkeys(range(3), Fraction(1, 3))  # all distances tie: the lowest seats
    assert result.weights == nearest | {3: 0, 4: 0}


def test_zero_updates_change_nothing_but_refine_the_grid():
    state = make_state()
    update = GRID8.encode(
        {n: torch.zeros_like(p) for n, p in state.params.items()}, state.exponents
    )
    result = merge(state, dict.fromkeys(range(3), update), caught=0, manifest=make_manifest())
    assert all(torch.equal(result.global_state.params[n], p) for n, p in state.params.items())
    assert result.global_state.exponents == dict.fromkeys(state.params, EXPONENT - 1)


def test_below_the_minimum_the_model_is_carried_with_its_exponents():
    state = make_state()
    manifest = make_manifest(min_providers=4)
    result = merge(state, make_updates(state, [1, 2, 6]), caught=0, manifest=manifest)
    assert not result.merged
    assert set(result.weights.values()) == {0}
    carried = GlobalState(6, state.params, state.outer, state.exponents)
    assert result.global_state.digest() == carried.digest()


@pytest.mark.parametrize(
    ("accepted", "caught", "expected"),
    [(1, 0, 0), (2, 0, 0), (3, 0, 1), (3, 2, 1), (5, 0, 2), (8, 0, 2), (7, 1, 1), (6, 9, 1)],
)
def test_faults_borne(accepted: int, caught: int, expected: int):
    state = make_state()
    manifest = make_manifest(min_providers=1)
    result = merge(state, make_updates(state, range(accepted)), caught=caught, manifest=manifest)
    assert result.merged
    assert result.f_prime == expected


def test_one_undetected_flip_is_borne_after_a_catch():
    state = make_state()
    manifest = make_manifest(seats=4, f=1)
    honest = make_updates(state, [0, 1])
    attacked = merge(state, honest | {3: flipped(state, 3)}, caught=1, manifest=manifest)
    clean = merge(state, honest, caught=0, manifest=manifest)
    for name, p in state.params.items():
        wanted = clean.global_state.params[name] - p
        found = attacked.global_state.params[name] - p
        assert torch.dot(wanted.flatten(), found.flatten()) > 0.5 * wanted.norm() ** 2


def test_standing_out_only_after_removals_means_weight_zero():
    state = make_state()
    manifest = make_manifest()
    updates = make_updates(state, range(6)) | {6: flipped(state, 3)}
    assert seats_to_replay(state, updates, manifest) == (6,)
    late = merge(state, updates, caught=0, manifest=manifest)
    assert late.left_out == (6,)
    assert late.weights[6] == 0
    assert sum(late.weights.values()) == 1
    verified = merge(state, updates, caught=0, manifest=manifest, replayed_in_full={6})
    assert verified.left_out == ()
    assert verified.weights[6] > 0
    without = merge(state, make_updates(state, range(6)), caught=0, manifest=manifest)
    assert late.global_state.digest() == without.global_state.digest()


def test_malformed_bytes_never_reach_the_merge():
    state = make_state()
    updates = make_updates(state, range(3))
    with pytest.raises(MalformedUpdate):
        merge(state, updates | {3: updates[0][:-1]}, caught=0, manifest=make_manifest())


def with_choice(manifest: Manifest, rule: str, kind: str = "grid8") -> Manifest:
    robust = manifest.robust.model_copy(update={"rule": rule})
    codec = manifest.codec.model_copy(update={"kind": kind})
    return manifest.model_copy(update={"robust": robust, "codec": codec})


@pytest.mark.parametrize("mixing", ["", "nnm_"])
@pytest.mark.parametrize("rule", list(Rule))
def test_every_rule_can_be_the_manifests(rule: Rule, mixing: str):
    """The model moves by what the rule gives, and the weights are the rule's."""
    state = make_state()
    updates = make_updates(state, range(7))
    manifest = with_choice(make_manifest(f=2, seats=8), mixing + rule)
    result = merge(state, updates, caught=0, manifest=manifest)
    rows = [GRID8.decode_flat(updates[seat], Layout.of_tensors(state.params), state.exponents)
            for seat in range(7)]  # fmt: skip
    expected = aggregate(rule, rows, 2, nnm=bool(mixing))
    assert tuple(result.weights.values()) == expected.weights
    moved = {n: (p - result.global_state.params[n]) * 1024 for n, p in state.params.items()}
    numerators = torch.from_numpy(expected.numerators.astype("float64")) / expected.denominator
    torch.testing.assert_close(
        torch.cat([moved[name].flatten() for name in sorted(moved)]).double(),
        numerators, atol=2e-4, rtol=0,
    )  # fmt: skip


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("accepted", [1, 2, 3, 4])
def test_every_rule_merges_however_few_are_left(rule: Rule, accepted: int):
    """Krum among four could not bear the f that is asked for; it bears what it can."""
    manifest = with_choice(make_manifest(min_providers=1), f"nnm_{rule}")
    state = make_state()
    updates = make_updates(state, range(accepted))
    result = merge(state, updates, caught=0, manifest=manifest)
    assert result.merged
    if accepted <= 2:
        assert set(result.weights.values()) == {Fraction(1, accepted)}


@pytest.mark.parametrize("kind", ["grid4", "two_bit", "sign", "sparse", "dct", "fp32"])
def test_every_codec_is_merged(kind: str):
    """Two updates that agree move the model by what the codec says of them."""
    rule = "contributor_mean" if kind in SPARSE_CODECS else "mean"
    manifest = with_choice(make_manifest(), rule, kind)
    state = make_state()
    if kind == "fp32":
        state = replace(state, exponents=dict.fromkeys(state.params, -40))
    codec, layout = codec_of(manifest.codec), Layout.of_tensors(state.params)
    generator = torch.Generator().manual_seed(3)
    delta = {n: torch.randn(p.shape, generator=generator) / 50 for n, p in state.params.items()}
    update = codec.encode(delta, state.exponents)
    result = merge(state, {0: update, 5: update}, caught=0, manifest=manifest)
    sent = codec.decode(update, layout, state.exponents)
    for name, p in result.global_state.params.items():
        expected = state.params[name] - sent[name]
        torch.testing.assert_close(p, expected, atol=2.0**EXPONENT / 256, rtol=1e-6)
    named = seats_to_replay(state, {0: update, 5: update}, manifest)
    assert named == (() if kind == "fp32" else (0, 5))  # copies; of fp32 nothing is scored
