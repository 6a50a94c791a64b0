"""The first model is a function of the manifest alone."""

from __future__ import annotations

import math

import pytest
import torch
from tests.unit.train.factories import Job, small_model

from atoll.numerics.init import bell_integers, initial_global_state, initial_params
from atoll.numerics.kernels.philox import philox4x32
from atoll.numerics.state_layout import param_count, param_shapes

# github.com/DEShawResearch/random123, tests/kat_vectors, philox4x32 with 10 rounds
KNOWN_ANSWERS = [
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_random123s_known_answers(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    c0, c1, c2, c3 = (torch.tensor([word]) for word in counter)
    assert tuple(int(word) for word in philox4x32((c0, c1, c2, c3), key)) == expected


def test_integers_are_bell_shaped_and_differ_by_tensor_and_seed() -> None:
    values = bell_integers(seed=1, tensor_index=0, count=40_000)
    deviation = 2**21 / math.sqrt(3)
    assert abs(values.double().mean()) < 4 * deviation / 200
    assert values.double().std() == pytest.approx(deviation, rel=0.02)
    assert not torch.equal(values, bell_integers(1, 1, 40_000))
    assert not torch.equal(values, bell_integers(2, 0, 40_000))
    assert not torch.equal(values, bell_integers(1 + (1 << 32), 0, 40_000))


def test_longer_draws_extend_shorter_ones() -> None:
    assert torch.equal(bell_integers(3, 2, 10), bell_integers(3, 2, 99)[:10])
    assert torch.equal(bell_integers(3, 2, 65_537), bell_integers(3, 2, 200_000)[:65_537])


def test_matrices_deviate_by_two_hundredths_and_gains_are_one() -> None:
    params = initial_params(param_shapes(small_model(width=64, ffn=128)), seed=0)
    assert params["model.embed_tokens.weight"].std().item() == pytest.approx(0.02, rel=0.02)
    assert torch.equal(params["model.norm.weight"], torch.ones(64))


def test_the_first_global_state_follows_from_the_manifest(job: Job) -> None:
    again = initial_global_state(job.manifest)
    assert again.digest() == job.model.digest()
    exponents = job.manifest.codec.exponents
    kinds = {exponents.embedding, exponents.matrix, exponents.vector}
    assert set(again.exponents.values()) == kinds
    assert again.outer == {}
    assert sum(p.numel() for p in again.params.values()) == param_count(job.manifest.model)


def test_the_weights_bits_are_pinned() -> None:
    params = initial_params(param_shapes(small_model()), seed=7)
    bits = [params[name].view(-1)[:2].view(torch.int32).tolist() for name in sorted(params)[:2]]
    assert bits == [[-1151820315, 1010589386], [1065353216, 1065353216]]


def test_nesterov_starts_with_zero_momentum(job: Job) -> None:
    outer = job.manifest.outer.model_copy(update={"kind": "nesterov", "momentum": "0.9"})
    state = initial_global_state(job.manifest.model_copy(update={"outer": outer}))
    momentum = state.outer["momentum"]
    assert all(m.dtype == torch.int64 and not m.any() for m in momentum.values())
    assert momentum.keys() == state.params.keys()
