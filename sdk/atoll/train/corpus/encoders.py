"""Documents to token ids, with a tokenizer or byte by byte.

Rule of this file: a tokenizer adds nothing. Its own beginnings and ends of a text are left out, a
mark that a document spells is text, and a document ends with the end token, which is the job's way
to keep documents apart. In conversations the template's marks are marks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from atoll.bits.errors import DataUnusable
from atoll.train.corpus.bytepairs import BytePairs, plain_byte_pairs
from atoll.train.corpus.chat import Render, Span, answers, find_template, plain_template, token_text
from atoll.train.corpus.documents import SECTION_BYTES, Document
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.streams import reading
from atoll.train.tokenizer import MAX_TOKENIZER_BYTES, byte_tokenizer, read_tokenizer, tokenizing

Ids: TypeAlias = NDArray[np.uint32]
"""Token ids, with HIDDEN added to those that are no targets."""
HIDDEN: Final = 1 << 31
BYTE_END: Final = 0
"""What a document of bytes ends with: a zero byte, which texts do not have."""
_KNOWN_ENDS: Final = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>")


@dataclass(frozen=True, slots=True)
class Encoder:
    """How the documents of one preparation become tokens.

    Attributes:
        tokenizer: None takes bytes.
        file: the tokenizer.json, byte for byte as it was given.
        vocab: token ids are below it.
        end: the end token.
        render: of conversations.
        fast: another way to the same tokens of a text, where the tokenizer has one.
    """

    tokenizer: Tokenizer | None
    file: bytes
    vocab: int
    end: int
    render: Render = plain_template
    fast: BytePairs | None = None

    def encode(self, documents: Sequence[Document]) -> list[Ids]:
        """The tokens of each document, without its end token. Raises DataUnusable."""
        if any(isinstance(document.content, list) for document in documents):
            return self._conversations(documents)
        texts = [doc.content for doc in documents if isinstance(doc.content, bytes)]
        if self.tokenizer is None:
            return [np.frombuffer(text, np.uint8).astype(np.uint32) for text in texts]
        # Of long documents, as much at once as a section has.
        cut = [list(_cut(_decoded(t, d))) for t, d in zip(texts, documents, strict=True)]
        self.tokenizer.encode_special_tokens = True
        flat = [part for parts in cut for part in parts]
        with _refusing(documents):
            found = iter(self.fast.encode(flat) if self.fast else self._encoded(flat))
        return [_joined([next(found) for _ in parts]) for parts in cut]

    def _encoded(self, texts: Sequence[str]) -> Iterator[Ids]:
        assert self.tokenizer is not None
        found = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return (_ids(one.ids) for one in found)

    def _conversations(self, documents: Sequence[Document]) -> list[Ids]:
        told = [
            answers(doc.content, self.render, doc.name)
            for doc in documents
            if isinstance(doc.content, list)
        ]
        if self.tokenizer is None:
            return [_hide_bytes(text, spans) for text, spans in told]
        self.tokenizer.encode_special_tokens = False
        texts = [text for text, _ in told]
        with _refusing(documents):
            found = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        return [
            _hide(_ids(one.ids), np.array(one.offsets, np.int64).reshape(-1, 2)[:, 0], spans)
            for one, (_, spans) in zip(found, told, strict=True)
        ]


@contextmanager
def _refusing(documents: Sequence[Document]) -> Iterator[None]:
    """Turns what the tokenizer ends in over these documents into a DataUnusable."""
    try:
        with tokenizing():
            yield
    except ValueError as error:
        raise DataUnusable(
            f"the tokenizer fails between {documents[0].name} and {documents[-1].name}: {error}",
            next_step="take another tokenizer, or mend this one: a byte-level one has every text",
        ) from error


def open_encoder(options: DataOptions) -> Encoder:
    """The encoder that the options name.

    Raises:
        DataUnusable: there is no tokenizer.json, it cannot be read, it has no end token, or more
            tokens than the model.
    """
    if options.tokenizer is None:
        file = byte_tokenizer().to_str().encode()
        encoder = Encoder(None, file, 256, BYTE_END)
    else:
        encoder = _open_tokenizer(options.tokenizer, options)
    wanted = options.model_vocab
    if wanted is not None and encoder.vocab > wanted:
        raise DataUnusable(
            f"the tokenizer has {encoder.vocab} tokens, the model's vocabulary is {wanted}",
            next_step=f"take the model's own tokenizer, or a vocabulary of {encoder.vocab}",
        )
    return encoder


def _open_tokenizer(path: Path, options: DataOptions) -> Encoder:
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise DataUnusable(
            f"no tokenizer.json at {path}",
            next_step="save the tokenizer with `save_pretrained` of a fast tokenizer",
        )
    with reading(file):
        raw = file.read_bytes()
    if len(raw) > MAX_TOKENIZER_BYTES:
        raise DataUnusable(f"{file} has {len(raw)} bytes, at most {MAX_TOKENIZER_BYTES} are taken")
    try:
        tokenizer = read_tokenizer(raw)
    except ValueError as error:
        raise DataUnusable(
            f"{file} is not a tokenizer: {error}", next_step="save it again"
        ) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    letters = tokenizer.get_vocab(with_added_tokens=True)
    if letters == byte_tokenizer().get_vocab() and not options.end_token:
        # What a job over bytes was given, and gives back with its model.
        return Encoder(None, raw, len(letters), BYTE_END)
    # Ids may have gaps, and a token beyond the count.
    vocab = max(letters.values(), default=-1) + 1
    render = find_template(file.parent) if options.chat else plain_template
    end = _end_token(tokenizer, file, options)
    try:
        with tokenizing():
            fast = plain_byte_pairs(tokenizer)
    except ValueError:  # over its own tokens, which a text need not have
        fast = None
    return Encoder(tokenizer, raw, vocab, end, render, fast)


def _end_token(tokenizer: Tokenizer, file: Path, options: DataOptions) -> int:
    names = [options.end_token] if options.end_token else list(_named_ends(tokenizer, file))
    for name in names:
        found = tokenizer.token_to_id(name)
        if found is not None:
            return int(found)
    raise DataUnusable(
        f"{file} has no token {options.end_token!r}"
        if options.end_token
        else f"{file} does not say which token ends a document",
        next_step="name one of its tokens as the end token",
    )


def _named_ends(tokenizer: Tokenizer, file: Path) -> Iterator[str]:
    """What the folder says the end token is; then well-known special tokens of the tokenizer."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        yield token_text(_json_of(file.with_name(name)).get("eos_token"))
    for name in ("generation_config.json", "config.json"):
        found = _json_of(file.with_name(name)).get("eos_token_id")
        token = found[0] if isinstance(found, list) and found else found
        if type(token) is int and 0 <= token < 1 << 32:
            yield tokenizer.id_to_token(token) or ""
    special = {t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special}
    yield from (name for name in _KNOWN_ENDS if name in special)


def _json_of(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    with reading(path):
        raw = path.read_bytes()
    try:
        plain = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DataUnusable(f"{path} is not JSON: {error}", next_step="mend it") from error
    return plain if isinstance(plain, dict) else {}


def _decoded(text: bytes, document: Document) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise DataUnusable(
            f"{document.name}: not UTF-8: {error.reason} at byte {error.start}",
            next_step="leave the file out, or write it as UTF-8",
        ) from error


def _cut(text: str) -> Iterator[str]:
    """A text in parts of at most a section's letters, each but the last ended by a line's end."""
    while len(text) > SECTION_BYTES:
        end = text.rfind("\n", 0, SECTION_BYTES) + 1 or SECTION_BYTES
        yield text[:end]
        text = text[end:]
    yield text


def _ids(tokens: Sequence[int]) -> Ids:
    return np.fromiter(tokens, np.uint32, len(tokens))


def _joined(parts: list[Ids]) -> Ids:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _hide(ids: Ids, starts: NDArray[np.int64], spans: Sequence[Span]) -> Ids:
    """The ids, hidden where they start outside of all spans."""
    shown = np.zeros(len(ids), dtype=bool)
    for begin, end in spans:
        shown |= (starts >= begin) & (starts < end)
    return np.where(shown, ids, ids | np.uint32(HIDDEN))


def _hide_bytes(text: str, spans: Sequence[Span]) -> Ids:
    raw = text.encode()
    places = [(len(text[:begin].encode()), len(text[:end].encode())) for begin, end in spans]
    ids = np.frombuffer(raw, np.uint8).astype(np.uint32)
    return _hide(ids, np.arange(len(raw), dtype=np.int64), places)
