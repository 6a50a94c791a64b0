"""The same tokens five times as fast, for tokenizers that are plain byte pairs.

`tokenizers` runs every kind of tokenizer.json, at about 2 MB/s a core; `tiktoken` runs one kind
only, at some 12. Most tokenizers are of that kind: a regular expression cuts the text, bytes
are letters, and pairs of them are merged in the order of their ids. `plain_byte_pairs` takes a
tokenizer only where this is certain, and whatever a fast encoder cannot do goes the slow way.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from os import cpu_count
from typing import Any, Final
from unicodedata import is_normalized

import numpy as np
from numpy.typing import NDArray
from tiktoken import Encoding
from tokenizers import Tokenizer

from atoll.nested import loads

GPT2_PATTERN: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""How ByteLevel cuts a text where nothing else did: GPT-2's encoder.py."""


@dataclass(frozen=True, slots=True)
class BytePairs:
    """A fast encoder that gives the tokens of `slow`, without any that it would add.

    Attributes:
        is_composed: the tokenizer composes letters first (NFC): only texts that are composed
            already are encoded fast.
    """

    fast: Encoding
    slow: Tokenizer
    is_composed: bool
    threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(cpu_count() or 1), compare=False
    )

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """The ids of each text; texts are shared among the processor's cores."""
        return list(self.threads.map(self._encoded, texts))

    def _encoded(self, text: str) -> NDArray[np.uint32]:
        if not self.is_composed or is_normalized("NFC", text):
            try:
                return self.fast.encode_to_numpy(text, disallowed_special=())
            except (
                ValueError
            ):  # a word beyond its regular expressions, such as a megabyte of blanks
                pass
        ids = self.slow.encode(text, add_special_tokens=False).ids
        return np.fromiter(ids, np.uint32, len(ids))


def plain_byte_pairs(tokenizer: Tokenizer) -> BytePairs | None:
    """The fast encoder of this tokenizer, or None where it does more than merge pairs of bytes.

    Two things make the merges those of the ids alone: each merge's product has a larger id than
    the one before, and every token, as a text of its own, is merged to itself. Suppose that the ids
    merged x and y to t, and no merge names these two: the bytes of t alone would have come to x
    and y as well, by the same merges, and would have stayed there.
    """
    made = loads(tokenizer.to_str())
    pattern, normalizer = _pattern(made["pre_tokenizer"]), made["normalizer"]
    is_composed = normalizer is not None and normalizer["type"] == "NFC"
    if pattern is None or (normalizer is not None and not is_composed):
        return None
    if not all(token["special"] for token in made["added_tokens"]):  # looked for in every text
        return None
    ranks = _ranks(made)
    if ranks is None or not _merges_itself(tokenizer, made["model"]["vocab"], ranks):
        return None
    try:
        fast = Encoding("job", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    except ValueError:  # a pattern that its regular expressions do not have
        return None
    return BytePairs(fast, tokenizer, is_composed)


def _pattern(made: dict[str, Any] | None) -> str | None:
    """The regular expression that cuts a text into words; None where it is cut otherwise."""
    if made is None:
        return None
    *before, last = made["pretokenizers"] if made["type"] == "Sequence" else [made]
    if last["type"] != "ByteLevel" or last["add_prefix_space"]:
        return None
    if not before:
        return GPT2_PATTERN if last.get("use_regex", True) else None
    if len(before) != 1 or last.get("use_regex", True) or before[0]["type"] != "Split":
        return None
    cut = before[0]
    is_isolated = cut["behavior"] == "Isolated" and not cut["invert"]
    return cut["pattern"].get("Regex") if is_isolated else None


def _ranks(made: dict[str, Any]) -> dict[bytes, int] | None:
    """Ids by the tokens' bytes, where the ids say the order of the merges."""
    model = made["model"]
    does_more = any(
        model.get(name)
        for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    )
    if model["type"] != "BPE" or does_more:
        return None
    vocab, letters = model["vocab"], _bytes_of_letters()
    pairs = (m.split(" ") if isinstance(m, str) else m for m in model["merges"])
    products = [vocab["".join(pair)] for pair in pairs]
    added = {token["content"] for token in made["added_tokens"]}
    plain = {token: id for token, id in vocab.items() if token not in added}
    if any(letter not in letters for token in plain for letter in token):
        return None
    ranks = {bytes(letters[letter] for letter in token): id for token, id in plain.items()}
    has_letters = all(bytes([byte]) in ranks for byte in range(256))
    is_ordered = all(a < b for a, b in pairwise(products))
    return ranks if has_letters and is_ordered else None


def _merges_itself(tokenizer: Tokenizer, vocab: dict[str, int], ranks: dict[bytes, int]) -> bool:
    """Whether every token is what its own letters are merged to."""
    merged_ids = set(ranks.values())
    tokens = [(token, id) for token, id in vocab.items() if id in merged_ids]
    return all([t.id for t in tokenizer.model.tokenize(token)] == [id] for token, id in tokens)


def _bytes_of_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: printable Latin-1 is itself, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + place): byte for place, byte in enumerate(others)}
