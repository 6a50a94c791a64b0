"""What a provider keeps of the round that it trains, to go on from where it was killed; and what
an auditor keeps of its replays.

A checkpoint is the state after a segment, as a file in the store, and a record that links to it;
one pin keeps both. The record says what work it is of and what was done up to there: whoever reads
a checkpoint finds damage by the store's digests and by the record's last one, and then takes the
one before, or begins anew. No rule of the protocol asks for them. Needs no torch.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import structlog
from libipld import decode_dag_cbor

from atoll.errors import StorageError
from atoll.protocol.canonical import CidLink, Ipld, encode
from atoll.protocol.manifest import MAX_SAMPLED_BYTES
from atoll.protocol.types import Digest, RoundIndex
from atoll.storage.cid import DAG_CBOR, Cid
from atoll.storage.garbage_collection import SPARE
from atoll.storage.local import LocalStore
from atoll.storage.pins import Pin

if TYPE_CHECKING:
    from atoll.numerics.segment import SegmentRun

KEPT = 2
"""The last one may be damaged, or be the whole of what is wanted."""
SHARE = 10
"""Of the time since training began, at most the tenth part is spent on writing."""
CHECKPOINT = "/checkpoint"
DISPUTED = "/disputed"
"""The same of a round that a game is about; behind it whose work it is, as games are at once."""
CARRIED_STATE = "/carried"
"""The same of a round's last state, which the round after it goes on with; behind it the seat."""
REPLAYED = f"{SPARE}{CARRIED_STATE}"
"""The same of a replay's, which gives way to what is owed."""
log = structlog.get_logger("atoll.checkpoints")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A round up to the end of a segment.

    Attributes:
        states: digest of the state after each segment done, `work_tags` their plain work tags.
        losses: of each step, nats a token.
        seconds: wall time of the steps.
        state: binary CID of the last state's bytes, where they are kept.
        sampled: ids of all steps, as the update has them; empty where a job learns text.
    """

    states: tuple[Digest, ...] = ()
    work_tags: tuple[Digest, ...] = ()
    losses: tuple[float, ...] = ()
    seconds: float = 0.0
    state: bytes = b""
    sampled: bytes = field(default=b"", repr=False)

    @property
    def segments(self) -> int:
        return len(self.states)

    def plus(self, segment: SegmentRun) -> Checkpoint:
        """With one more segment."""
        return replace(
            self,
            states=(*self.states, segment.digest),
            work_tags=(*self.work_tags, segment.work_tag),
            losses=(*self.losses, *segment.losses),
            seconds=self.seconds + segment.seconds,
            sampled=self.sampled + segment.sampled_bytes,
        )

    def to_bytes(self, work: Digest, sampled: bytes = b"") -> bytes:
        """The record: a DAG-CBOR block that names the work and links to the state.

        Args:
            sampled: binary CID of what was sampled, where anything was.
        """
        ids: dict[str, Ipld] = {"sampled": CidLink(sampled)} if sampled else {}
        return encode(
            ids
            | {
                "work": work,
                "states": b"".join(self.states),
                "work_tags": b"".join(self.work_tags),
                "losses": struct.pack(f">{len(self.losses)}d", *self.losses),
                "seconds": struct.pack(">d", self.seconds),
                "state": CidLink(self.state),
            }
        )


NOTHING_DONE = Checkpoint()
"""What a round begins with."""


def reason_of(job: int, round_: int, last_part: str = CHECKPOINT) -> str:
    """What the store knows the pins of a round's checkpoints by."""
    return f"job/{job}/round/{round_}{last_part}"


def release(store: LocalStore, job: int, round_: int) -> None:
    """Lets go of a round's checkpoints at once: the round is revealed, given up, or final."""
    disputed = reason_of(job, round_, DISPUTED)
    for pin in store.pins():
        if pin.reason == reason_of(job, round_) or pin.reason.startswith(disputed):
            _let_go(store, pin)


def release_job(store: LocalStore, job: int) -> None:
    """Lets go of all that was kept of a job's rounds, last states too: nobody goes on from them."""
    parts = re.compile(
        rf"job/{job}/round/\d+({CHECKPOINT}|{DISPUTED}/.*|{CARRIED_STATE}/.*|{REPLAYED}/.*)"
    )
    for pin in store.pins():
        if parts.fullmatch(pin.reason):
            _let_go(store, pin)


class Checkpoints:
    """Those of one seat's work in one round; a job has those of one work at a time, for each last
    part of the pins' reasons.

    Args:
        store: keeps them.
        job, round_: whose work it is.
        work: digest of all that the work follows from. Whatever other checkpoints of the job there
            are, they are let go of once one of this work is written, or by `supersede`.
        share: one part in so many of the time may be spent on writing; 0 for all of it.
        last_part: of the pins' reason; others are left alone.
    """

    def __init__(
        self,
        store: LocalStore,
        job: int,
        round_: int,
        work: Digest,
        share: float = SHARE,
        *,
        last_part: str = CHECKPOINT,
    ) -> None:
        self._store, self._work, self._share = store, work, share
        self._reason = reason_of(job, round_, last_part)
        self._began, self._spent = time.monotonic(), 0.0
        self._kept: list[tuple[Checkpoint, Pin]] = []
        self._superseded: list[Pin] = []
        for pin in store.pins():
            if pin.reason.startswith(f"job/{job}/round/") and pin.reason.endswith(last_part):
                found = _read(store, pin, work) if pin.reason == self._reason else None
                if found is None:
                    self._superseded.append(pin)
                else:
                    self._kept.append((found, pin))

    def supersede(self) -> None:
        """Lets go of the checkpoints of other work."""
        for pin in self._superseded:
            _let_go(self._store, pin)
        self._superseded = []

    def before(self, segments: int) -> list[Checkpoint]:
        """Those of fewer segments, the newest first. Their states are to be checked."""
        return [found for found, _ in reversed(self._kept) if found.segments < segments]

    def write(self, done: Checkpoint, pieces: Iterable[bytes | memoryview], size: int) -> None:
        """Keeps a state of `size` bytes if there is time and room; a round never fails for it.

        Args:
            done: what was done; its `state` is replaced by what `pieces` are stored as.
        """
        started = time.monotonic()
        if self._spent * self._share > started - self._began:
            return
        try:
            if not self._store.has_room(2 * size):  # the round's update wants some, too
                log.warning("no room for a checkpoint", reason=self._reason, bytes=size)
                return
            kept = replace(done, state=self._store.add_pieces(pieces).to_bytes())
            ids = self._store.add_bytes(done.sampled).to_bytes() if done.sampled else b""
            record = self._store.add_block(kept.to_bytes(self._work, ids), DAG_CBOR)
            self._store.pin(record, self._reason)
            self._kept.append((kept, Pin(0, record, self._reason)))
            for _, old in self._kept[:-KEPT]:
                _let_go(self._store, old)
            self.supersede()
        except StorageError as error:
            log.warning("no checkpoint", reason=self._reason, cause=str(error))
        finally:
            self._spent += time.monotonic() - started
        self._kept = self._kept[-KEPT:]

    def drop(self, damaged: Checkpoint | None = None) -> None:
        """Lets go of one whose state is not what its record says; of all, where none is named."""
        for found, pin in self._kept:
            if damaged in (None, found):
                _let_go(self._store, pin)
        self._kept = [kept for kept in self._kept if damaged not in (None, kept[0])]


def newest(
    store: LocalStore, job: int, works: Mapping[RoundIndex, Digest], last_part: str
) -> Iterator[tuple[RoundIndex, Checkpoint]]:
    """What is kept of works of several rounds, by round, with that; the newest first. Lets go of
    nothing. Their states are to be checked.
    """
    rounds = {reason_of(job, round, last_part): round for round in works}
    pinned = [(rounds[pin.reason], pin) for pin in store.pins() if pin.reason in rounds]
    for round, pin in sorted(pinned, key=lambda pair: pair[0], reverse=True):
        if (kept := _read(store, pin, works[round])) is not None:
            yield round, kept


def _read(store: LocalStore, pin: Pin, work: Digest) -> Checkpoint | None:
    """What a record says; None where it is damaged, or of other work."""
    try:
        plain: Any = decode_dag_cbor(store.get_block(pin.cid))
        checkpoint = Checkpoint(
            _digests(plain["states"]),
            _digests(plain["work_tags"]),
            tuple(value for (value,) in struct.iter_unpack(">d", plain["losses"])),
            struct.unpack(">d", plain["seconds"])[0],
            plain["state"],
            _sampled(store, plain.get("sampled")),
        )
    except (StorageError, ValueError, LookupError, TypeError, struct.error) as error:
        log.warning("a checkpoint is damaged", reason=pin.reason, cause=str(error))
        return None
    is_whole = len(checkpoint.states) == len(checkpoint.work_tags) > 0
    return checkpoint if is_whole and plain["work"] == work else None


def _sampled(store: LocalStore, cid: bytes | None) -> bytes:
    return store.read_bytes(Cid.from_bytes(cid), MAX_SAMPLED_BYTES) if cid else b""


def _digests(data: bytes) -> tuple[Digest, ...]:
    return tuple(Digest(data[at : at + 32]) for at in range(0, len(data), 32))


def _let_go(store: LocalStore, pin: Pin) -> None:
    """At once: whoever trains holds the store, so that nothing is collected before the end."""
    store.unpin(pin.reason, pin.cid)
    store.drop(pin.cid)
