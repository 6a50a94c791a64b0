"""Generated tokens are the training forward's: of every family, and over tiles of attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.support.manifests import model_spec
from torch import Tensor

from atoll.numerics.frozen_base import freeze_all
from atoll.numerics.generate import Generated, Generator, Request, generate
from atoll.numerics.model import forward
from atoll.numerics.ops import operations
from atoll.numerics.sampling import Draw, Row, likeliest, sample
from atoll.numerics.state_layout import adapter_shapes, param_shapes
from atoll.protocol.families import LAYER_KINDS
from atoll.protocol.model_spec import LoraSpec, ModelSpec

LLAMA3 = {"kind": "llama3", "factor": "8", "low": "1", "high": "4", "positions": 24}
LINEAR = {"kind": "linear", "factor": "4", "low": "0", "high": "0", "positions": 0}
SMALL = {"vocab": 61, "width": 24, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 6, "ffn": 40}
FAMILIES: Mapping[str, dict[str, Any]] = {
    "llama": {},
    "llama3": {"rope_scaling": LLAMA3, "seq": 260},
    "linear": {"rope_scaling": LINEAR, "seq": 129},
    "within a tile": {"seq": 20},
    "qwen2": {"qkv_bias": True, "tied": False},
    "qwen3": {"qk_norm": True, "kv_heads": 4},
    "relu2": {"mlp": "relu2", "kv_heads": 1},
    **{
        kind: {"kind": kind, "qk_norm": True, "tied": False}
        for kind in LAYER_KINDS
        if kind != "llama"
    },
}
DRAW = Draw((7, 1 << 31), step=5)
OPS = operations()


def spec_of(family: str) -> ModelSpec:
    return model_spec(**{**SMALL, "seq": 140, **FAMILIES[family]})


def drawn(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scales = {name: 0.3 if len(shape) > 1 else 1.0 for name, shape in shapes.items()}
    return {n: torch.randn(s, generator=generator) * scales[n] for n, s in shapes.items()}


def adapters_of(spec: ModelSpec) -> dict[str, Tensor]:
    targets = tuple(spec.linears)
    lora = LoraSpec(rank=3, alpha="6", targets=targets)
    return drawn(adapter_shapes(spec, lora), seed=2)


def prompts_of(spec: ModelSpec) -> list[list[int]]:
    lengths = [2, 5, 5, spec.seq - 14, spec.seq - 4, spec.seq]
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, spec.vocab, (n,), generator=generator).tolist() for n in lengths]


def expected(
    made: Generated, params: Mapping[str, Tensor], request: Request, generator: Generator
) -> None:
    """Each token is what one whole forward pass of the finished sequences says."""
    spec, base = generator.spec, generator.base
    ids = made.ids[:, : spec.seq]
    logits = forward(params, ids, spec, OPS, base=base if generator.adapters else None)
    for row, prompt in enumerate(request.prompts):
        assert made.ids[row, : len(prompt)].tolist() == list(prompt)
        assert not made.ids[row, made.lengths[row] :].any()
        below = 0
        for at in range(len(prompt), made.lengths[row]):
            place = Row.across(at - 1, torch.tensor([row + request.first_place]))
            some = logits[row, at - 1][None]
            token = (
                likeliest(some)
                if request.draw is None
                else sample(some, place, request.draw, OPS.engine.kernels)
            )
            assert made.ids[row, at] == token.ids[0]
            assert token.is_finite[0]
            below += int(token.below[0])
        assert made.drawn[row] == below
        is_full = made.lengths[row] == min(len(prompt) + request.new_tokens, spec.seq + 1)
        assert is_full or int(made.ids[row, made.lengths[row] - 1]) in request.ends


@pytest.mark.parametrize("is_adapted", [False, True], ids=["full", "adapted"])
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_the_forward_passes(family: str, is_adapted: bool) -> None:
    spec = spec_of(family)
    params, base = drawn(param_shapes(spec), seed=1), None
    if is_adapted:
        base = freeze_all(params.items(), spec, OPS, scale=0.5)
        params = adapters_of(spec)
    generator = Generator.of(params, spec, OPS, base)
    assert generator.is_cached
    request = Request(
        prompts=prompts_of(spec), new_tokens=12, ends=frozenset({5}), draw=DRAW, first_place=2
    )
    with torch.no_grad():
        made = generate(generator, request)
        assert made.is_finite
        expected(made, params, request, generator)


def test_neither_the_batch_nor_the_draw_changes_what_is_read() -> None:
    spec = spec_of("within a tile")
    params = drawn(param_shapes(spec), seed=1)
    generator = Generator.of(params, spec, OPS)
    request = Request(prompts=prompts_of(spec), new_tokens=12, draw=DRAW)
    made = generate(generator, request)
    assert same(made, generate(replace(generator, memory=1), request))
    likely = replace(request, draw=None)
    with torch.no_grad():
        expected(generate(generator, likely), params, likely, generator)


def test_a_cache_changes_no_bit() -> None:
    spec = spec_of("within a tile")
    params = drawn(param_shapes(spec), seed=1)
    generator = Generator.of(params, spec, OPS)
    request = Request(prompts=prompts_of(spec), new_tokens=12, draw=DRAW)
    assert same(
        generate(generator, request), generate(replace(generator, is_cached=False), request)
    )


@pytest.mark.parametrize("value", [2.0**8, 2.0**64, torch.inf, torch.nan])
def test_a_hostile_model_is_read_as_the_law_has_it(value: float) -> None:
    spec = spec_of("within a tile")
    params = drawn(param_shapes(spec), seed=1)
    params["model.embed_tokens.weight"][9] = value  # one token overflows, and those after it
    params["model.layers.0.mlp.down_proj.weight"] *= value
    generator = Generator.of(params, spec, OPS)
    assert not generator.is_cached
    made = generate(generator, Request(prompts=[[1, 2], [9, 3]], new_tokens=9, draw=DRAW))
    with torch.no_grad():
        for row in range(2):
            for at in range(2, made.lengths[row]):
                ids = torch.where(torch.arange(spec.seq) < at, made.ids[row, : spec.seq], 0)[None]
                logits = forward(params, ids, spec, OPS)[:, at - 1]
                place = Row.across(at - 1, torch.tensor([row]))
                token = sample(logits, place, DRAW, OPS.engine.kernels)
                assert made.ids[row, at] == token.ids[0]
                assert made.is_finite or not made.ids[row, at] or token.is_finite[0]
    assert made.is_finite == math.isfinite(value)


def test_what_is_not_finite_is_token_0() -> None:
    logits = torch.randn(4, 9)
    logits[0, 3], logits[1, 3], logits[2] = torch.nan, torch.inf, -torch.inf
    for token in (
        sample(logits, Row.across(1, torch.arange(4)), DRAW, OPS.engine.kernels),
        likeliest(logits),
    ):
        assert token.is_finite.tolist() == [False, False, False, True]
        assert token.ids[:3].tolist() == token.below[:3].tolist() == [0, 0, 0]


def test_of_equal_logits_the_lower_token_is_taken() -> None:
    logits = torch.zeros(1, 300)
    logits[0, 200:] = 1.5
    assert likeliest(logits).ids.tolist() == [200]


def test_draws_have_the_softmaxs_shares() -> None:
    logits = torch.tensor([0.0, 1.0, -torch.inf, 3.0, -200.0])
    count = 40_000
    rows = Row.across(3, torch.arange(count))
    token = sample(logits.expand(count, -1).contiguous(), rows, DRAW, OPS.engine.kernels)
    shares = torch.bincount(token.ids, minlength=5) / count
    assert torch.allclose(shares, logits.softmax(0), atol=0.01)


def same(one: Generated, other: Generated) -> bool:
    parts = [(each.lengths, each.is_finite, each.drawn) for each in (one, other)]
    return bool(torch.equal(one.ids, other.ids)) and parts[0] == parts[1]


def test_a_prompt_is_neither_empty_nor_too_long() -> None:
    spec = spec_of("within a tile")
    generator = Generator.of(drawn(param_shapes(spec), seed=1), spec, OPS)
    for prompt in ([], [1] * 21):
        with pytest.raises(ValueError, match="a prompt has"):
            generate(generator, Request(prompts=[prompt], new_tokens=1))
