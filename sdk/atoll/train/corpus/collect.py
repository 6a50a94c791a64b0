"""What goes with a job's model, gathered from the folders that the job names.

Rule of this file: files are taken byte for byte, and none that a link of a folder leads to
elsewhere: folders are strangers', and what is taken becomes public. What nobody wrote is written:
the template that conversations had, and which token ends a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atoll.numerics.errors import DataUnusable
from atoll.train.belongings import (
    CONFIG,
    GENERATION,
    MAX_TOKENIZER_BYTES,
    MORE_TEMPLATES,
    OF_TOKENIZER,
    TOKENIZER,
    Belongings,
)
from atoll.train.corpus.chat import PLAIN
from atoll.train.corpus.encoders import Encoder
from atoll.train.corpus.folders import check_inside
from atoll.train.corpus.marks import chat_template, json_of, special_tokens
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.streams import reading

_SETTINGS, _TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
_USUAL: dict[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "clean_up_tokenization_spaces": False,
}


def belongings_of(options: DataOptions, encoder: Encoder) -> Belongings:
    """What belongs to the model of a job over this text.

    Raises:
        DataUnusable: a file cannot be read, or they are too large together.
    """
    folder = _folder_of(options.tokenizer)
    for source in filter(None, (folder, options.model_folder)):
        _check_links(source)
    files = dict(_read(folder)) | {TOKENIZER: encoder.file}
    if options.chat and (folder is None or chat_template(folder) is None):
        files[_TEMPLATE] = PLAIN.encode()
    if _SETTINGS not in files or _lacks_end(folder, encoder):
        files[_SETTINGS] = _json(_settings(folder, encoder))
    generation = _generation(folder, options.model_folder, encoder)
    files |= {GENERATION: generation}
    if options.model_folder is not None:
        with reading(options.model_folder / CONFIG):
            files[CONFIG] = (options.model_folder / CONFIG).read_bytes()
    try:
        belongings = Belongings(files)
    except ValueError as error:
        raise DataUnusable(f"{folder}: {error}", next_step="take it out") from error
    size = len(belongings.to_bytes())
    if size > MAX_TOKENIZER_BYTES:
        largest = max(files, key=lambda name: len(files[name]))
        raise DataUnusable(
            f"the files that go with the model have {size} bytes, of which {largest} has "
            f"{len(files[largest])}; {MAX_TOKENIZER_BYTES} are taken"
        )
    return belongings


def _folder_of(tokenizer: Path | None) -> Path | None:
    if tokenizer is None or tokenizer.is_dir():
        return tokenizer
    return tokenizer.parent


def _check_links(folder: Path) -> None:
    """Raises DataUnusable where what would be taken of a folder is not in it."""
    names = (*OF_TOKENIZER, CONFIG, GENERATION)
    more = (folder / MORE_TEMPLATES).glob("*.jinja")
    for path in (*(folder / name for name in names), *more):
        if path.exists():
            check_inside(path, folder)


def _read(folder: Path | None) -> Iterator[tuple[str, bytes]]:
    """A tokenizer folder's files; those of the name that belong to a model."""
    if folder is None:
        return
    paths = [(name, folder / name) for name in OF_TOKENIZER if name != TOKENIZER]
    more = sorted((folder / MORE_TEMPLATES).glob("*.jinja"))
    paths += [(f"{MORE_TEMPLATES}/{path.name}", path) for path in more]
    for name, path in paths:
        if path.is_file():
            with reading(path):
                yield name, path.read_bytes()


def _lacks_end(folder: Path | None, encoder: Encoder) -> bool:
    """Whether no file says which token ends a text; of bytes none could, without taking a letter
    of other texts for it."""
    if encoder.wholes is None or folder is None:
        return False
    return "eos_token" not in special_tokens(folder, encoder.wholes.tokenizer)


def _settings(folder: Path | None, encoder: Encoder) -> dict[str, Any]:
    """tokenizer_config.json with what ends a text; a new one names no class that had marks of its
    own, and so names these."""
    if encoder.wholes is None or folder is None:
        return _USUAL
    tokenizer = encoder.wholes.tokenizer
    settings = json_of(folder / _SETTINGS) or _USUAL | special_tokens(folder, tokenizer)
    if not _lacks_end(folder, encoder):
        return settings
    return settings | {"eos_token": tokenizer.id_to_token(encoder.end)}


def _generation(folder: Path | None, model: Path | None, encoder: Encoder) -> bytes:
    """generation_config.json, with the token that ends a document among those that end a text.

    The model's own where it has this tokenizer; of another model, numbers of tokens alone.
    """
    is_models = model is not None and _has_tokenizer(model, folder)
    source = model if is_models else folder
    if source is None:
        return _json({"do_sample": True, "eos_token_id": encoder.end})
    generation = json_of(source / GENERATION)
    ends = _ends(generation) or _ends(json_of(source / CONFIG))
    wanted = ends if encoder.end in ends else [*ends, encoder.end]
    if is_models and generation and _ends(generation) == wanted:
        with reading(source / GENERATION):
            return (source / GENERATION).read_bytes()
    kept = {k: v for k, v in generation.items() if is_models or k.endswith("_token_id")}
    kept = kept or {"do_sample": True}
    return _json(kept | {"eos_token_id": wanted if len(wanted) > 1 else wanted[0]})


def _has_tokenizer(model: Path, folder: Path | None) -> bool:
    if folder is None:
        return False
    paths = (model / TOKENIZER, folder / TOKENIZER)
    with reading(paths[0]):
        return all(path.is_file() for path in paths) and (
            paths[0].read_bytes() == paths[1].read_bytes()
        )


def _ends(config: dict[str, Any]) -> list[int]:
    stops = config.get("eos_token_id")
    listed = stops if isinstance(stops, list) else [stops]
    return [token for token in listed if type(token) is int and token >= 0]


def _json(plain: dict[str, Any]) -> bytes:
    return (json.dumps(plain, indent=2, ensure_ascii=False) + "\n").encode()
