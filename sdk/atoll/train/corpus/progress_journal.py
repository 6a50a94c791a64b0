"""What a preparation has done, so that one that was killed goes on where it was.

Rule of this file: the state is one file that is replaced whole, after everything that it speaks of
has reached the disk. What was written after it is written again, with the same bytes.

    preparing/KEY/train.shards     64 bytes a shard: SHA-256 and node
    preparing/KEY/held_out.shards
    preparing/KEY/state.json
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Final

from atoll.errors import CorruptBlock, NotFound
from atoll.nested import loads
from atoll.storage.blocks import disk_errors
from atoll.storage.cid import RAW, Cid
from atoll.storage.local import LocalStore

_RECORD_BYTES: Final = 64
_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class StreamState:
    """How far one of the two streams of tokens is.

    Attributes:
        shards: whole ones, whose records are in the stream's file.
        tail: SHA-256 in hex of the block that holds what follows them; empty for nothing.
        tokens, targets: in all; targets are the tokens that are learned.
    """

    shards: int = 0
    tail: str = ""
    tokens: int = 0
    targets: int = 0


@dataclass(frozen=True, slots=True)
class ProgressState:
    """How far a preparation is.

    Attributes:
        file, position: the file that is being read, and what of it is done.
        open_in: the stream in which a document is not ended yet; empty for none.
        documents: so many were put into each stream: training, held out.
        bytes: of text read.
        skipped: rows that were excluded, by reason.
        unknown: tokens that stand for what the tokenizer does not know.
        done: whether nothing is left to read.
    """

    file: int = 0
    position: tuple[int, int, int] = (0, 0, 0)
    open_in: str = ""
    documents: tuple[int, int] = (0, 0)
    bytes: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    unknown: int = 0
    done: bool = False
    train: StreamState = StreamState()
    held_out: StreamState = StreamState()


class ProgressJournal:
    """The state of one preparation.

    Args:
        store: where the shards go; the journal lies beside them.
        inputs: everything that the result follows from, in plain values; another input is another
            journal.
    """

    def __init__(self, store: LocalStore, inputs: object) -> None:
        key = sha256(json.dumps([_VERSION, inputs]).encode()).hexdigest()[:32]
        self._store = store
        self._folder = store.root / "preparing" / key
        with disk_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)

    def load(self) -> tuple[ProgressState, dict[str, bytes]]:
        """The state and the streams' records, or those of a beginning where a block is gone."""
        state = self._read()
        if state is None:
            return ProgressState(), {"train": b"", "held_out": b""}
        records = {}
        for name, stream in (("train", state.train), ("held_out", state.held_out)):
            stored = self._records(name, stream)
            if stored is None:
                return ProgressState(), {"train": b"", "held_out": b""}
            records[name] = stored
        return state, records

    def tail(self, stream: StreamState) -> bytes:
        """What follows a stream's whole shards."""
        return self._store.get_block(Cid(RAW, bytes.fromhex(stream.tail))) if stream.tail else b""

    def save(self, state: ProgressState, records: dict[str, bytes]) -> None:
        """Makes a state the one to go on from; its blocks are settled already."""
        with disk_errors(self._folder):
            for name, stored in records.items():
                self._append(name, stored)
            partial = self._folder / "state.json.new"
            with partial.open("w", encoding="ascii") as file:
                json.dump(asdict(state), file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._folder / "state.json")

    def _append(self, name: str, records: bytes) -> None:
        """Brings a stream's file to these records: cuts what a crash left, adds what is new."""
        path = self._folder / f"{name}.shards"
        with path.open("ab") as file:
            held = min(file.tell(), len(records)) // _RECORD_BYTES * _RECORD_BYTES
            file.truncate(held)
            file.seek(held)
            file.write(records[held:])
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> ProgressState | None:
        try:
            plain: Any = loads((self._folder / "state.json").read_text(encoding="ascii"))
            for name in ("train", "held_out"):
                plain[name] = StreamState(**plain[name])
            for name in ("position", "documents"):
                plain[name] = tuple(plain[name])
            return ProgressState(**plain)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError):  # torn: it begins anew
            return None

    def _records(self, name: str, stream: StreamState) -> bytes | None:
        """A stream's records, where every block that they name is still in the store."""
        size = stream.shards * _RECORD_BYTES
        try:
            with (self._folder / f"{name}.shards").open("rb") as file:
                stored = file.read(size)
            self.tail(stream)
        except (OSError, NotFound, CorruptBlock, ValueError):
            return None
        digests = (stored[at : at + 32] for at in range(0, size, _RECORD_BYTES))
        if len(stored) != size or None in (self._store.claim(Cid(RAW, d)) for d in digests):
            return None
        return stored
