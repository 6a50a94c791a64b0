"""Adapters on a frozen base: the step, what is kept of the base, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.engines import exact_ops
from tests.support.merging import all_standing, bearing_none
from tests.unit.train.factories import Job, make_job
from tests.unit.train.folders import belongings, make_folder
from torch import Tensor

from atoll.aggregation.merge_round import merge
from atoll.errors import ManifestError, NotFound
from atoll.numerics.errors import MalformedState
from atoll.numerics.frozen_base import HEAD, Base, freeze
from atoll.numerics.init import initial_params
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps, operations
from atoll.numerics.schedule import Recipe
from atoll.numerics.sections import UpdateLayout
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import (
    adapter_shapes,
    max_state_bytes,
    param_count,
    param_shapes,
    seat_layout,
    trained_count,
)
from atoll.numerics.tensors import write_blob
from atoll.protocol.canonical import encode
from atoll.protocol.families import LINEARS
from atoll.protocol.manifest import Manifest
from atoll.protocol.method_spec import TensorExponents
from atoll.protocol.model_spec import LoraSpec
from atoll.service.tasks import check_data, make_initial_state
from atoll.storage.cid import RAW, Cid
from atoll.train import measure_pace
from atoll.train.adapters import export_adapters, merged_weights
from atoll.train.evaluate import evaluate
from atoll.train.export import export_model
from atoll.train.open_base import open_base, read_weights
from atoll.train.pretrained import prepare_init, read_params
from atoll.train.round import train_round

ALL = list(LINEARS)
GAIN = "model.norm.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    make_folder(folder / "base", "Qwen3", torch.bfloat16)
    return folder


@pytest.fixture(scope="module")
def job(folder: Path) -> Job:
    """Adapters of rank 4 on all linears of a Qwen3-shaped folder."""
    made = make_job(folder / "job")
    prepared = prepare_init(folder / "base", made.manifest.model.seq, made.store)
    plain = made.manifest.model_dump() | {
        "model": prepared.model.model_dump(),
        "init": prepared.init.model_dump() | {"seed": 3},
        "lora": {"rank": 4, "alpha": "8", "targets": ALL},
    }
    return made.of(Manifest.model_validate(plain))


def ids(seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (2, 16), generator=torch.Generator().manual_seed(seed))


def moved(job: Job, size: float = 0.3) -> dict[str, Tensor]:
    """Adapters that do something."""
    random = torch.Generator().manual_seed(1)
    return {
        name: p + torch.randn(p.shape, generator=random) * size
        for name, p in job.model.params.items()
    }


def base_of(job: Job) -> Base:
    base = open_base(job.manifest, job.store)
    assert base is not None
    return base


def native_base(manifest: Manifest, job: Job) -> Base:
    """As PyTorch's own arithmetic reads it."""
    assert manifest.lora is not None and manifest.init.root is not None
    weights = read_weights(manifest.init, manifest.model, job.store)
    return freeze(weights, manifest.init.root, manifest.model, manifest.lora, NativeOps())


# ------------------------------------------------------------------------------------ the step


@pytest.mark.parametrize("kernels", ["eager", "compiled"])
@pytest.mark.parametrize("route", ["int8", "fp32", "fp64"])
def test_a_frozen_linear_is_a_linear_whose_weight_nobody_asks_for(route: str, kernels: str) -> None:
    ops, random = exact_ops(route, kernels), torch.Generator().manual_seed(2)
    for widths, split in (((5, 3, 3), False), ((1,), False), ((67,), True)):
        x = torch.randn(2, 7, 24, generator=random, requires_grad=True)
        weights = [torch.randn(width, 24, generator=random) for width in widths]
        weights = [w.requires_grad_() for w in weights]
        if split:
            plain = (ops.head(x, weights[0]),)
            frozen = (ops.frozen_head(x, ops.freeze_head(weights[0].detach())),)
        else:
            plain = ops.linears(x, weights)
            frozen = ops.frozen_linears(x, ops.freeze([w.detach() for w in weights]))
        gs = [torch.randn(y.shape, generator=random) for y in plain]
        assert all(torch.equal(a, b) for a, b in zip(plain, frozen, strict=True))
        (expected,) = torch.autograd.grad(plain, [x], gs)
        (found,) = torch.autograd.grad(frozen, [x], gs)
        assert torch.equal(found, expected)


def test_adapters_begin_as_nothing_and_then_are_a_change_of_the_weights(job: Job) -> None:
    spec, scale = job.manifest.model, 2.0
    weights = dict(merged_weights(job.model.params, job.manifest, job.store))
    native = native_base(job.manifest, job)
    for ops, base in ((operations(), base_of(job)), (NativeOps(), native)):
        plain = forward(weights, ids(), spec, ops)
        assert torch.equal(forward(job.model.params, ids(), spec, ops, base=base), plain)
    adapters = moved(job)
    changed = dict(weights)
    for name, weight in weights.items():
        linear = name.removesuffix(".weight")
        if f"{linear}.lora_A.weight" in adapters:
            a, b = (adapters[f"{linear}.lora_{x}.weight"] for x in "AB")
            changed[name] = weight + scale * (b @ a)
    found = forward(adapters, ids(), spec, NativeOps(), base=native)
    expected = forward(changed, ids(), spec, NativeOps())
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)
    assert (expected - plain).abs().max() > 1


def test_gradients_are_those_of_native_arithmetic(job: Job) -> None:
    spec, targets, found = job.manifest.model, ids(1), {}
    both = {"exact": (operations(), base_of(job))}
    both["native"] = (NativeOps(), native_base(job.manifest, job))
    for mode, (ops, base) in both.items():
        leaves = {n: p.clone().requires_grad_() for n, p in moved(job, 0.1).items()}
        logits = forward(leaves, ids(), spec, ops, base=base)
        loss = ops.cross_entropy(logits, targets, torch.ones(targets.shape))
        found[mode] = torch.autograd.grad(loss, list(leaves.values()))
    for exact, native in zip(found["exact"], found["native"], strict=True):
        assert (exact - native).norm() < 0.1 * native.norm()


def test_of_the_base_only_integers_are_kept(job: Job) -> None:
    base = base_of(job)
    assert base_of(job) is base
    assert base.products[HEAD] is base.head
    frozen = [frozen for name, frozen in base.products.items() if name != HEAD]
    linears = [part for each in frozen for part in each.parts]
    assert {part.dtype for part in linears if part.shape[1] > 1} == {torch.int8}
    assert [part.dtype for part in base.head.parts] == [torch.int8, torch.int8, torch.float32]
    kept = {name.rpartition(".")[0].rpartition(".")[2] for name in base.others}
    norms = {"input_layernorm", "post_attention_layernorm", "q_norm", "k_norm", "norm"}
    assert kept == {"embed_tokens"} | norms


def test_a_step_without_its_base_is_not_made(job: Job) -> None:
    with pytest.raises(ValueError, match="have a base"):
        Recipe.of(job.manifest)


# ------------------------------------------------------------------------------------ the job


def test_states_and_updates_are_the_adapters_alone(job: Job) -> None:
    manifest = job.manifest
    assert manifest.lora is not None
    shapes = adapter_shapes(manifest.model, manifest.lora)
    assert seat_layout(manifest).params == shapes and len(shapes) == 2 * 2 * 7
    assert all(min(shape) == 4 for shape in shapes.values())
    assert {n for n, p in job.model.params.items() if not p.any()} == {
        name for name in shapes if "lora_B" in name
    }
    state = SeatState.initial(job.model, seat_layout(manifest))
    assert len(state.to_bytes()) < max_state_bytes(manifest)
    trained = train_round(job.task, job.store)
    assert trained.segments == 4
    assert job.replay(trained).mismatch_at is None
    layout = UpdateLayout.of(manifest, shapes, 0)
    assert len(trained.update) == layout.encoded_length < 4 * trained_count(manifest) + 8192
    manifest, seed = bearing_none(manifest), job.task.data_seed
    record = all_standing([2], manifest)
    merged = merge(
        job.model, {2: trained.update}, record=record, data_seed=seed, manifest=manifest
    ).global_state
    before, after = (evaluate(state.params, manifest, job.store) for state in (job.model, merged))
    assert after < before


def test_a_state_that_smuggles_a_tensor_of_the_base_is_none(job: Job) -> None:
    layout, name = seat_layout(job.manifest), "model.norm.weight"
    honest = SeatState.initial(job.model, layout)
    odd = SeatState(
        {**honest.params, name: torch.ones(32)}, honest.m, honest.v, honest.feedback, 0, 0
    )
    with pytest.raises(MalformedState, match=name):
        SeatState.from_bytes(odd.to_bytes(), layout)
    model = job.model
    larger = GlobalState(
        0, {**model.params, name: torch.ones(32)}, {}, {**model.exponents, name: -10}
    )
    with pytest.raises(MalformedState):
        GlobalState.from_bytes(larger.to_bytes(), layout.params)


# ----------------------------------------------------------------------------------- the base


def based_on(job: Job, cid: Cid) -> Manifest:
    init = job.manifest.init.model_copy(update={"cid": cid.to_bytes()})
    return job.manifest.model_copy(update={"init": init})


def blob(params: dict[str, Tensor]) -> bytes:
    return b"".join(write_blob("atoll.params.v1", {}, params))


WRONG: dict[str, tuple[Callable[[dict[str, Tensor]], bytes], str]] = {
    "one bit": (lambda p: blob({**p, GAIN: p[GAIN].nextafter(p[GAIN] * 2)}), "another root"),
    "a tensor less": (lambda p: blob({n: t for n, t in p.items() if n != GAIN}), "not those"),
    "a tensor more": (lambda p: blob({**p, "model.z": torch.ones(2)}), "not those"),
    "another shape": (lambda p: blob({**p, GAIN: torch.ones(31)}), "not those"),
    "another type": (lambda p: blob({**p, GAIN: p[GAIN].long()}), "not those"),
    "not a number": (lambda p: blob({**p, GAIN: p[GAIN] * torch.nan}), "not finite"),
    "a byte less": (lambda p: blob(p)[:-1], "header asks for"),
    "a byte more": (lambda p: blob(p) + b"\0", "header asks for"),
    "nothing": (lambda p: b"", "does not begin"),
    "a header too long": (lambda p: b"ATOLLTN1\xff\xff\xff\xff" + blob(p)[12:], "does not fit"),
    "another start": (lambda p: b"x" + blob(p)[1:], "does not begin"),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_base_is_this_jobs_fault_alone(job: Job, folder: Path, name: str) -> None:
    make, words = WRONG[name]
    params = read_params(folder / "base", job.manifest.model)
    manifest = based_on(job, job.store.add_bytes(make(params)))
    with pytest.raises(MalformedState, match=words):
        check_data(manifest.to_bytes(), str(job.store.root))
    check_data(job.manifest.to_bytes(), str(job.store.root))


def test_a_base_that_is_withheld_is_named(job: Job) -> None:
    absent = Cid.of(b"nobody has this base", RAW)
    with pytest.raises(NotFound, match=str(absent)):
        open_base(based_on(job, absent), job.store)


def test_the_first_model_is_the_drawn_adapters(job: Job) -> None:
    ready = make_initial_state(job.manifest.to_bytes(), str(job.store.root))
    assert ready.digest == job.model.digest()
    other = job.manifest.init.model_copy(update={"seed": 4})
    again = job.of(job.manifest.model_copy(update={"init": other}))
    assert again.model.digest() != job.model.digest()


ODD: dict[str, tuple[dict[str, Any], str]] = {
    "rank 0": ({"rank": 0}, "greater than or equal to 1"),
    "a rank above the smaller dimension": ({"rank": 25}, "above 24"),
    "alpha 0": ({"alpha": "0"}, "is not in"),
    "an alpha beyond bounds": ({"alpha": "1000.1"}, "is not in"),
    "no target": ({"targets": []}, "at least 1"),
    "a target twice": ({"targets": ["q", "q"]}, "each once"),
    "targets in another order": ({"targets": ["up", "q"]}, "not in the order"),
    "a target that does not exist": ({"targets": ["q", "head"]}, "targets"),
    "a scale besides": ({"scale": "1"}, "Extra inputs"),
}


@pytest.mark.parametrize("name", ODD)
def test_adapters_that_cannot_be_are_refused(job: Job, name: str) -> None:
    changes, words = ODD[name]
    plain = job.manifest.model_dump()
    plain["lora"] = plain["lora"] | changes
    with pytest.raises(ManifestError, match=words):
        Manifest.from_bytes(encode(plain))


def test_adapters_and_their_two_beginnings_come_together(job: Job) -> None:
    plain = job.manifest.model_dump()
    drawn = {"seed": 1, "cid": None, "root": None}
    content = plain["init"] | {"seed": None}
    for changes in ({"lora": None}, {"init": drawn}, {"init": content}):
        with pytest.raises(ManifestError, match="for adapters"):
            Manifest.from_bytes(encode(plain | changes))
    relu = plain["model"] | {"mlp": "relu2"}
    with pytest.raises(ManifestError, match="no gate"):
        Manifest.from_bytes(encode(plain | {"model": relu}))
    assert Manifest.from_bytes(job.manifest.to_bytes()) == job.manifest


def test_the_largest_alpha_is_a_job_like_any_other(job: Job) -> None:
    lora = LoraSpec(rank=1, alpha="1000", targets=("q", "down"))
    loud = job.of(job.manifest.model_copy(update={"lora": lora}))
    loud = loud.with_inner(lr="10000", clip="1000")
    assert loud.replay(train_round(loud.task, loud.store)).mismatch_at is None


def test_a_machine_is_timed_by_adapters_where_they_are_trained(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_pace, "MIN_SECONDS", 0.01)
    found = measure_pace.measure(job.manifest)
    trained = train_round(job.task, job.store)
    assert found["update_bytes"] == len(trained.update)
    assert found["parameters"] == param_count(job.manifest.model) > trained_count(job.manifest)
    assert found["step_seconds"] > 0
    assert "kept" not in found  # a submitter's question, for which members do not train


def test_what_a_wrong_grid_leaves_of_an_update_is_found(job: Job) -> None:
    assert measure_pace.kept_share(on_grid(job.manifest, -12)) > 0.95
    assert measure_pace.kept_share(on_grid(job.manifest, -20)) < 0.1  # clipped
    assert measure_pace.kept_share(on_grid(job.manifest, 0)) == 0.0  # rounded away


def on_grid(manifest: Manifest, exponent: int) -> Manifest:
    starts = TensorExponents(embedding=exponent, matrix=exponent, vector=exponent)
    bounds = {"min_exponent": -30, "max_exponent": 0}
    codec = manifest.codec.model_copy(update={"exponents": starts} | bounds)
    return manifest.model_copy(update={"codec": codec})


# ------------------------------------------------------------------------------------ the result


@pytest.mark.parametrize(("alpha", "targets"), [("8", ALL), ("0.5", ["q", "up"])])
def test_peft_opens_the_result_with_the_same_logits(
    job: Job, folder: Path, tmp_path: Path, alpha: str, targets: list[Any]
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    lora = LoraSpec(rank=3, alpha=alpha, targets=tuple(targets))
    manifest = job.manifest.model_copy(update={"lora": lora})
    changed = job.of(manifest)
    adapters = moved(changed)
    export_adapters(adapters, lora, tmp_path / "adapter")
    theirs = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    with torch.no_grad():
        plain = theirs(ids()).logits
        peft = PeftModel.from_pretrained(theirs, str(tmp_path / "adapter"))
        expected = peft(ids()).logits
    base = native_base(manifest, job)
    found = forward(adapters, ids(), manifest.model, NativeOps(), base=base)
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)
    assert (expected - plain).abs().max() > 0.1
    trained = {n for n, _ in peft.named_parameters() if "lora_" in n}
    assert len(trained) == len(adapters)

    weights = merged_weights(adapters, manifest, job.store)
    assert weights.keys() == param_shapes(manifest.model).keys()
    export_model(weights, manifest.model, belongings(folder / "base"), tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    with torch.no_grad():
        torch.testing.assert_close(merged(ids()).logits, expected, atol=2e-4, rtol=2e-4)


def test_drawn_adapters_are_drawn_as_other_weights_are(job: Job) -> None:
    shapes = {"l.lora_A.weight": (4, 500), "l.lora_B.weight": (500, 4)}
    params = initial_params(shapes, seed=9)
    plain = initial_params({"l.lora_A.weight": (4, 500)}, seed=9)
    assert torch.equal(params["l.lora_A.weight"], plain["l.lora_A.weight"])
    assert 0.018 < params["l.lora_A.weight"].std() < 0.022
    assert not params["l.lora_B.weight"].any()
