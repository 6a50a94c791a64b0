"""Folders are read as `transformers` reads them: each family's defaults, nothing said twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.unit.train.folders import LLAMA3, SEQ, make_folder

from atoll.errors import ConfigError
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps
from atoll.storage.local import LocalStore
from atoll.train.families import FAMILIES, spec_of
from atoll.train.pretrained import prepare_init, read_params, read_spec

OPTIONAL = (
    "rms_norm_eps", "num_key_value_heads", "head_dim", "hidden_act", "tie_word_embeddings",
    "rope_parameters", "sliding_window", "attention_bias", "mlp_bias", "use_sliding_window",
    "layer_types", "max_position_embeddings", "architectures",
)  # fmt: skip
"""What `save_pretrained` writes of a family and a person may leave out."""
Change = Callable[[dict[str, Any]], object]


def config_at(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def made(folder: Path, kind: str, **changes: Any) -> None:
    """A small folder of that family, in which every parameter moves the logits."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = {
        "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4,
    }  # fmt: skip
    no_window = {"sliding_window": None} if FAMILIES[kind].has_window else {}
    torch.manual_seed(3)
    config = AutoConfig.for_model(kind, **(shape | no_window | changes))
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape) / 6 if p.dim() > 1 else p + torch.randn(p.shape) / 4)
    model.save_pretrained(folder)


def logits_apart(folder: Path) -> float:
    """How far our logits of a folder are from those of transformers."""
    from transformers import AutoModelForCausalLM

    ids = torch.randint(0, 256, (2, SEQ), generator=torch.Generator().manual_seed(0))
    spec = read_spec(folder, SEQ)
    with torch.no_grad():
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(ids).logits
        ours = forward(read_params(folder, spec), ids, spec, NativeOps())
    return float((theirs - ours).abs().max())


def reads_as_theirs(kind: str, config: dict[str, Any]) -> bool:
    """Whether a config is read as that family's class reads it; False where it is refused."""
    from transformers import AutoConfig

    try:
        ours = spec_of(config, SEQ)
    except ConfigError:
        return False
    theirs = AutoConfig.for_model(**config)
    heads = theirs.num_attention_heads
    head_dim = getattr(theirs, "head_dim", None) or theirs.hidden_size // heads
    assert ours.kv_heads == (theirs.num_key_value_heads or heads)
    assert (ours.head_dim, ours.tied) == (head_dim, theirs.tie_word_embeddings)
    assert float(ours.norm_eps) == theirs.rms_norm_eps
    assert ours.rope_base == theirs.rope_parameters["rope_theta"]
    assert {"none": "default"}.get(ours.rope_scaling.kind, ours.rope_scaling.kind) == (
        theirs.rope_parameters["rope_type"]
    )
    assert getattr(theirs, "sliding_window", None) is None
    assert FAMILIES[kind].activation == theirs.hidden_act
    return True


@pytest.mark.parametrize("kind", FAMILIES)
def test_any_fields_excluded_are_the_familys_own(kind: str, tmp_path: Path) -> None:
    """Every pair of optional fields, every single one, and all at once."""
    made(tmp_path, kind)
    whole = config_at(tmp_path)
    held = [name for name in OPTIONAL if name in whole]
    assert len(held) >= 6
    gone = chain.from_iterable(combinations(held, size) for size in (0, 1, 2, 3, len(held)))
    read = [
        reads_as_theirs(kind, {k: v for k, v in whole.items() if k not in names}) for names in gone
    ]
    assert read[0] and sum(read) > len(held)


@pytest.mark.parametrize(
    "name", ["rms_norm_eps", "num_key_value_heads", "head_dim", "rope_parameters"]
)
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_field_excluded_gives_the_same_logits_or_a_refusal(
    kind: str, name: str, tmp_path: Path
) -> None:
    family = FAMILIES[kind]
    usual: dict[str, Any] = {"head_dim": family.head_dim} if family.head_dim else {}
    if (heads := family.kv_heads) is not None:
        usual |= {"num_key_value_heads": heads, "num_attention_heads": heads}
        usual |= {"hidden_size": 4 * heads}
    made(tmp_path, kind, **usual)
    config = config_at(tmp_path)
    config.pop(name, None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert logits_apart(tmp_path) < 1e-4


def test_a_default_that_is_not_the_weights_is_refused(tmp_path: Path) -> None:
    """Mistral has 8 heads of keys where nothing is said, and these weights 2."""
    make_folder(tmp_path, "Mistral")
    config = config_at(tmp_path)
    del config["num_key_value_heads"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"config\.json: heads|kv_heads"):
        prepare_init(tmp_path, SEQ, LocalStore(tmp_path / "store", sync=False))


LINEAR = {"rope_type": "linear", "factor": 2.0}
TWICE: dict[str, tuple[Change, str | None]] = {
    "two scalings": (
        lambda c: c.update(rope_parameters=LLAMA3, rope_scaling=LINEAR), "rope_parameters and rope",
    ),
    "one scaling under both names": (
        lambda c: c.update(rope_parameters=LINEAR, rope_scaling=LINEAR), None,
    ),
    "two bases": (
        lambda c: c.update(rope_parameters={"rope_theta": 1e4}, rope_theta=1e6), "rope_theta",
    ),
    "one base in both places": (
        lambda c: c.update(rope_parameters={"rope_theta": 1e6}, rope_theta=1e6), None,
    ),
    "two kinds of scaling": (
        lambda c: c.update(rope_parameters=LINEAR | {"type": "dynamic"}), "rope_type and type",
    ),
    "two contexts before scaling": (
        lambda c: c.update(rope_parameters=LLAMA3, original_max_position_embeddings=64),
        "original_max_position_embeddings",
    ),
    "positions by kind of layer": (
        lambda c: c.update(rope_parameters={"full_attention": {"rope_theta": 1e6}}), "each kind",
    ),
    "a model that looks ahead": (lambda c: c.update(is_causal=False), "is_causal"),
    "weights of another name": (
        lambda c: c.update(transformers_weights="other.safetensors"), "transformers_weights",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWICE)
def test_what_a_config_says_twice_agrees_or_is_refused(name: str, tmp_path: Path) -> None:
    change, words = TWICE[name]
    make_folder(tmp_path, "Llama")
    config = config_at(tmp_path)
    change(config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    if words is None:
        assert logits_apart(tmp_path) < 1e-4
    else:
        with pytest.raises(ConfigError, match=words):
            read_spec(tmp_path, SEQ)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json"])
def test_a_key_that_stands_twice_is_refused(file: str, tmp_path: Path) -> None:
    """A reader takes the first or the last, and which depends on the reader."""
    make_folder(tmp_path, "Qwen2", shard="10KB")
    text = (tmp_path / file).read_text()
    key = "rms_norm_eps" if file == "config.json" else "model.norm.weight"
    line = next(line for line in text.splitlines() if key in line).rstrip(",")
    (tmp_path / file).write_text(text.replace(line, f"{line},\n{line}"))
    with pytest.raises(ConfigError, match=f"'{key}' is said twice"):
        read_params(tmp_path, read_spec(tmp_path, SEQ))


def test_one_file_goes_before_the_shards_of_earlier_weights(tmp_path: Path) -> None:
    make_folder(tmp_path, "Llama", shard="10KB")
    make_folder(tmp_path / "new", "SmolLM", tie_word_embeddings=False, num_key_value_heads=2)
    (tmp_path / "new" / "model.safetensors").rename(tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    assert logits_apart(tmp_path) < 1e-4
    # Beside what other libraries read, it is the one that is taken, there and here.
    torch.save({"model.norm.weight": torch.zeros(32)}, tmp_path / "pytorch_model.bin")
    assert logits_apart(tmp_path) < 1e-4


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    make_folder(tmp_path, "Llama", shard="10KB")
    spec = read_spec(tmp_path, SEQ)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    name = "model.norm.weight"
    other = next(file for file in index.values() if file != index[name])
    tensors = load_file(tmp_path / other)
    save_file(tensors | {name: torch.ones(32)}, tmp_path / other, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=f"{name} is in {other}"):
        read_params(tmp_path, spec)


def test_an_adapter_beside_the_weights_is_refused(tmp_path: Path) -> None:
    make_folder(tmp_path, "Llama")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="adds that adapter"):
        prepare_init(tmp_path, SEQ, LocalStore(tmp_path / "store", sync=False))
