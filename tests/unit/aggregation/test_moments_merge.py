"""Updates in sections, and the merge of each: what the next round opens with."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from tests.support.manifests import KINDS, whole_manifest
from tests.support.merging import all_standing
from tests.support.moments import warm

from atoll.aggregation.merge_round import MergeResult, merge, merge_updates
from atoll.aggregation.rounding import rounded
from atoll.aggregation.rules import aggregate
from atoll.errors import MalformedUpdate
from atoll.job.methods import DENSE_RULE
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.sections import StoredUpdate, UpdateLayout
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import optimiser_layout
from atoll.numerics.update_proof import close_round
from atoll.protocol.checks import Check
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import Manifest

SEED = sha256(b"data seed")
EXPONENT, MOMENT = -10, -14
PLACES = {"w": (40, 25), "b": (24,), "model.embed_tokens.weight": (30, 7)}
CODECS = ("grid8", "grid4", "two_bit", "sign", "fp32")
UNROUNDED = {
    "exponents": dict.fromkeys(KINDS, -40),
    "moment_exponents": dict.fromkeys(KINDS, -40),
    "min_exponent": -40,
    "max_exponent": -40,
}


def manifest_with(kind: str = "grid8", f: int = 1, **inner: str) -> Manifest:
    """The demo's with another codec, f and inner optimiser."""
    plain = {"beta2": "0.99"} | inner
    choice = {"rule": "mean" if kind == "fp32" else "median", "f": f, "kappa": "2.5"}
    exponents = UNROUNDED if kind == "fp32" else {}
    return whole_manifest({"inner": plain, "robust": choice, "codec": {"kind": kind, **exponents}})


def make_state(manifest: Manifest) -> GlobalState:
    generator = torch.Generator().manual_seed(1)
    params = {name: torch.randn(shape, generator=generator) for name, shape in PLACES.items()}
    is_plain = manifest.codec.kind == "fp32"
    shared = optimiser_layout(PLACES, manifest.inner).m
    exponents = dict.fromkeys(params, -40 if is_plain else EXPONENT)
    return GlobalState(5, params, {}, exponents, dict.fromkeys(shared, -40 if is_plain else MOMENT))


def last_of(state: GlobalState, manifest: Manifest, seat: int, first: float = 1.0) -> SeatState:
    """A last state: a common direction and noise of the seat's own; `first` scales its moment."""
    layout = optimiser_layout(state.shapes, manifest.inner)
    common, own = torch.Generator().manual_seed(2), torch.Generator().manual_seed(100 + seat)

    def draw(shape: tuple[int, ...], scale: float) -> torch.Tensor:
        signal = torch.randn(shape, generator=common) * scale
        return signal + torch.randn(shape, generator=own) * scale / 2

    params = {name: p - draw(tuple(p.shape), 1 / 50) for name, p in state.params.items()}
    m = {name: draw(shape, 1e-3) * first for name, shape in layout.m.items()}
    v = {name: draw(shape, 1e-3) ** 2 for name, shape in layout.v.items()}
    return SeatState(params, m, v, {}, manifest.inner.steps, 0)


def updates_of(state: GlobalState, manifest: Manifest, seats: int) -> dict[int, bytes]:
    return {
        seat: close_round(manifest, state, last_of(state, manifest, seat), DitherKey(SEED, seat))[0]
        for seat in range(seats)
    }


def merged_of(state: GlobalState, updates: dict[int, bytes], manifest: Manifest) -> MergeResult:
    record = all_standing(updates, manifest)
    return merge(state, updates, record=record, data_seed=SEED, manifest=manifest)


def opened(state: GlobalState, data: bytes, manifest: Manifest, seat: int = 0) -> StoredUpdate:
    layout = UpdateLayout.of(manifest, state.shapes, state.round)
    return layout.open(data, state, DitherKey(SEED, seat))


@pytest.mark.parametrize("kind", CODECS)
def test_an_update_reads_back_section_by_section(kind: str) -> None:
    manifest = manifest_with(kind)
    state = make_state(manifest)
    last = last_of(state, manifest, 0)
    data, carried_state = close_round(manifest, state, last, DitherKey(SEED, 0))
    layout = UpdateLayout.of(manifest, state.shapes, state.round)
    assert len(data) == layout.encoded_length
    found = opened(state, data, manifest)
    assert found.first is not None
    assert found.factored is not None
    assert len(found.delta) == len(found.first) == 1234
    assert len(found.factored) == 24 + (30 + 7) + (40 + 25)
    grid = 2.0 ** (-40 if kind == "fp32" else MOMENT)
    told = torch.from_numpy(found.first[0:24].astype(np.float64)) * grid
    assert torch.corrcoef(torch.stack([told.float(), last.m["b"]]))[0, 1] > 0.7
    assert carried_state.optimiser_root() == last.optimiser_root()


def test_sections_begin_at_pieces_and_have_their_own_dither() -> None:
    manifest = manifest_with("two_bit")
    state = make_state(manifest)
    state = replace(state, moment_exponents=state.exponents)
    last = last_of(state, manifest, 0)
    same = {name: p - last.params[name] for name, p in state.params.items()}
    data, _ = close_round(manifest, state, replace(last, m=same), DitherKey(SEED, 0))
    first, second, third = UpdateLayout.of(manifest, state.shapes, state.round).lengths
    assert first == second < 1024
    assert data[first:1024] == bytes(1024 - first)
    assert data[1024 : 1024 + 40] == data[:40]
    assert data[1024 : 1024 + second] != data[:first]  # the same values under other noise
    assert len(data) == 2048 + third


@pytest.mark.parametrize("kind", CODECS)
def test_another_spelling_is_refused(kind: str) -> None:
    manifest = manifest_with(kind)
    state = make_state(manifest)
    (data,) = updates_of(state, manifest, 1).values()
    lengths = UpdateLayout.of(manifest, state.shapes, state.round).lengths
    begins = [0, -(-lengths[0] // 1024) * 1024]
    begins.append(begins[1] + -(-lengths[1] // 1024) * 1024)
    broken = [data[:-1], data + b"\0", data[: begins[2]], data[begins[1] :], b""]
    for at in (lengths[0], begins[1] - 1, begins[1], begins[1] + lengths[1], begins[2]):
        broken.append(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    opened(state, data, manifest)
    for wrong in broken:
        with pytest.raises(MalformedUpdate):
            opened(state, wrong, manifest)


@pytest.mark.parametrize("seats", [3, 4, 5])
def test_the_first_moment_is_merged_by_the_rule_and_rounded(seats: int) -> None:
    manifest = manifest_with(f=1)
    state = make_state(manifest)
    updates = updates_of(state, manifest, seats)
    result = merged_of(state, updates, manifest)
    rows = []
    for seat, data in updates.items():
        first = opened(state, data, manifest, seat).first
        assert first is not None
        rows.append(first[0 : len(first)])
    found = aggregate(DENSE_RULE, rows, result.inputs.f_prime)
    expected = [round(Fraction(int(n), found.denominator)) for n in found.numerators]
    after = result.global_state
    flat = torch.cat([after.moments.m[name].flatten() for name in sorted(after.moments.m)])
    assert flat.tolist() == [max(-127, min(127, value)) for value in expected]
    assert after.moments.m_exponents == state.moment_exponents
    assert after.moments.count == manifest.inner.steps


def test_counts_go_on_and_exponents_move_with_the_votes() -> None:
    manifest = manifest_with()
    state = replace(make_state(manifest), moment_exponents={})
    state = replace(state, moment_exponents=dict.fromkeys(state.params, -6))  # far too coarse
    updates = updates_of(state, manifest, 4)
    once = merged_of(state, updates, manifest).global_state
    assert set(once.moment_exponents.values()) == {-10}
    twice = merged_of(once, updates_of(once, manifest, 4), manifest).global_state
    assert set(once.moments.m_exponents.values()) == {-6}
    assert set(twice.moments.m_exponents.values()) == {-10}
    assert twice.moments.count == 2 * manifest.inner.steps


def test_fp32_moments_are_their_mean() -> None:
    manifest = manifest_with("fp32")
    state = make_state(manifest)
    updates = updates_of(state, manifest, 3)
    after = merged_of(state, updates, manifest).global_state
    lasts = [last_of(state, manifest, seat).m["w"].double() for seat in range(3)]
    torch.testing.assert_close(
        after.moments.m["w"].double(), sum(lasts) / 3, atol=2.0**-39, rtol=2.0**-23
    )
    assert after.moments.m["w"].dtype == torch.float32
    assert set(after.moment_exponents.values()) == {-40}


def test_a_round_that_merges_nothing_keeps_the_moments() -> None:
    manifest = manifest_with()
    state = warm(make_state(manifest), manifest)
    result = merged_of(state, {}, manifest)
    assert not result.merged
    after = result.global_state
    assert (after.moments, after.moment_exponents) == (state.moments, state.moment_exponents)
    assert replace(after, round=state.round).digest() == state.digest()


def test_who_is_loud_in_the_first_moment_alone_is_excluded() -> None:
    manifest = manifest_with(f=1)
    state = make_state(manifest)
    state = replace(state, moment_exponents=dict.fromkeys(state.params, -12))
    updates = updates_of(state, manifest, 5)
    loud = last_of(state, manifest, 2, first=5.0)
    updates[2], _ = close_round(manifest, state, loud, DitherKey(SEED, 2))
    result = merged_of(state, updates, manifest)
    assert {(found.seat, found.check) for found in result.inputs.named} == {
        (2, Check.DISTANT),
        (2, Check.LOUD),
    }
    assert result.inputs.excluded == (2,)
    kept = {seat: data for seat, data in updates.items() if seat != 2}
    assert merged_of(state, kept, manifest).global_state.digest() == result.global_state.digest()


def test_first_moments_that_point_elsewhere_are_set_aside_and_nothing_else() -> None:
    manifest = manifest_with(f=1)
    state = replace(make_state(manifest), moment_exponents=dict.fromkeys(PLACES, -12))
    updates = updates_of(state, manifest, 5)
    honest = merged_of(state, updates, manifest)
    elsewhere = last_of(state, manifest, 2, first=0.1)
    updates[2], _ = close_round(manifest, state, elsewhere, DitherKey(SEED, 2))
    result = merged_of(state, updates, manifest)
    assert (result.inputs.named, result.inputs.momentum_excluded) == ((), (2,))
    assert result.inputs.merged == (0, 1, 2, 3, 4)
    kept = {seat: data for seat, data in updates.items() if seat != 2}
    without = merged_of(state, kept, manifest).global_state
    found, whole = result.global_state, honest.global_state
    assert torch.equal(found.params["w"], whole.params["w"])
    assert not torch.equal(found.params["w"], without.params["w"])
    assert torch.equal(found.moments.m["w"], without.moments.m["w"])
    assert found.moment_exponents == without.moment_exponents
    assert torch.equal(found.moments.rows["w"], whole.moments.rows["w"])


def test_the_order_of_seats_does_not_matter() -> None:
    manifest = manifest_with()
    state = make_state(manifest)
    updates = updates_of(state, manifest, 5)
    both = (updates, dict(reversed(updates.items())))
    assert len({merged_of(state, each, manifest).global_state.digest() for each in both}) == 1


@pytest.mark.parametrize(
    ("inner", "sections"),
    [
        ({"optimizer": "muon", "momentum": "0.95"}, 3),
        ({"optimizer": "sgd", "momentum": "0.9", "beta1": "0", "beta2": "0", "eps": "0"}, 2),
        ({"optimizer": "sgd", "beta1": "0", "beta2": "0", "eps": "0"}, 1),
    ],
    ids=["muon", "sgd with momentum", "sgd"],
)
def test_an_update_has_the_sections_of_what_the_optimiser_keeps(
    inner: dict[str, str], sections: int
) -> None:
    manifest = manifest_with(**inner)
    state = make_state(manifest)
    layout = UpdateLayout.of(manifest, state.shapes, state.round)
    assert len(layout.lengths) == sections
    after = merged_of(state, updates_of(state, manifest, 4), manifest).global_state
    assert after.moments.is_warm == (sections > 1)
    assert set(after.moments.m) == (set(state.params) if sections > 1 else set())
    # Muon leaves the ends and vectors to AdamW.
    assert set(after.moments.rows) == ({"model.embed_tokens.weight"} if sections == 3 else set())
    assert set(after.moments.whole) == ({"b"} if sections == 3 else set())


@pytest.mark.parametrize("denominator", [1, 3, 4, 6, 65536])
@pytest.mark.parametrize("fineness", [0, 4])
def test_rounding_is_half_to_even_and_clamped(denominator: int, fineness: int) -> None:
    step = max(1, denominator // 512)
    numerators = np.arange(-130 * denominator, 130 * denominator + 1, step, dtype=np.int64)
    found = rounded(numerators, denominator, fineness)
    for numerator, value in zip(numerators.tolist()[::7], found.tolist()[::7], strict=True):
        expected = round(Fraction(numerator * 2**fineness, denominator))
        assert value == max(-127, min(127, expected))


def test_a_merge_in_two_halves_of_which_the_first_has_no_moments() -> None:
    """As a verifier merges: the steps that moments have taken in are those of every round."""
    manifest = manifest_with()
    state = merged_of(*_round(make_state(manifest), manifest)).global_state
    assert state.moments.count == manifest.inner.steps
    whole = merged_of(*_round(state, manifest)).global_state
    assert whole.moments.count == 2 * manifest.inner.steps
    _, updates, _ = _round(state, manifest)
    record, data = all_standing(updates, manifest), state.to_bytes()
    without = GlobalState.from_bytes(data, moments=False)
    half = merge_updates(without, updates, record=record, data_seed=SEED, manifest=manifest)
    assert half.moves(GlobalState.from_bytes(data), manifest).digest() == whole.digest()


def _round(
    state: GlobalState, manifest: Manifest
) -> tuple[GlobalState, dict[int, bytes], Manifest]:
    return state, updates_of(state, manifest, 4), manifest
