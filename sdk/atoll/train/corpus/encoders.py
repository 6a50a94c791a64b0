"""Documents to token ids, with a tokenizer or byte by byte.

Rule of this file: a tokenizer adds nothing. Its own beginnings and ends of a text are excluded, a
mark that a document spells is text, and a document ends with the end token, which is the job's way
to keep documents apart. In conversations the template's marks are marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from atoll.numerics.errors import DataUnusable
from atoll.train.belongings import MAX_TOKENIZER_BYTES
from atoll.train.corpus.bytepairs import BytePairs, plain_byte_pairs
from atoll.train.corpus.chat import Render, Span, answers, find_template, plain_template
from atoll.train.corpus.documents import SECTION_BYTES, Document
from atoll.train.corpus.marks import check_added_tokens, json_of, special_tokens
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.streams import reading
from atoll.train.corpus.wholes import Wholes, open_wholes
from atoll.train.tokenizer import byte_tokenizer, tokenizing

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
        wholes: the tokenizer; None takes bytes.
        file: the tokenizer.json.
        vocab: token ids are below it.
        end: the end token.
        render: of conversations.
        fast: another way to the same tokens of a text, where the tokenizer has one.
    """

    wholes: Wholes | None
    file: bytes
    vocab: int
    end: int
    render: Render = plain_template
    fast: BytePairs | None = None

    @property
    def unknown(self) -> int | None:
        """What stands for text that the tokenizer does not know; None where nothing does."""
        return None if self.wholes is None else self.wholes.unknown

    def encode(self, documents: Sequence[Document]) -> list[Ids]:
        """The tokens of each document, without its end token.

        Raises:
            DataUnusable: one is not UTF-8, or has a letter that the tokenizer has no token for, or
                the chat template or the tokenizer refuses it.
        """
        if any(isinstance(document.content, list) for document in documents):
            return self._conversations(documents)
        texts = [doc.content for doc in documents if isinstance(doc.content, bytes)]
        if self.wholes is None:
            return [np.frombuffer(text, np.uint8).astype(np.uint32) for text in texts]
        decoded = [_decoded(text, doc) for text, doc in zip(texts, documents, strict=True)]
        with _refusing(documents):
            if self.fast:
                return _told_apart(self.fast.encode, [list(_cut(text)) for text in decoded])
            return self._encoded(self.wholes, list(_runs(documents, decoded)))

    def _encoded(self, wholes: Wholes, runs: Sequence[_Run]) -> list[Ids]:
        parts: dict[int, list[Ids]] = {}
        # Where a document's runs are of both kinds, its first is the first one's.
        for tokenizer, is_first in ((wholes.first, True), (wholes.later, False)):
            chosen = [run for run in runs if run.is_first == is_first]
            tokenizer.encode_special_tokens = True
            is_split = any(len(run.sizes) > 1 for run in chosen)
            encode = tokenizer.encode_batch if is_split else tokenizer.encode_batch_fast
            encoded = encode([run.text for run in chosen], add_special_tokens=False)
            for run, encoding in zip(chosen, encoded, strict=True):
                ids = _ids(encoding.ids)
                _check_whole(wholes.gone, ids, tokenizer, run)
                starts = _starts(encoding.offsets) if len(run.sizes) > 1 else None
                for position, part in zip(run.positions, run.split(ids, starts), strict=True):
                    parts.setdefault(position, []).append(part)
        return [_joined(parts[position]) for position in sorted(parts)]

    def _conversations(self, documents: Sequence[Document]) -> list[Ids]:
        talks = [doc for doc in documents if isinstance(doc.content, list)]
        marked = [answers(talk.content, self.render, talk.name) for talk in talks]  # type: ignore[arg-type]
        if self.wholes is None:
            return [_hide_bytes(text, spans) for text, spans in marked]
        tokenizer, gone = self.wholes.first, self.wholes.gone
        tokenizer.encode_special_tokens = False
        texts = [text for text, _ in marked]
        with _refusing(documents):
            encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
        for encoding, text, talk in zip(encodings, texts, talks, strict=True):
            _check_whole(gone, _ids(encoding.ids), tokenizer, _Run(text, talk.name, True, [0], [0]))
        return [
            _hide(_ids(encoding.ids), _starts(encoding.offsets), spans)
            for encoding, (_, spans) in zip(encodings, marked, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _Run:
    """Text that is encoded at once: a part of a document, or sections of one that follow each
    other, which are one text until they are drawn apart.

    Attributes:
        name: of the document that it begins with.
        is_first: whether it is the beginning of its text.
        positions: of its documents among those of the batch.
        sizes: letters of each.
    """

    text: str
    name: str
    is_first: bool
    positions: list[int]
    sizes: list[int]

    def split(self, ids: Ids, starts: NDArray[np.int64] | None) -> list[Ids]:
        """The ids of each document: those that begin in it. `starts` of one alone may be None."""
        if starts is None:
            return [ids]
        ends = np.cumsum(self.sizes)[:-1]
        return np.split(ids, np.searchsorted(np.maximum.accumulate(starts), ends))


def _runs(documents: Sequence[Document], texts: Sequence[str]) -> Iterator[_Run]:
    """The documents of a batch as runs of at most a section's letters, in their order."""
    held: list[tuple[int, str]] = []
    size, end = 0, 0

    def run() -> _Run:
        first = documents[held[0][0]]
        positions, parts = [position for position, _ in held], [part for _, part in held]
        return _Run("".join(parts), first.name, not first.before, positions, list(map(len, parts)))

    for position, (document, text) in enumerate(zip(documents, texts, strict=True)):
        is_next = document.before > 0 and document.before == end
        if held and not (is_next and size + len(text) <= SECTION_BYTES):
            yield run()
            held, size = [], 0
        head, *more = _cut(text)
        held.append((position, head))
        size += len(head)
        if more:
            yield run()
            held, size = [], 0
            yield from (_Run(part, document.name, False, [position], [len(part)]) for part in more)
        end = document.before + len(document.content)
    if held:
        yield run()


def _told_apart(encode: Callable[[list[str]], list[Ids]], cut: list[list[str]]) -> list[Ids]:
    """The ids of each text, which is cut in parts that are encoded apart."""
    encoded = iter(encode([part for parts in cut for part in parts]))
    return [_joined([next(encoded) for _ in parts]) for parts in cut]


def _check_whole(gone: int | None, ids: Ids, tokenizer: Tokenizer, run: _Run) -> None:
    """Raises DataUnusable where a letter of the text has no token."""
    if gone is None or not (ids == gone).any():
        return
    encoding = tokenizer.encode(run.text, add_special_tokens=False)
    positions = [
        offset for id, offset in zip(encoding.ids, encoding.offsets, strict=True) if id == gone
    ]
    letters = sorted({run.text[begin:end] for begin, end in positions})
    raise DataUnusable(
        f"{run.name}: the tokenizer has no token for {', '.join(map(repr, letters[:8]))}"
        f"{' and others' if len(letters) > 8 else ''}, and none for what it does not know: "
        "these letters would be excluded from the text",
        next_step="take a tokenizer with bytes, byte fallback or an unknown token, or take such "
        "texts out",
    )


@contextmanager
def _refusing(documents: Sequence[Document]) -> Iterator[None]:
    """Turns what the tokenizer ends in over these documents into a DataUnusable."""
    try:
        with tokenizing():
            yield
    except ValueError as error:
        if isinstance(error.__cause__, DataUnusable):
            raise error.__cause__ from None
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
        wholes = open_wholes(raw)
    except ValueError as error:
        raise DataUnusable(
            f"{file} is not a tokenizer: {error}", next_step="save it again"
        ) from error
    tokenizer = wholes.tokenizer
    check_added_tokens(file.parent, tokenizer)
    marks = special_tokens(file.parent, tokenizer)
    render = find_template(file.parent, marks) if options.chat else plain_template
    letters = tokenizer.get_vocab(with_added_tokens=True)
    if letters == byte_tokenizer().get_vocab() and not options.end_token:
        # What a job over bytes was given, and gives back with its model.
        return Encoder(None, raw, len(letters), BYTE_END, render)
    # Ids may have gaps, and a token beyond the count.
    vocab = max(letters.values(), default=-1) + 1
    end = _end_token(tokenizer, file, options, marks)
    try:
        with tokenizing():
            fast = plain_byte_pairs(tokenizer)
    except ValueError:  # over its own tokens, which a text need not have
        fast = None
    return Encoder(wholes, wholes.file, vocab, end, render, fast)


def _end_token(
    tokenizer: Tokenizer, file: Path, options: DataOptions, marks: Mapping[str, str]
) -> int:
    named = options.end_token
    names = [named] if named else list(_named_ends(tokenizer, file, marks))
    for name in names:
        token_to_id = tokenizer.token_to_id(name)
        if token_to_id is not None:
            return int(token_to_id)
    raise DataUnusable(
        f"{file} has no token {options.end_token!r}"
        if options.end_token
        else f"{file} does not say which token ends a document",
        next_step="name one of its tokens as the end token",
    )


def _named_ends(tokenizer: Tokenizer, file: Path, marks: Mapping[str, str]) -> Iterator[str]:
    """What the folder says the end token is; then well-known special tokens of the tokenizer."""
    yield marks.get("eos_token", "")
    for name in ("generation_config.json", "config.json"):
        ends = json_of(file.with_name(name)).get("eos_token_id")
        token = ends[0] if isinstance(ends, list) and ends else ends
        if type(token) is int and 0 <= token < 1 << 32:
            yield tokenizer.id_to_token(token) or ""
    special = {t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special}
    yield from (name for name in _KNOWN_ENDS if name in special)


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


def _starts(offsets: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array(offsets, np.int64).reshape(-1, 2)[:, 0]


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
    positions = [(len(text[:begin].encode()), len(text[:end].encode())) for begin, end in spans]
    ids = np.frombuffer(raw, np.uint8).astype(np.uint32)
    return _hide(ids, np.arange(len(raw), dtype=np.int64), positions)
