"""What a tokenizer's folder says beside tokenizer.json: its special tokens and its chat template.

Rule of this file: files are read as `transformers` reads them, in its order, and what it would not
take is not taken. Source: transformers 5.23, tokenization_utils_base.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from atoll.numerics.errors import DataUnusable
from atoll.train.belongings import MORE_TEMPLATES
from atoll.train.corpus.streams import reading
from atoll.train.said_once import parse

NAMES: Final = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""The special tokens that a chat template may name."""
_CONFIG, _MAP, _ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
_END: Final = "<|endoftext|>"
_OF_CLASSES: Final[dict[str, dict[str, str]]] = {
    "LlamaTokenizer": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "GPT2Tokenizer": {"bos_token": _END, "eos_token": _END, "unk_token": _END},
    "Qwen2Tokenizer": {"eos_token": _END, "unk_token": _END, "pad_token": _END},
    "GemmaTokenizer": {
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    },
}
"""What these classes take where no file names it."""
_CLASS_OF_MODELS: Final = {
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "gpt2": "GPT2Tokenizer",
    "gemma": "GemmaTokenizer",
}


def special_tokens(folder: Path, tokenizer: Tokenizer | None = None) -> dict[str, str]:
    """The special tokens of a tokenizer's folder, by name.

    Raises:
        DataUnusable: a file is not JSON, or says something twice.
    """
    config = json_of(folder / _CONFIG)
    tokens: dict[str, Any] = dict(_of_class(folder, config, tokenizer))
    tokens |= {name: config[name] for name in NAMES if name in config}
    if "added_tokens_decoder" not in config:  # which newer folders have instead
        mapped = json_of(folder / _MAP)
        tokens |= {name: mapped[name] for name in NAMES if name in mapped}
    texts = {name: token_text(tokens[name]) for name in NAMES if name in tokens}
    return {name: text for name, text in texts.items() if text}


def chat_template(folder: Path) -> str | None:
    """The source of a tokenizer's chat template; None where it has none.

    Raises:
        DataUnusable: there are several and none is the usual one, or only that of a processor.
    """
    templates = _templates(folder)
    if templates is None:
        processors = folder / "chat_template.json"
        if processors.is_file():
            raise DataUnusable(
                f"{processors} is a processor's template, which no tokenizer reads",
                next_step=f"write what it has under chat_template to {folder}/chat_template.jinja",
            )
        return None
    if "default" not in templates:
        raise DataUnusable(
            f"{folder} has the chat templates {', '.join(sorted(templates))[:200]}, none of them "
            "the one for plain conversations",
            next_step=f"write that one to {folder}/chat_template.jinja",
        )
    return templates["default"]


def check_added_tokens(folder: Path, tokenizer: Tokenizer) -> None:
    """That tokenizer.json has every token that its folder adds: `transformers` would add it.

    Raises:
        DataUnusable: it lacks one, or has it under another number.
    """
    for file, text, number in _added(folder):
        if tokenizer.token_to_id(text) != number:
            raise DataUnusable(
                f"{folder / file} has the token {text[:80]!r} as number {number}, and "
                f"tokenizer.json has it as {tokenizer.token_to_id(text)}",
                next_step="write both again with AutoTokenizer.from_pretrained(...)"
                ".save_pretrained, or take the file out",
            )


def token_text(value: object) -> str:
    """A token as tokenizer_config.json writes it: text, or a map of content. Empty for neither."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def json_of(path: Path) -> dict[str, Any]:
    """A file's JSON object; empty where there is no such file, or no object in it.

    Raises:
        DataUnusable: it is not JSON, or says something twice.
    """
    if not path.is_file():
        return {}
    with reading(path):
        raw = path.read_bytes()
    try:
        plain = parse(raw)
    except ValueError as error:
        raise DataUnusable(f"{path} is not JSON: {error}", next_step="mend it") from error
    return plain if isinstance(plain, dict) else {}


def _of_class(folder: Path, config: dict[str, Any], tokenizer: Tokenizer | None) -> dict[str, str]:
    model = json_of(folder / "config.json")
    named = config.get("tokenizer_class") or model.get("tokenizer_class")
    if named is None:
        named = _CLASS_OF_MODELS.get(str(model.get("model_type")))
    name = str(named).removesuffix("Fast")
    # Llama 3 and its like name Llama's class over bytes, and are opened as no class in particular.
    is_over_bytes = tokenizer is not None and (
        "ByteLevel" in f"{tokenizer.pre_tokenizer} {tokenizer.decoder}"
    )
    return {} if name == "LlamaTokenizer" and is_over_bytes else _OF_CLASSES.get(name, {})


def _templates(folder: Path) -> dict[str, str] | None:
    """Templates by name; files of their own go before those in tokenizer_config.json."""
    files = {"default": folder / "chat_template.jinja"}
    more = sorted((folder / MORE_TEMPLATES).glob("*.jinja"))
    files = {name: path for name, path in files.items() if path.is_file()}
    files |= {path.name.removesuffix(".jinja"): path for path in more}
    if files:
        return {name: _text_of(path) for name, path in files.items()}
    configured = json_of(folder / _CONFIG).get("chat_template")
    if isinstance(configured, str):
        return {"default": configured}
    if not isinstance(configured, list):
        return None
    named = [t for t in configured if isinstance(t, dict) and isinstance(t.get("template"), str)]
    by_name = {str(t.get("name")): t["template"] for t in named}
    if len(by_name) < len(named):
        raise DataUnusable(
            f"{folder / _CONFIG} has two chat templates of one name",
            next_step=f"write the usual one to {folder}/chat_template.jinja",
        )
    return by_name


def _text_of(path: Path) -> str:
    with reading(path):
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise DataUnusable(f"{path} is not UTF-8: {error}", next_step="mend it") from error


def _added(folder: Path) -> Iterator[tuple[str, str, int]]:
    """File, token and number of each token that a folder adds."""
    config = json_of(folder / _CONFIG)
    added = config.get("added_tokens_decoder")
    if isinstance(added, dict):
        for number, token in added.items():
            if number.isdecimal() and number.isascii():
                yield _CONFIG, token_text(token), int(number)
        return
    for text, place in json_of(folder / _ADDED).items():
        if type(place) is int:
            yield _ADDED, text, place
