"""The result as Hugging Face's `AutoModelForCausalLM.from_pretrained` opens it."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file
from tokenizers import Tokenizer

from atoll.bits.state import Tensors
from atoll.errors import StorageError
from atoll.law.manifest import ModelSpec

FILES = (
    "model.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def export_model(params: Tensors, spec: ModelSpec, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes `FILES` into `folder`, which is created; existing ones are replaced.

    Raises:
        StorageError: the folder cannot be written.
    """
    documents = {
        "config.json": model_config(spec),
        "generation_config.json": {"do_sample": True, "max_length": spec.seq},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": spec.seq,
            "clean_up_tokenization_spaces": False,
        },
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, document in documents.items():
            (folder / name).write_text(json.dumps(document, indent=2) + "\n")
        (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True))
        tensors = {name: p.detach().contiguous() for name, p in params.items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    except OSError as error:
        raise StorageError(f"cannot write the model to {folder}: {error}") from error


def model_config(spec: ModelSpec) -> dict[str, object]:
    """The `LlamaConfig` of this architecture, or the `ArceeConfig` of an MLP without a gate.

    Arcee is Llama with a squared ReLU in the MLP; transformers has it from 4.54 on.
    """
    gated = spec.mlp == "swiglu"
    return {
        "architectures": ["LlamaForCausalLM" if gated else "ArceeForCausalLM"],
        "model_type": "llama" if gated else "arcee",
        "vocab_size": spec.vocab,
        "hidden_size": spec.width,
        "intermediate_size": spec.ffn,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "max_position_embeddings": spec.seq,
        "rms_norm_eps": float(spec.norm_eps),
        "rope_theta": float(spec.rope_base),
        "tie_word_embeddings": spec.tied,
        "hidden_act": "silu" if gated else "relu2",
        "attention_bias": False,
        "mlp_bias": False,
        "initializer_range": 0.02,
        "bos_token_id": None,
        "eos_token_id": None,
        "dtype": "float32",
    }
