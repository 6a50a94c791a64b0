"""What belongs to a job's model beside its weights: tokenizer, chat template, when an answer ends.

Rule of this file: they are one file of the job's content, and whoever fetches a result has them. A
stranger wrote it: its names are these and no others, and none leads out of a folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from atoll.protocol.canonical import decode, encode

MAX_TOKENIZER_BYTES: Final = 1 << 26
"""Of all of them together."""
MAX_FILES: Final = 64
TOKENIZER: Final = "tokenizer.json"
CONFIG, GENERATION = "config.json", "generation_config.json"
OF_TOKENIZER: Final = (
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
"""What a tokenizer's folder has; more templates are in a folder of their own in it."""
MORE_TEMPLATES: Final = "additional_chat_templates"
_NAMES: Final = frozenset({*OF_TOKENIZER, CONFIG, GENERATION})
_BYTES, _TEXT, _MAP = 2, 3, 5
"""CBOR's kinds of items."""
_MORE: Final = re.compile(MORE_TEMPLATES + r"/[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\.jinja", re.ASCII)


@dataclass(frozen=True, slots=True)
class Belongings:
    """Files by name, as a folder of a model has them.

    Raises:
        ValueError: one has another name, there is no tokenizer.json, or they are too many.
    """

    files: Mapping[str, bytes]

    def __post_init__(self) -> None:
        if TOKENIZER not in self.files:
            raise ValueError(f"there is no {TOKENIZER}")
        if len(self.files) > MAX_FILES:
            raise ValueError(f"{len(self.files)} files, at most {MAX_FILES} are taken")
        for name in self.files:
            if not is_belonging(name):
                raise ValueError(f"{name[:80]!r} is no file that belongs to a model")

    def to_bytes(self) -> bytes:
        """One file: canonical DAG-CBOR, a map from name to bytes."""
        return encode(dict(self.files))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Belongings:
        """What such a file holds. Raises ValueError where it is none."""
        _check_flat(raw)
        plain = decode(raw, MAX_TOKENIZER_BYTES)
        assert isinstance(plain, dict)  # `_check_flat` says so, and that values are bytes
        return cls({name: file for name, file in plain.items() if isinstance(file, bytes)})


def _check_flat(raw: bytes) -> None:
    """That a file is a map from texts to bytes, of few: 64 MiB of other things are gigabytes of
    Python's. Raises ValueError."""
    major, count, position = _head(raw, 0)
    if major != _MAP or count > MAX_FILES:
        raise ValueError(f"not a map of at most {MAX_FILES} files")
    for _ in range(count):
        for wanted in (_TEXT, _BYTES):
            major, size, position = _head(raw, position)
            if major != wanted:
                raise ValueError("a name is not text, or a file is not bytes")
            position += size


def _head(raw: bytes, position: int) -> tuple[int, int, int]:
    """An item's kind, its size, and where what follows its head begins."""
    if position >= len(raw):
        raise ValueError("it ends too early")
    major, size, position = raw[position] >> 5, raw[position] & 31, position + 1
    if size < 24:
        return major, size, position
    if size > 27:
        raise ValueError("not canonical")
    end = position + (1 << size - 24)
    return major, int.from_bytes(raw[position:end], "big"), end


def is_belonging(name: str) -> bool:
    """Whether a name is one of those that belong to a model."""
    return name in _NAMES or _MORE.fullmatch(name) is not None
