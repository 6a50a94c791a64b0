"""What belongs to a job's model beside its weights: tokenizer, chat template, when an answer ends.

Rule of this file: they are one file of the job's content, and whoever fetches a result has them. A
stranger wrote it: its names are these and no others, and none leads out of a folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from atoll.law.canonical import decode, encode

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
        plain = decode(raw, MAX_TOKENIZER_BYTES)
        if not isinstance(plain, dict):
            raise ValueError("not a map")
        files = {name: content for name, content in plain.items() if isinstance(content, bytes)}
        if len(files) < len(plain):
            raise ValueError("a file is not bytes")
        return cls(files)


def is_belonging(name: str) -> bool:
    """Whether a name is one of those that belong to a model."""
    return name in _NAMES or _MORE.fullmatch(name) is not None
