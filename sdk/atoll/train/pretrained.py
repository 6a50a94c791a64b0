"""Hugging Face folders as the start of a job: config.json, safetensors, tokenizer.json.

Rule of this file: weights are read a tensor at a time from where they lie, and become fp32 without
a rounding; a folder that is not whole, or not of a family that is covered, is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from atoll.errors import ConfigError
from atoll.numerics.init import is_bounded, write_params
from atoll.numerics.state_layout import Shapes, param_shapes
from atoll.numerics.tensors import tree_root
from atoll.protocol.manifest import InitSpec
from atoll.protocol.model_spec import ModelSpec
from atoll.storage.local import LocalStore
from atoll.train.families import spec_of
from atoll.train.said_once import parse

WIDENED: Final = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""By safetensors' name: each number of them is one of fp32."""
USUAL_SEQ: Final = 1024
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_ADAPTER: Final = "adapter_config.json"
_HEAD: Final = "lm_head.weight"
_COMPUTED: Final = "rotary_emb.inv_freq"
"""What old checkpoints store of the positions' table, which follows from config.json."""


@dataclass(frozen=True, slots=True)
class PreparedInit:
    """A folder's weights as content.

    Attributes:
        init: for the manifest; its cid is pinned in the store.
        tokenizer: the folder's tokenizer.json.
    """

    init: InitSpec
    model: ModelSpec
    tokenizer: Path


def prepare_init(folder: Path, seq: int | None, store: LocalStore) -> PreparedInit:
    """Puts a folder's weights into the store, as the law's parameter set, and pins them.

    Args:
        folder: as `AutoModelForCausalLM.save_pretrained` and the Hub's checkpoints have it.
        seq: tokens of a training sequence; None takes the model's context, or `USUAL_SEQ`.

    Raises:
        ConfigError: the folder is not whole, or its model not one that the exact step covers.
        StorageError: the store cannot be written.
    """
    model, tokenizer = read_spec(folder, seq), folder / "tokenizer.json"
    if (folder / _ADAPTER).is_file():
        raise ConfigError(
            f"{folder} has an {_ADAPTER}: transformers adds that adapter to its weights",
            next_step="write its merge_and_unload() with save_pretrained, or take the file out",
        )
    if not tokenizer.is_file():
        raise ConfigError(
            f"{folder} has no tokenizer.json",
            next_step="write it with AutoTokenizer.from_pretrained(...).save_pretrained",
        )
    with PretrainedWeights(folder, model) as weights, store.holding():
        root = tree_root(weights)
        pieces = write_params(param_shapes(model), weights.__getitem__)
        cid = store.add_pieces(pieces)
        store.pin(cid, f"init:{cid}")
    return PreparedInit(InitSpec(seed=None, cid=cid.to_bytes(), root=root), model, tokenizer)


def read_spec(folder: Path, seq: int | None) -> ModelSpec:
    """The model that a folder's config.json describes. Raises ConfigError as `spec_of`."""
    config = read_json(folder / "config.json")
    if seq is None:
        context = config.get("max_position_embeddings")
        seq = min(context, USUAL_SEQ) if type(context) is int else USUAL_SEQ
    return spec_of(config, seq)


def read_params(folder: Path, model: ModelSpec) -> dict[str, Tensor]:
    """All of a folder's weights in fp32. Raises ConfigError as `PretrainedWeights`."""
    with PretrainedWeights(folder, model) as weights:
        return dict(weights)


class PretrainedWeights(Mapping[str, Tensor]):
    """A folder's tensors by parameter, each read and widened to fp32 when it is asked for.

    Use it as a context manager, which closes the files.

    Raises:
        ConfigError: tensors are missing, left over, or of other shapes or types.
    """

    def __init__(self, folder: Path, model: ModelSpec) -> None:
        self._folder, self._shapes = folder, param_shapes(model)
        self._files: dict[str, Any] = {}
        with ExitStack() as opened:
            self._opened = opened
            self._places = {
                name: file for name, file in self._find().items() if _COMPUTED not in name
            }
            _check_names(self._places.keys(), self._shapes, folder)
            for name, shape in self._shapes.items():
                self._check(name, shape)
            if _HEAD in self._places and _HEAD not in self._shapes:
                self._check_tied()
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.clear()
        self._opened.close()

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._shapes:
            raise KeyError(name)
        tensor = self._read(name)
        if not is_bounded(tensor):
            raise ConfigError(f"{self._folder}: {name} has numbers that are not finite")
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def _find(self) -> dict[str, str]:
        """Every tensor's file, by its name.

        As in transformers, one file goes before an index, which may be of weights before these.
        """
        if not (self._folder / _SINGLE).is_file() and (self._folder / _INDEX).is_file():
            weight_map = read_json(self._folder / _INDEX).get("weight_map")
            if not isinstance(weight_map, dict):
                raise ConfigError(f"{self._folder / _INDEX} has no weight_map")
            for file in weight_map.values():
                if not isinstance(file, str) or Path(file).name != file:
                    raise ConfigError(f"{self._folder / _INDEX} names {file!r}, no file beside it")
            self._check_shards(weight_map)
            return dict(weight_map)
        if not (self._folder / _SINGLE).is_file():
            raise ConfigError(
                f"{self._folder} has neither {_SINGLE} nor {_INDEX}",
                next_step="write it with save_pretrained(..., safe_serialization=True)",
            )
        return dict.fromkeys(self._open(_SINGLE).keys(), _SINGLE)

    def _check_shards(self, weight_map: Mapping[str, str]) -> None:
        """No tensor is in another of an index's files than it says, there or there as well."""
        for file in dict.fromkeys(weight_map.values()):
            for name in self._open(file).keys():  # noqa: SIM118 (no map)
                if weight_map.get(name, file) != file:
                    raise ConfigError(
                        f"{name} is in {file} of {self._folder}, and {_INDEX} says that it is in "
                        f"{weight_map[name]}",
                        next_step="save the model again, into an empty folder",
                    )

    def _open(self, file: str) -> Any:
        """A file of tensors, mapped into memory."""
        if file not in self._files:
            path = self._folder / file
            try:
                mapped = safe_open(path, framework="pt")
                self._files[file] = self._opened.enter_context(mapped)
            except (OSError, SafetensorError) as error:
                raise ConfigError(f"cannot read {path}: {error}") from error
        return self._files[file]

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        try:
            part = self._open(self._places[name]).get_slice(name)
        except SafetensorError as error:
            raise ConfigError(f"{self._folder / self._places[name]}: {error}") from error
        found, dtype = tuple(part.get_shape()), part.get_dtype()
        if found != shape:
            raise ConfigError(f"{name} is {list(found)}, config.json says {list(shape)}")
        if dtype not in WIDENED:
            raise ConfigError(
                f"{name} is of type {dtype}: quantised or other weights are not supported",
                next_step="start from weights in fp32, fp16 or bf16",
            )

    def _check_tied(self) -> None:
        """A tied model may store its head as well, where it is the embedding."""
        if not torch.equal(self._read(_HEAD), self._read("model.embed_tokens.weight")):
            raise ConfigError("lm_head.weight is not the embedding, but config.json ties them")

    def _read(self, name: str) -> Tensor:
        tensor: Tensor = self._open(self._places[name]).get_tensor(name)
        return tensor.float().contiguous()


def read_json(path: Path) -> dict[str, Any]:
    """Raises ConfigError where there is no such file, no JSON object in it, or a key twice."""
    try:
        document = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is not a JSON object")
    return document


def _check_names(found: Any, shapes: Shapes, folder: Path) -> None:
    missing = [name for name in shapes if name not in found]
    surplus = [name for name in sorted(found) if name not in shapes and name != _HEAD]
    for what, names in (("lacks", missing), ("has beside the model's", surplus)):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ConfigError(f"{folder} {what} the tensor {names[0]}{more}")
