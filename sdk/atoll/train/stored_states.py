"""Global and seat states, read from the store and checked against the job's manifest."""

from __future__ import annotations

from atoll.numerics.shards import Held
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import max_state_bytes, moment_layout, seat_layout, trained_shapes
from atoll.numerics.tensors import ByteSource, in_memory
from atoll.protocol.manifest import Manifest
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.memory_room import global_allocator, holds_here, seat_allocator


def read_global_state(
    manifest: Manifest,
    cid: bytes,
    store: LocalStore,
    *,
    outer: bool = True,
    moments: bool = True,
    params: Held | None = None,
) -> GlobalState:
    """Raises MalformedState unless the blob is a global state of the manifest's job.

    Args:
        outer: false leaves the outer optimiser's slots out, two thirds of the state.
        moments: false leaves the merged moments out.
        params: takes the parameters; None for a mapping of this process.
    """
    source, shapes = _source(cid, manifest, store), trained_shapes(manifest)
    state = GlobalState.from_bytes(
        source,
        shapes,
        outer=outer,
        moments=moments,
        params=params,
        allocate=global_allocator(manifest, store) if outer else in_memory,
    )
    state.check_moments(moment_layout(manifest))
    return state


def read_seat_state(manifest: Manifest, cid: bytes, store: LocalStore) -> SeatState:
    """Raises MalformedState unless the blob is a seat state of the manifest's job."""
    source, layout = _source(cid, manifest, store), seat_layout(manifest)
    allocate, holds = seat_allocator(manifest, store), holds_here(manifest, store)
    return SeatState.from_bytes(source, layout, allocate=allocate, holds=holds)


def seat_state_bytes(manifest: Manifest) -> int:
    """About how large a seat's state is in the store: its numbers, four bytes each."""
    return 4 * seat_layout(manifest).elements


def _source(cid: bytes, manifest: Manifest, store: LocalStore) -> ByteSource:
    """A state's bytes, read as they are parsed.

    Raises:
        TooLarge, MalformedDag: it cannot be one of this job's; the first may be raised as late as
            the first byte is read.
        NotFound, CorruptBlock: its root is missing or damaged.
    """
    file, limit = Cid.from_bytes(cid), max_state_bytes(manifest)
    return ByteSource(store.file_bytes(file), store.iter_bytes(file, limit))
