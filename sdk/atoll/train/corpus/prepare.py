"""Text to tokens in the store, as a stream: the one way there.

Rule of this file: the result follows from the options and the files' bytes alone. Neither a kill
between two of its lines nor the machine's speed changes a byte of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from typing import Final, TypeAlias

import numpy as np
import tokenizers

from atoll.numerics.errors import DataUnusable
from atoll.numerics.pieces import SHARD_BYTES, root_of_shards, shard_node
from atoll.numerics.tokens import DTYPES, dtype_for, mask_bit
from atoll.protocol.manifest import DataSpec, TokenType
from atoll.protocol.types import Digest
from atoll.storage.cid import RAW, Cid
from atoll.storage.local import LocalStore
from atoll.storage.unixfs import Child
from atoll.train.corpus.chat import rendering
from atoll.train.corpus.collect import belongings_of
from atoll.train.corpus.documents import Document, Read, Skipped, read_documents, section_bytes
from atoll.train.corpus.encoders import HIDDEN, Encoder, Ids, open_encoder
from atoll.train.corpus.faithful import COMPARED, notes_on, unknown_note
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.progress_journal import ProgressJournal, StreamState
from atoll.train.corpus.reading_report import ReadingReport, skipped_told
from atoll.train.corpus.rows import START, Position
from atoll.train.corpus.source_files import SourceFiles, find_files

BATCH_BYTES: Final = 1 << 20
"""Text that is tokenised at once, by all cores."""
SAVE_BYTES: Final = 1 << 25
"""Text after which the state is saved."""
_BATCH_DOCUMENTS: Final = 4096

_REFUSED: Final = "refused by tokenizer or chat template"

_Placed: TypeAlias = tuple[tuple[int, Position], Read]
"""A document or what is excluded, and the file and the position in it where the reading goes on."""
_Batch: TypeAlias = list[_Placed]
_Taken: TypeAlias = list[Ids | Skipped]
"""The tokens of a batch's documents."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a preparation is: bytes of text read, of so many that the files have (compressed
    ones have more), documents, and tokens of both parts, with those among them that stand for what
    the tokenizer does not know."""

    bytes: int
    bytes_total: int
    documents: int
    tokens: int
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class PreparedData:
    """Prepared data. CIDs are binary; `train_targets` and `eval_targets` are what is learned.

    `notes` are what a person should know of how the tokenizer took the text.
    """

    cid: bytes
    root: Digest
    nodes_cid: bytes
    eval_cid: bytes
    tokenizer_cid: bytes
    dtype: TokenType
    masked: bool
    aligned: bool
    vocab: int
    train_tokens: int
    train_targets: int
    train_documents: int
    eval_tokens: int
    eval_targets: int
    eval_documents: int
    account: ReadingReport = field(default_factory=ReadingReport)
    notes: tuple[str, ...] = ()

    @property
    def task(self) -> None:
        """Text has none."""
        return None

    def spec(self, eval_batches: int) -> DataSpec:
        """The manifest's section."""
        return DataSpec(
            cid=self.cid,
            root=self.root,
            nodes_cid=self.nodes_cid,
            dtype=self.dtype,
            masked=self.masked,
            aligned=self.aligned,
            train_tokens=self.train_tokens,
            eval_cid=self.eval_cid,
            eval_tokens=self.eval_tokens,
            eval_batches=eval_batches,
            tokenizer_cid=self.tokenizer_cid,
        )


def prepare(
    options: DataOptions,
    store: LocalStore,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> PreparedData:
    """Tokenises what the options name into the store, pinned under `data`.

    A preparation that was killed goes on where it was, and one that is done is not done again, as
    long as files and options are the same.

    Args:
        on_progress: called after every mebibyte of text or so.

    Raises:
        DataUnusable: a file or a row cannot be read, the tokenizer cannot be used, or there is too
            little.
        DiskFull, StorageError: the store cannot be written.
    """
    encoder, files = open_encoder(options), find_files(options)
    with store.holding():
        return _Preparation(options, files, encoder, store, on_progress).run()


class _Stream:
    """One of the two streams of words on its way into the store, a shard at a time."""

    def __init__(
        self, store: LocalStore, dtype: str, state: StreamState, records: bytes, tail: bytes
    ) -> None:
        self._store = store
        self._dtype = dtype
        self._tail = bytearray(tail)
        self._unsettled: list[bytes] = []
        self.records = bytearray(records)
        self.state = state

    def add(self, words: Ids, targets: int) -> None:
        """Appends words, whose mask bits are in their place."""
        self._tail += words.astype(DTYPES[self._dtype]).data
        while len(self._tail) >= SHARD_BYTES:
            self._put(bytes(self._tail[:SHARD_BYTES]))
            del self._tail[:SHARD_BYTES]
        state = self.state
        self.state = replace(
            state, tokens=state.tokens + len(words), targets=state.targets + targets
        )

    def settle(self) -> StreamState:
        """Makes all of it survive a crash; returns the state that says so."""
        tail = b""
        if self._tail:
            tail = hashlib.sha256(self._tail).digest()
            self._store.put_block(Cid(RAW, tail), bytes(self._tail), settle=False)
            self._unsettled.append(tail)
        self._store.settle(self._unsettled)
        self._unsettled.clear()
        self.state = replace(self.state, shards=len(self.records) // 64, tail=tail.hex())
        return self.state

    def finish(self) -> tuple[Cid, bytes]:
        """Closes the file; returns it and the nodes of its shards. A stream has some words."""
        if self._tail:
            self._put(bytes(self._tail))
            self._tail.clear()
        self._store.settle(self._unsettled)
        size = self.state.tokens * DTYPES[self._dtype].itemsize
        records = [bytes(self.records[at : at + 64]) for at in range(0, len(self.records), 64)]
        sizes = [min(SHARD_BYTES, size - at * SHARD_BYTES) for at in range(len(records))]
        leaves = (
            Child(Cid(RAW, record[:32]), part) for record, part in zip(records, sizes, strict=True)
        )
        return self._store.join_leaves(leaves), b"".join(record[32:] for record in records)

    def _put(self, shard: bytes) -> None:
        digest = hashlib.sha256(shard).digest()
        self._store.put_block(Cid(RAW, digest), shard, settle=False)
        self._unsettled.append(digest)
        self.records += digest + shard_node(shard)


class _Preparation:
    """One run; see `prepare`."""

    def __init__(
        self,
        options: DataOptions,
        files: SourceFiles,
        encoder: Encoder,
        store: LocalStore,
        on_progress: Callable[[Progress], None],
    ) -> None:
        # A text to evaluate on comes first: all of it is read, however little is trained on.
        self._options, self._encoder, self._sources = options, encoder, files
        self._belongings = belongings_of(options, encoder)
        self._files = [*files.held_out, *files.train]
        self._held_out_files = len(files.held_out)
        self._store, self._on_progress = store, on_progress
        self._dtype: TokenType = _dtype(encoder, options)
        self._total = sum(file.bytes for file in self._files)
        self._section = section_bytes(self._total)
        self._limit = int(Fraction(options.held_out) * (1 << 64))
        self._journal = ProgressJournal(store, _inputs(options, files, encoder))
        self._state, records = self._journal.load()
        self._streams = {
            name: _Stream(store, self._dtype, state, records[name], self._journal.tail(state))
            for name, state in (("train", self._state.train), ("held_out", self._state.held_out))
        }

    def run(self) -> PreparedData:
        notes = notes_on(self._encoder, self._first_documents())
        saved_at = self._state.bytes
        if not self._state.done:
            for batch, encoded in self._encoded():
                for (position, document), ids in zip(batch, encoded, strict=True):
                    if isinstance(document, Document) and not isinstance(ids, Skipped):
                        self._take(*position, document, ids)
                    elif isinstance(ids, Skipped):
                        self._skip(*position, ids.reason)
                    if self._is_full():
                        break
                self._tell()
                if self._is_full():
                    break
                if self._state.bytes - saved_at >= SAVE_BYTES:
                    self._save()
                    saved_at = self._state.bytes
            self._end_document()
            self._fill_last()
            self._state = replace(self._state, done=True)
            self._save()
        unknown = unknown_note(self._state.unknown, self._tokens())
        return replace(self._finish(), notes=(*notes, *unknown))

    # -- one document after another --------------------------------------------------------------

    def _take(self, file: int, position: Position, document: Document, ids: Ids) -> None:
        side = self._side(file, document)
        state = self._state
        if not document.before or state.open_in != side:
            self._end_document()
            counts = list(state.documents)
            counts[side == "held_out"] += 1
            state = replace(self._state, documents=(counts[0], counts[1]))
            words = self._packed(side, ids) if self._options.packed else ids
        else:
            words = ids
        self._streams[side].add(*self._words(words))
        self._state = replace(
            state,
            file=file,
            position=position,
            open_in=side + "-hidden" * bool(len(ids) and ids[-1] & HIDDEN),
            bytes=state.bytes + _size(document),
            unknown=state.unknown + self._unknown(ids),
        )

    def _packed(self, side: str, ids: Ids) -> Ids:
        """A document's first ids where they are not cut, behind padding if need be.

        Neither padding nor the first token is learned: what stands before it is no part of its
        document. A document that is longer than a sequence begins with one, and is cut.
        """
        room = -self._streams[side].state.tokens % self._options.packed
        padding = np.full(room if len(ids) >= room else 0, self._encoder.end | HIDDEN, np.uint32)
        return np.concatenate([padding, ids[:1] | np.uint32(HIDDEN), ids[1:]])

    def _fill_last(self) -> None:
        """Makes each stream's last sequence whole, with the token behind it, where they are."""
        seq = self._options.packed
        for stream in self._streams.values():
            if seq and stream.state.tokens:
                missing = -stream.state.tokens % seq + 1
                padding = np.full(missing, self._encoder.end | HIDDEN, np.uint32)
                stream.add(*self._words(padding))

    def _skip(self, file: int, position: Position, reason: str) -> None:
        counts = self._state.skipped
        counts = counts | {reason: counts.get(reason, 0) + 1}
        self._state = replace(self._state, file=file, position=position, skipped=counts)

    def _unknown(self, ids: Ids) -> int:
        unknown = self._encoder.unknown
        return 0 if unknown is None else int(((ids & (HIDDEN - 1)) == unknown).sum())

    def _end_document(self) -> None:
        """Ends the document that is open with the end token, which is learned like its last one."""
        side, _, hidden = self._state.open_in.partition("-")
        if side:
            end = np.array([self._encoder.end | HIDDEN * bool(hidden)], np.uint32)
            self._streams[side].add(*self._words(end))
            self._state = replace(self._state, open_in="")

    def _words(self, ids: Ids) -> tuple[Ids, int]:
        """Ids as words of the data's type, and how many of them are targets."""
        if not self._options.is_masked:
            return ids, len(ids)
        hidden = ids >= HIDDEN
        words = np.where(hidden, ids & (HIDDEN - 1) | mask_bit(self._dtype), ids)
        return words.astype(np.uint32), len(ids) - int(hidden.sum())

    def _side(self, file: int, document: Document) -> str:
        if self._held_out_files:
            return "held_out" if file < self._held_out_files else "train"
        content = document.content
        if isinstance(content, list):
            content = json.dumps(content, sort_keys=True, ensure_ascii=True).encode()
        # A text that repeats itself is one document: its sections are drawn apart, and a copy of it
        # falls like it.
        position = document.before.to_bytes(8, "big") if document.before else b""
        digest = document.whole or hashlib.sha256(content + position).digest()
        return "held_out" if int.from_bytes(digest[:8], "big") < self._limit else "train"

    def _is_full(self) -> bool:
        most = self._options.max_tokens
        of_held_out = self._streams["held_out"].state.tokens if self._held_out_files else 0
        return most is not None and self._tokens() - of_held_out >= most

    def _tokens(self) -> int:
        return sum(stream.state.tokens for stream in self._streams.values())

    # -- batches ---------------------------------------------------------------------------------

    def _encoded(self) -> Iterator[tuple[_Batch, _Taken]]:
        """Batches with their tokens; while one is taken in, the next is tokenised."""
        with ThreadPoolExecutor(1, "atoll-tokens") as pool:
            pending: tuple[_Batch, Future[_Taken]] | None = None
            for batch in self._batches():
                ahead = (batch, pool.submit(self._tokens_of, batch))
                if pending is not None:
                    yield pending[0], pending[1].result()
                pending = ahead
            if pending is not None:
                yield pending[0], pending[1].result()

    def _tokens_of(self, batch: _Batch) -> _Taken:
        """A batch's tokens, and what of it is excluded."""
        documents = [read for _, read in batch if isinstance(read, Document)]
        tokens: Iterator[Ids | Skipped]
        try:
            tokens = iter(self._encoder.encode(documents))
        except DataUnusable:
            if self._options.bad_rows == "refuse":
                raise
            tokens = (self._row_tokens(*at, row) for at, row in batch if isinstance(row, Document))
        return [read if isinstance(read, Skipped) else next(tokens) for _, read in batch]

    def _row_tokens(self, file: int, position: Position, row: Document) -> Ids | Skipped:
        """One row's tokens, where one of its batch is refused; parts of texts are no rows."""
        try:
            return self._encoder.encode([row])[0]
        except DataUnusable:
            if self._files[file].kind == "text" or row.whole:
                raise
            return Skipped(_REFUSED, position)

    def _batches(self) -> Iterator[_Batch]:
        documents = self._documents()
        while first := next(documents, None):
            batch, size = [first], _size(first[1])
            for position, document in islice(documents, _BATCH_DOCUMENTS - 1):
                batch.append((position, document))
                size += _size(document)
                if size >= BATCH_BYTES:
                    break
            yield batch

    def _documents(self) -> Iterator[_Placed]:
        for index in range(self._state.file, len(self._files)):
            position = self._state.position if index == self._state.file else START
            for read in read_documents(self._files[index], self._options, self._section, position):
                yield (index, read.position), read

    def _first_documents(self) -> Iterator[Document]:
        """The documents that the tokenizer is tried on, wherever the preparation is."""
        documents = (
            document
            for file in self._files
            for document in read_documents(file, self._options, self._section)
            if isinstance(document, Document)
        )
        return islice(documents, COMPARED)

    # -- the state -------------------------------------------------------------------------------

    def _save(self) -> None:
        train, held_out = (self._streams[name].settle() for name in ("train", "held_out"))
        self._state = replace(self._state, train=train, held_out=held_out)
        records = {name: bytes(stream.records) for name, stream in self._streams.items()}
        self._journal.save(self._state, records)

    def _tell(self) -> None:
        state = self._state
        documents, tokens = sum(state.documents), self._tokens()
        self._on_progress(Progress(state.bytes, self._total, documents, tokens, state.unknown))

    def _finish(self) -> PreparedData:
        train, held_out = (self._streams[name] for name in ("train", "held_out"))
        self._check_enough()
        cid, nodes = train.finish()
        eval_cid, _ = held_out.finish()
        root = root_of_shards(nodes, train.state.tokens * DTYPES[self._dtype].itemsize)
        nodes_cid = self._store.add_bytes(nodes)
        tokenizer_cid = self._store.add_bytes(self._belongings.to_bytes())
        for kept in (cid, eval_cid, nodes_cid, tokenizer_cid):
            self._store.pin(kept, "data")
        return PreparedData(
            cid=cid.to_bytes(),
            root=root,
            nodes_cid=nodes_cid.to_bytes(),
            eval_cid=eval_cid.to_bytes(),
            tokenizer_cid=tokenizer_cid.to_bytes(),
            dtype=self._dtype,
            masked=self._options.is_masked,
            aligned=self._options.packed > 0,
            vocab=self._encoder.vocab,
            train_tokens=train.state.tokens,
            train_targets=train.state.targets,
            train_documents=self._state.documents[0],
            eval_tokens=held_out.state.tokens,
            eval_targets=held_out.state.targets,
            eval_documents=self._state.documents[1],
            account=self._account(),
        )

    def _account(self) -> ReadingReport:
        last = self._state.file if self._is_full() else len(self._files)
        return ReadingReport.of(self._sources, last, self._state.skipped)

    def _check_enough(self) -> None:
        train, held_out = (self._streams[name].state for name in ("train", "held_out"))
        if train.tokens < 2 or held_out.tokens < 2:
            count = sum(self._state.documents)
            raise DataUnusable(
                f"{count} documents of {self._state.bytes} bytes leave {train.tokens} tokens to "
                f"train on and {held_out.tokens} to evaluate on, {self._split}{self._skipped}",
                next_step="give more text, or hold a larger share out",
            )

    @property
    def _split(self) -> str:
        """How documents are parted, in words."""
        if self._held_out_files:
            return f"of {self._held_out_files} files of held_out_paths"
        return f"at held_out = {self._options.held_out}"

    @property
    def _skipped(self) -> str:
        skipped = self._state.skipped
        return f"; skipped {skipped_told(skipped)}" if skipped else ""


def _size(document: Read) -> int:
    if isinstance(document, Skipped):
        return 0
    content = document.content
    if isinstance(content, bytes):
        return len(content)
    return sum(len(message["content"]) for message in content)


def _dtype(encoder: Encoder, options: DataOptions) -> TokenType:
    vocab = max(encoder.vocab, options.model_vocab or 0)
    return dtype_for(vocab, mask_bits=int(options.is_masked))


def _inputs(options: DataOptions, files: SourceFiles, encoder: Encoder) -> object:
    """What tells one preparation from another. Files count as the same by size and time."""
    return [
        *(
            [[str(f.path.resolve()), f.kind, f.bytes, f.path.stat().st_mtime_ns] for f in part]
            for part in (files.held_out, files.train)
        ),
        hashlib.sha256(encoder.file).hexdigest(),
        rendering(encoder.render) if options.chat else None,
        [encoder.end, options.field, options.chat, options.bad_rows, options.held_out],
        options.packed,
        [options.max_tokens, options.model_vocab, tokenizers.__version__],
    ]
