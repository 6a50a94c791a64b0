"""The result as Hugging Face's `AutoModelForCausalLM.from_pretrained` opens it.

A model comes back as the family that it was, wherever it is fetched: what its folder said beside
the weights is content of the job. One whose weights were drawn and that differs from Llama in
nothing that is computed is a Llama.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

import torch
from safetensors.torch import save_file

from atoll.errors import StorageError
from atoll.numerics.shards import Held
from atoll.protocol.model_spec import ModelSpec
from atoll.train.belongings import (
    CONFIG,
    GENERATION,
    MORE_TEMPLATES,
    OF_TOKENIZER,
    TOKENIZER,
    Belongings,
)
from atoll.train.families import config_like, config_of
from atoll.train.said_once import parse

Dtype = Literal["float32", "bfloat16", "float16"]
_SETTINGS: Final = "tokenizer_config.json"
_DTYPES: Final[dict[Dtype, torch.dtype]] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

FILES = (
    "model.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def export_model(
    params: Held,
    spec: ModelSpec,
    belongings: Belongings,
    folder: Path,
    *,
    dtype: Dtype = "float32",
) -> None:
    """Writes `FILES` into `folder`, and what else belongs to the model; the folder is created, and
    existing files are replaced.

    Args:
        belongings: tokenizer, template and configuration; its config.json gives family, context and
            special tokens, where it is of this model.
        dtype: what the weights are rounded to, to nearest, ties to even.

    Raises:
        ConfigError: no family has one of the model's parts.
        StorageError: the folder cannot be written.
    """
    config = _object(belongings, CONFIG)
    like = None if config is None else config_like(config, spec, dtype)
    document = config_of(spec, dtype) if like is None else like
    write_belongings(belongings, spec, folder)
    try:
        (folder / CONFIG).write_bytes(_json(document))
        kind = _DTYPES[dtype]
        tensors = {name: p.detach().to(kind).contiguous() for name, p in params.items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    except OSError as error:
        raise StorageError(f"cannot write the model to {folder}: {error}") from error


def write_belongings(belongings: Belongings, spec: ModelSpec, folder: Path) -> None:
    """Writes all that belongs to a model but its config.json; what an earlier one had goes.

    A stranger wrote them: what is no JSON where it should be is excluded, and so is a name of code
    that `transformers` would fetch and run.

    Raises:
        StorageError: the folder cannot be written.
    """
    files = {
        GENERATION: _generation(belongings, spec),
        _SETTINGS: _settings(belongings, spec),
    }
    for name, content in belongings.files.items():
        is_checked = name.endswith(".json") and name != TOKENIZER
        if name in (CONFIG, *files) or (is_checked and _object(belongings, name) is None):
            continue
        files[name] = content
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in (*map(folder.joinpath, OF_TOKENIZER), *(folder / MORE_TEMPLATES).glob("*")):
            path.unlink(missing_ok=True)
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
    except OSError as error:
        raise StorageError(f"cannot write the model to {folder}: {error}") from error


def _generation(belongings: Belongings, spec: ModelSpec) -> bytes:
    """generation_config.json, byte for byte where it is of a model that was there before."""
    said = _object(belongings, GENERATION)
    if said is not None and CONFIG in belongings.files:
        return belongings.files[GENERATION]
    return _json({"max_length": spec.seq} | (said or {"do_sample": True}))


def _settings(belongings: Belongings, spec: ModelSpec) -> bytes:
    """tokenizer_config.json, byte for byte where nothing has to go or to come."""
    said = _object(belongings, _SETTINGS)
    if said is None:
        said = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
        }
    elif "auto_map" not in said and CONFIG in belongings.files:
        return belongings.files[_SETTINGS]
    length = {} if CONFIG in belongings.files else {"model_max_length": spec.seq}
    return _json(length | {key: value for key, value in said.items() if key != "auto_map"})


def _object(belongings: Belongings, name: str) -> dict[str, Any] | None:
    """What a file of JSON says; None where there is no such file, or no object in it."""
    try:
        found = parse(belongings.files[name])
    except (KeyError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
