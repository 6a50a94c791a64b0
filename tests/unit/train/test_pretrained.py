"""Hugging Face folders: conversion there and back, the same logits, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.unit.train.folders import CONFIGS, SEQ, belongings, make_folder

from atoll.errors import ConfigError
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps, operations
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.export import export_model
from atoll.train.pretrained import (
    USUAL_SEQ,
    PretrainedWeights,
    prepare_init,
    read_params,
    read_spec,
)

INT8_DISTANCE = 0.05
"""Root mean square of what the int8 forward pass adds to logits, over that of the logits."""
Change = Callable[[Path], object]


def ids() -> torch.Tensor:
    return torch.randint(0, 256, (3, SEQ), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_gives_the_logits_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = make_folder(tmp_path, name)
    spec = read_spec(tmp_path, SEQ)
    params, ops = read_params(tmp_path, spec), operations()
    assert params.keys() == dict(theirs.named_parameters()).keys()
    with torch.no_grad():
        expected = theirs(ids()).logits
        native = forward(params, ids(), spec, NativeOps())
        exact = forward(params, ids(), spec, ops)
    assert expected.std() > 0.1
    torch.testing.assert_close(native, expected, atol=2e-5, rtol=2e-5)
    assert (exact - expected).square().mean().sqrt() < INT8_DISTANCE * expected.std()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", CONFIGS)
def test_there_and_back_is_bit_for_bit(name: str, dtype: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    make_folder(tmp_path / "in", name, getattr(torch, dtype))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "in", dtype=getattr(torch, dtype))
    spec = read_spec(tmp_path / "in", SEQ)
    params = read_params(tmp_path / "in", spec)
    assert all(p.dtype == torch.float32 for p in params.values())
    for like in (None, tmp_path / "in"):
        out = tmp_path / f"out {like is None}"
        export_model(params, spec, belongings(like), out, dtype=dtype)
        before = load_file(tmp_path / "in" / "model.safetensors")
        after = load_file(out / "model.safetensors")
        assert before.keys() == after.keys()
        assert all(before[n].view(torch.int8).equal(after[n].view(torch.int8)) for n in after)
        assert read_spec(out, SEQ) == spec
        opened = AutoModelForCausalLM.from_pretrained(out, dtype=getattr(torch, dtype))
        same = like is not None or "Mistral" not in name
        assert (type(opened) is type(theirs)) == same
        with torch.no_grad():
            assert torch.equal(opened(ids()).logits, theirs(ids()).logits)


def test_the_folder_it_came_from_gives_its_context_and_special_tokens(tmp_path: Path) -> None:
    make_folder(tmp_path / "in", "Qwen3", torch.bfloat16)
    spec = read_spec(tmp_path / "in", SEQ)
    params = read_params(tmp_path / "in", spec)
    (tmp_path / "in" / "chat_template.jinja").write_text("{{ messages }}")
    export_model(params, spec, belongings(tmp_path / "in"), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["max_position_embeddings"], config["eos_token_id"]) == (256, 0)
    assert config["dtype"] == "float32"
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == "{{ messages }}"
    make_folder(tmp_path / "other", "Qwen3", head_dim=8)
    export_model(params, spec, belongings(tmp_path / "other"), tmp_path / "out")
    assert read_spec(tmp_path / "out", SEQ) == spec  # whatever a stranger's config.json says
    assert not (tmp_path / "out" / "chat_template.jinja").exists()  # it was an earlier model's


def test_parts_that_no_family_has_together_are_not_exported(tmp_path: Path) -> None:
    make_folder(tmp_path, "Qwen3")
    spec = read_spec(tmp_path, SEQ).model_copy(update={"qkv_bias": True})
    with pytest.raises(ConfigError, match="no family"):
        export_model({}, spec, belongings(), tmp_path / "out")


def test_shards_are_the_same_weights(tmp_path: Path) -> None:
    make_folder(tmp_path / "one", "Qwen2", torch.bfloat16)
    make_folder(tmp_path / "many", "Qwen2", torch.bfloat16, shard="10KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    spec = read_spec(tmp_path / "one", SEQ)
    one, many = (read_params(tmp_path / name, spec) for name in ("one", "many"))
    assert one.keys() == many.keys()
    assert all(torch.equal(one[name], many[name]) for name in one)


def test_preparing_a_folder_pins_its_weights_once(tmp_path: Path) -> None:
    make_folder(tmp_path / "in", "Qwen3", torch.bfloat16)
    store = LocalStore(tmp_path / "store", sync=False)
    prepared = prepare_init(tmp_path / "in", SEQ, store)
    assert prepared.model == read_spec(tmp_path / "in", SEQ)
    assert prepared.tokenizer == tmp_path / "in" / "tokenizer.json"
    cid = Cid.from_bytes(prepared.init.cid or b"")
    assert [pin.cid for pin in store.pins()] == [cid] and store.has(cid)
    assert prepare_init(tmp_path / "in", SEQ, store) == prepared
    assert len(store.pins()) == 1


def test_a_sequence_is_as_long_as_the_context_or_as_is_usual(tmp_path: Path) -> None:
    make_folder(tmp_path, "Llama")
    assert read_spec(tmp_path, None).seq == 256
    put(max_position_embeddings=1 << 17)(tmp_path)
    assert read_spec(tmp_path, None).seq == USUAL_SEQ


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    make_folder(tmp_path / "in", "Llama")
    (tmp_path / "in" / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        prepare_init(tmp_path / "in", SEQ, LocalStore(tmp_path / "store"))


def put(**fields: object) -> Change:
    """Writes fields over those of config.json; ... takes one out."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text()) | fields
        path.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))

    return change


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def rewrite(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return rewrite


def index(text: str) -> Change:
    """Puts an index in place of the file of weights."""

    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(text)

    return change


def retyped(dtype: torch.dtype) -> Change:
    name = "model.norm.weight"
    return weights(lambda tensors: tensors.update({name: tensors[name].to(dtype)}))


SCALED = {"rope_theta": 10000.0, "rope_type": "yarn", "factor": 4.0}
REFUSED: dict[str, tuple[str, Change, str]] = {
    "another family": ("Llama", put(model_type="gpt2"), "'gpt2' are not supported"),
    "no family at all": ("Llama", put(model_type=...), "None are not supported"),
    "experts": ("Qwen3", put(model_type="qwen3_moe"), "'qwen3_moe' are not supported"),
    "SmolLM3": ("SmolLM", put(model_type="smollm3"), "'smollm3' are not supported"),
    "a classifier": (
        "Llama", put(architectures=["LlamaForSequenceClassification"]), "SequenceClassification",
    ),
    "Mistral's window": ("Mistral", put(sliding_window=4096), "sliding window"),
    "Mistral's window, unsaid": ("Mistral", put(sliding_window=...), "sliding window"),
    "Qwen's window": ("Qwen2", put(use_sliding_window=True), "sliding window"),
    "a window in a layer": (
        "Qwen3", put(layer_types=["full_attention", "sliding_attention"]), "sliding window",
    ),
    "another activation": ("Llama", put(hidden_act="gelu"), "'gelu'"),
    "attention biases elsewhere": ("Llama", put(attention_bias=True), "attention_bias"),
    "biases in the MLP": ("Llama", put(mlp_bias=True), "mlp_bias"),
    "other positions": ("Llama", put(rope_parameters=SCALED), "'yarn'"),
    "other positions, as before 5.0": (
        "Llama", put(rope_parameters=..., rope_scaling={"type": "dynamic", "factor": 2}), "dynamic",
    ),
    "a scaling without its factor": (
        "Llama", put(rope_parameters={"rope_type": "linear", "rope_theta": 1e4}), "lacks factor",
    ),
    "a scaling that shortens": (
        "Llama", put(rope_parameters={"rope_type": "linear", "factor": 0.5}), "rope_scaling",
    ),
    "half a head rotated": ("Llama", put(partial_rotary_factor=0.5), "partial_rotary_factor"),
    "a broken base": (
        "Llama", put(rope_parameters={"rope_type": "default", "rope_theta": 1.5}), "rope_theta",
    ),
    "a base without end": (
        "Llama", put(rope_parameters={"rope_type": "default", "rope_theta": 1e999}), "rope_theta",
    ),
    "a scaling that is a list": ("Llama", put(rope_parameters={"rope_type": []}), "rope_type"),
    "an architecture that is a number": ("Llama", put(architectures=1), "not a list"),
    "layers that are a number": ("Qwen3", put(layer_types=1), "not a list"),
    "quantised weights": (
        "Llama", put(quantization_config={"quant_method": "gptq"}), "quantization_config",
    ),
    "heads beyond the law": ("Llama", put(head_dim=7), "even head size"),
    "no width": ("Llama", put(hidden_size=...), "hidden_size"),
    "a width that is text": ("Llama", put(hidden_size="32"), "hidden_size"),
    "no config": ("Llama", lambda folder: (folder / "config.json").unlink(), "cannot read"),
    "a config that is a list": (
        "Llama", lambda folder: (folder / "config.json").write_text("[]"), "not a JSON object",
    ),
    "a config without end": (
        "Llama", lambda folder: (folder / "config.json").write_text("[" * 100_000), "nests deeper",
    ),
    "no weights": (
        "Llama", lambda folder: (folder / "model.safetensors").unlink(), "has neither",
    ),
    "weights cut short": (
        "Llama",
        lambda folder: (folder / "model.safetensors").write_bytes(
            (folder / "model.safetensors").read_bytes()[:-1]
        ),
        "cannot read",
    ),
    "a tensor less": (
        "Qwen2",
        weights(lambda t: t.pop("model.layers.0.self_attn.q_proj.bias")),
        "lacks the tensor model.layers.0.self_attn.q_proj.bias",
    ),
    "a tensor more": (
        "Llama",
        weights(lambda t: t.update({"model.layers.0.self_attn.o_proj.bias": torch.zeros(32)})),
        "has beside the model's the tensor model.layers.0.self_attn.o_proj.bias",
    ),
    "another shape": (
        "Llama", weights(lambda t: t.update({"model.norm.weight": torch.ones(31)})), r"is \[31\]",
    ),
    "fp64": ("Llama", retyped(torch.float64), "F64"),
    "int8": ("Llama", retyped(torch.int8), "I8"),
    "eight-bit floats": ("Llama", retyped(torch.float8_e4m3fn), "F8_E4M3"),
    "a number that is not finite": (
        "Llama",
        weights(lambda t: t["model.norm.weight"].__setitem__(3, torch.inf)),
        "not finite",
    ),
    "a head that is tied and is not": (
        "SmolLM", weights(lambda t: t.update({"lm_head.weight": torch.ones(256, 32)})), "ties them",
    ),
    "an index that leads away": (
        "Llama",
        index(json.dumps({"weight_map": {"model.norm.weight": "../model.safetensors"}})),
        "no file beside it",
    ),
    "an index of lists": (
        "Llama",
        index(json.dumps({"weight_map": {"model.norm.weight": []}})),
        "no file beside it",
    ),
    "an index of nothing": (
        "Llama",
        index("{}"),
        "no weight_map",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_covered_is_refused_by_name(name: str, tmp_path: Path) -> None:
    kind, change, words = REFUSED[name]
    make_folder(tmp_path / "in", kind)
    store = LocalStore(tmp_path / "store", sync=False)
    prepare_init(tmp_path / "in", SEQ, store)
    change(tmp_path / "in")
    with pytest.raises(ConfigError, match=words):
        prepare_init(tmp_path / "in", SEQ, store)
    assert len(store.pins()) == 1


def test_what_old_checkpoints_store_besides_is_excluded(tmp_path: Path) -> None:
    make_folder(tmp_path, "SmolLM")
    spec = read_spec(tmp_path, SEQ)
    before = read_params(tmp_path, spec)
    extra = {
        "lm_head.weight": before["model.embed_tokens.weight"].clone(),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4),
    }
    weights(lambda tensors: tensors.update(extra))(tmp_path)
    after = read_params(tmp_path, spec)
    assert after.keys() == before.keys()


def test_weights_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    make_folder(tmp_path, "Llama", torch.float16)
    with PretrainedWeights(tmp_path, read_spec(tmp_path, SEQ)) as lazy:
        assert len(lazy) == len(list(lazy))
        assert lazy["model.norm.weight"].dtype == torch.float32
        with pytest.raises(KeyError):
            lazy["lm_head.bias"]
