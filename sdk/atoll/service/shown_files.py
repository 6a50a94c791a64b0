"""The trees of files whose pieces a gateway shows, so that none is read anew for each question.

Rule of this file: nothing is read of a file that was not named before by who runs the gateway, with
the bytes that it may have: what a stranger calls a file costs nothing here.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import inf
from threading import Lock
from typing import Final

from atoll.errors import NotFound, StorageError, TooLarge
from atoll.numerics.shown_pieces import PieceTree
from atoll.storage.cid import Cid
from atoll.storage.errors import MalformedDag
from atoll.storage.local import LocalStore
from atoll.storage.slices import FileSlices

MOST_BYTES: Final = 1 << 28
"""That trees take, of the updates of 64 seats of a billion parameters."""
LACKING_SECONDS: Final = 5.0
"""For which a file is not read again whose blocks are not all here: they may come."""
_CHECK_SUMS: Final = 1024
"""A file's bytes for each of its pages' check sums (`Leaves`)."""


class ShownFiles:
    """Shows pieces of a store's files; for threads.

    Args:
        store: where the files are.
        most: bytes that trees may take; those go first of which nothing was shown for longest.
        clock: seconds.
    """

    def __init__(
        self,
        store: LocalStore,
        most: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._most, self._clock = store, most, clock
        self._files: dict[Cid, int] = {}
        self._trees: OrderedDict[Cid, tuple[PieceTree, int]] = OrderedDict()
        self._refused: dict[Cid, tuple[float, str]] = {}
        self._changing, self._reading = Lock(), Lock()

    def expect(self, files: Mapping[Cid, int]) -> None:
        """Shows these files from now on and no others, each of at most so many bytes."""
        with self._changing:
            changed = {cid for cid, most in self._files.items() if files.get(cid) != most}
            self._files = dict(files)
            for cid in changed:
                self._trees.pop(cid, None)
                self._refused.pop(cid, None)

    def is_read(self, cid: Cid) -> bool:
        """Whether an answer about a file takes no reading of all of it."""
        with self._changing:
            return cid in self._trees or bool(self._refusal(cid))

    def show(self, cid: Cid, numbers: Sequence[int]) -> bytes:
        """Pieces of a file with what proves them.

        Raises:
            StorageError: the file is not here, or none of those that are shown, or no file as
                everybody lays them out.
            IndexError: it has no such piece.
        """
        tree = self._known(cid)
        if tree is None:
            with self._reading:  # a file at a time, and each once
                tree = self._known(cid) or self._read(cid)
        try:
            return tree.show(numbers)
        except StorageError:
            with self._changing:
                self._trees.pop(cid, None)
            raise

    def _known(self, cid: Cid) -> PieceTree | None:
        with self._changing:
            if refusal := self._refusal(cid):
                raise NotFound(refusal)
            if cid not in self._trees:
                return None
            self._trees.move_to_end(cid)
            return self._trees[cid][0]

    def _refusal(self, cid: Cid) -> str:
        """Why nothing is shown of a file, if that is known without reading it; else empty."""
        if cid not in self._files:
            return f"no pieces of {cid} are shown"
        until, why = self._refused.get(cid, (-inf, ""))
        return why if self._clock() < until else ""

    def _read(self, cid: Cid) -> PieceTree:
        with self._changing:
            most = self._files.get(cid, 0)
            if not most:
                raise NotFound(self._refusal(cid) or f"no bytes of {cid} are shown")
        try:
            data = FileSlices(self._store, cid, most)
            if not len(data):
                raise MalformedDag(f"{cid} has no pieces")
            tree = PieceTree(data)
        except StorageError as error:
            is_for_good = isinstance(error, MalformedDag | TooLarge)
            until = inf if is_for_good else self._clock() + LACKING_SECONDS
            with self._changing:
                if self._files.get(cid) == most:  # so that these are never more than files
                    self._refused[cid] = until, str(error)
            raise
        with self._changing:
            if self._files.get(cid) == most:
                self._trees[cid] = tree, tree.held_bytes + len(data) // _CHECK_SUMS
            while len(self._trees) > 1 and sum(n for _, n in self._trees.values()) > self._most:
                self._trees.popitem(last=False)
        return tree
