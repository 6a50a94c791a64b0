"""What a tokenizer makes of the text, in words: what it does not know, and what comes back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
from tokenizers import Tokenizer

from atoll.numerics.errors import DataUnusable
from atoll.train.corpus.chat import answers, asks_date
from atoll.train.corpus.documents import Document
from atoll.train.corpus.encoders import HIDDEN, Encoder
from atoll.train.tokenizer import tokenizing

COMPARED: Final = 64
"""Documents that are encoded and decoded again."""
MUCH_UNKNOWN: Final = 0.01
"""The share of unknown tokens from which a text is hardly what a model learns."""
_LETTERS: Final = 4096
_SHOWN: Final = 24


def notes_on(encoder: Encoder, documents: Iterable[Document]) -> tuple[str, ...]:
    """What a person should know of a tokenizer and the first documents of a text.

    Raises:
        DataUnusable: it gives other tokens each time, or cannot decode its own; or as the documents
            do.
    """
    if encoder.wholes is None:
        return ()
    notes = list(encoder.wholes.notes)
    if asks_date(encoder.render):
        notes.append("the chat template asks for the date, and is told 26 July 2024 always")
    examples = [_difference(encoder, document) for document in documents]
    differing = [example for example in examples if example]
    if differing:
        notes.append(
            f"of the first {len(examples)} documents, {len(differing)} come back otherwise from "
            f"the tokenizer's tokens: {differing[0]}"
        )
    return tuple(notes)


def unknown_note(unknown: int, tokens: int) -> tuple[str, ...]:
    """What there is to say of unknown tokens, so many of so many."""
    if not unknown:
        return ()
    share = unknown / tokens
    sentence = (
        f"{unknown:,} of {tokens:,} tokens ({share:.2%}) stand for what the tokenizer does not know"
    )
    if share < MUCH_UNKNOWN:
        return (sentence,)
    return (f"{sentence}: much of this text is not learned; take a tokenizer that was made for it",)


def _difference(encoder: Encoder, document: Document) -> str:
    """Where a document differs from what its tokens are as text; empty where it does not, and where
    it is refused, which is said when it is read for its tokens."""
    wholes = encoder.wholes
    assert wholes is not None
    content = document.content
    try:
        if isinstance(content, bytes):
            text = content[: 4 * _LETTERS].decode(errors="ignore")[:_LETTERS]
            document = replace(document, content=text.encode())
        else:
            text = answers(content, encoder.render, document.name)[0]
        (ids,), (again,) = encoder.encode([document]), encoder.encode([document])
    except DataUnusable:
        return ""
    if not np.array_equal(ids, again):
        raise DataUnusable(
            f"{document.name}: the tokenizer gives other tokens each time",
            next_step="take another tokenizer, or switch off in it what draws",
        )
    back = _decoded(wholes.tokenizer, [int(id) & (HIDDEN - 1) for id in ids], document)
    # A mark before a text is a blank that decoders take away again.
    text, back = text.lstrip(" "), back.lstrip(" ")
    return "" if text == back else _shown(text, back)


def _decoded(tokenizer: Tokenizer, ids: list[int], document: Document) -> str:
    try:
        with tokenizing():
            return str(tokenizer.decode(ids, skip_special_tokens=False))
    except ValueError as error:
        raise DataUnusable(
            f"{document.name}: the tokenizer fails to decode its own tokens: {error}",
            next_step="take another tokenizer, or mend this one",
        ) from error


def _shown(text: str, back: str) -> str:
    pairs = zip(text, back, strict=False)
    shared = min(len(text), len(back))
    at = next((place for place, (a, b) in enumerate(pairs) if a != b), shared)
    begin = max(at - _SHOWN // 2, 0)
    return f"{text[begin : begin + _SHOWN]!r} as {back[begin : begin + _SHOWN]!r}"
