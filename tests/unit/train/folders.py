"""Tiny Hugging Face folders, made by `transformers` as anybody makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from atoll.train.belongings import Belongings, is_belonging
from atoll.train.families import FAMILIES
from atoll.train.tokenizer import byte_tokenizer

SEQ = 24
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
_TINY: dict[str, Any] = {
    "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "bos_token_id": None,
    "eos_token_id": 0, "pad_token_id": None,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "Llama": {"model_type": "llama"},
    "Llama, scaled as 3.1": {"model_type": "llama", "rope_scaling": LLAMA3, "rope_theta": 5e5},
    "Llama, scaled linearly": {
        "model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 2.5},
    },
    "Llama with wide heads": {"model_type": "llama", "head_dim": 12},
    "SmolLM": {"model_type": "llama", "tie_word_embeddings": True, "num_key_value_heads": 4},
    "Mistral": {"model_type": "mistral", "sliding_window": None, "rms_norm_eps": 1e-6},
    "Qwen2": {"model_type": "qwen2", "rope_theta": 1e6},
    "Qwen2, tied": {"model_type": "qwen2", "tie_word_embeddings": True},
    "Qwen3": {"model_type": "qwen3", "head_dim": 12, "rope_theta": 1e6},
    "Qwen3, tied": {"model_type": "qwen3", "head_dim": 8, "tie_word_embeddings": True},
}  # fmt: skip

CONFIGS |= {
    family.title: {"model_type": name, **({"sliding_window": None} if family.has_window else {})}
    for name, family in FAMILIES.items()
    if name not in {fields["model_type"] for fields in CONFIGS.values()}
}
"""By what is special about them; a family with nothing special comes by itself."""


def belongings(folder: Path | None = None) -> Belongings:
    """What goes with the model of such a folder; without one, a tokenizer over bytes alone."""
    if folder is None:
        return Belongings({"tokenizer.json": byte_tokenizer().to_str().encode()})
    paths = [path for path in folder.iterdir() if is_belonging(path.name)]
    return Belongings({path.name: path.read_bytes() for path in paths})


def make_folder(
    folder: Path, name: str, dtype: torch.dtype = torch.float32, shard: str = "1GB", **changes: Any
) -> Any:
    """Writes a random model of that kind, and gives it: every parameter moves the logits."""
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = _TINY | CONFIGS[name] | changes
    torch.manual_seed(len(name))
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**fields))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape) / 6 if p.dim() > 1 else p + torch.randn(p.shape) / 4)
    model = model.to(dtype)
    model.save_pretrained(folder, max_shard_size=shard)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return model.eval()
