"""Trained adapters as PEFT opens them, and as weights of the model that they were trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from atoll.errors import StorageError
from atoll.numerics.shards import Held
from atoll.numerics.state import Tensors
from atoll.numerics.state_layout import DOWN, UP
from atoll.protocol.families import LINEARS
from atoll.protocol.manifest import Manifest
from atoll.protocol.model_spec import LoraSpec
from atoll.storage.local import LocalStore
from atoll.train.open_base import read_weights

_PREFIX = "base_model.model."
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json")


def export_adapters(params: Held, lora: LoraSpec, folder: Path) -> None:
    """Writes `ADAPTER_FILES` into `folder`, which is created; existing ones are replaced.

    `PeftModel.from_pretrained(model, folder)` adds them to the model that the job started from.

    Raises:
        StorageError: the folder cannot be written.
    """
    tensors = {_PREFIX + name: p.detach().contiguous() for name, p in params.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / ADAPTER_FILES[0], metadata={"format": "pt"})
        (folder / ADAPTER_FILES[1]).write_text(json.dumps(_config(lora), indent=2) + "\n")
    except OSError as error:
        raise StorageError(f"cannot write the adapters to {folder}: {error}") from error


def merged_weights(params: Held, manifest: Manifest, store: LocalStore) -> Tensors:
    """W + (alpha / rank) · B·A in fp32 for every target, and the base's other weights as they are.

    Raises:
        NotFound, CorruptBlock: a block of the base is missing or damaged.
        TooLarge, MalformedDag, MalformedState: it is not what the manifest says.
    """
    lora = manifest.lora
    if lora is None:
        raise ValueError("this job trains no adapters")
    weights = read_weights(manifest.init, manifest.model, store)
    return {name: _merged(name, weight, params, lora.scale) for name, weight in weights}


def full_weights(params: Held, manifest: Manifest, store: LocalStore) -> Held:
    """A job's model as one set of weights. Raises as `merged_weights`."""
    return params if manifest.lora is None else merged_weights(params, manifest, store)


def _merged(name: str, weight: Tensor, params: Held, scale: float) -> Tensor:
    linear = name.removesuffix(".weight")
    if linear + DOWN not in params:
        return weight
    return torch.addmm(weight, params[linear + UP], params[linear + DOWN], alpha=scale)


def _config(lora: LoraSpec) -> dict[str, Any]:
    alpha = float(lora.alpha)
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": lora.rank,
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "target_modules": [LINEARS[target].rpartition(".")[2] for target in lora.targets],
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
        "inference_mode": True,
    }
