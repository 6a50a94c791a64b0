"""The result as Hugging Face's `AutoModelForCausalLM.from_pretrained` opens it.

A model comes back as the family that it was; one that differs from Llama in nothing that is
computed comes back as Llama, unless the folder that it came from is given.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final, Literal

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from atoll.bits.state import Tensors
from atoll.errors import ConfigError, StorageError
from atoll.law.manifest import ModelSpec
from atoll.train.families import config_of
from atoll.train.pretrained import read_json, read_spec

Dtype = Literal["float32", "bfloat16", "float16"]
_DTYPES: Final[dict[Dtype, torch.dtype]] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_COPIED: Final = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)
"""What a folder says beside its model: how text becomes tokens, and when an answer ends."""

FILES = (
    "model.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def export_model(
    params: Tensors,
    spec: ModelSpec,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    dtype: Dtype = "float32",
    like: Path | None = None,
) -> None:
    """Writes `FILES` into `folder`, which is created; existing ones are replaced.

    Args:
        dtype: what the weights are rounded to, to nearest, ties to even.
        like: the folder that the model came from, whose configuration is kept: its family, its
            context, its special tokens and its chat template.

    Raises:
        ConfigError: `like` is another model, or no family has one of these parts.
        StorageError: the folder cannot be written.
    """
    config = config_of(spec, dtype) if like is None else _config_like(like, spec, dtype)
    documents: dict[str, dict[str, Any]] = {
        "config.json": config,
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
        kept = [] if like is None else [like / name for name in _COPIED]
        for path in kept:
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
        kind = _DTYPES[dtype]
        tensors = {name: p.detach().to(kind).contiguous() for name, p in params.items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    except OSError as error:
        raise StorageError(f"cannot write the model to {folder}: {error}") from error


def _config_like(like: Path, spec: ModelSpec, dtype: Dtype) -> dict[str, Any]:
    """That folder's config.json, of weights in another dtype."""
    if read_spec(like, spec.seq) != spec:
        raise ConfigError(f"{like / 'config.json'} is of another model")
    config = read_json(like / "config.json")
    config.pop("torch_dtype", None)  # its name before transformers 4.56
    return config | {"dtype": dtype}
