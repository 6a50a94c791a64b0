"""The model computes what Hugging Face's LlamaForCausalLM and ArceeForCausalLM compute."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.unit.train.factories import small_model
from tests.unit.train.folders import belongings

from atoll.errors import StorageError
from atoll.numerics.init import initial_params
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps
from atoll.numerics.state_layout import param_shapes
from atoll.protocol.model_spec import ModelSpec
from atoll.train.export import FILES, export_model

SPECS = {
    "tied, shared key heads": small_model(),
    "untied": small_model(tied=False),
    "squared ReLU": small_model(mlp="relu2"),
    "squared ReLU, untied": small_model(mlp="relu2", tied=False),
    "a key head each": small_model(kv_heads=2),
    "other base and eps": small_model(rope_base=500, norm_eps="0.001"),
    "demo-sized": small_model(
        width=64, layers=4, heads=4, kv_heads=4, head_dim=16, ffn=176, seq=64
    ),
}


def random_params(spec: ModelSpec) -> dict[str, torch.Tensor]:
    """Weights large enough that every part of the model moves the logits."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: p * 8 if p.dim() > 1 else p + torch.randn(p.shape, generator=generator) / 4
        for name, p in initial_params(param_shapes(spec), seed=3).items()
    }


@pytest.mark.parametrize("name", SPECS)
def test_an_exported_model_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    spec = SPECS[name]
    params = random_params(spec)
    export_model(params, spec, belongings(), tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert {n for n, _ in theirs.named_parameters()} == params.keys()
    ids = torch.randint(0, 256, (3, spec.seq), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = theirs(ids).logits
        found = forward(params, ids, spec, NativeOps())
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)


def test_an_exported_tokenizer_opens_and_inverts(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    spec = small_model()
    export_model(random_params(spec), spec, belongings(), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "def f(x):\n\treturn 'ü€𝄞'  # \x00\x7f"
    ids = tokenizer(text)["input_ids"]
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "llama"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    spec = small_model()
    with pytest.raises(StorageError, match="file"):
        export_model(random_params(spec), spec, belongings(), tmp_path / "file")


def test_a_position_sees_nothing_after_it() -> None:
    spec = small_model()
    params = random_params(spec)
    ids = torch.arange(spec.seq)[None]
    changed = ids.clone()
    changed[0, 10:] += 100
    ops = NativeOps()
    before, after = forward(params, ids, spec, ops), forward(params, changed, spec, ops)
    assert torch.equal(before[:, :10], after[:, :10])
    assert not torch.equal(before[:, 10], after[:, 10])
