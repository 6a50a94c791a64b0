"""How a job's training goes, round by round: held-out losses, and what each seat said of its own.

Rule of this file: a number has a name under it. What a verifier says is used only under its
signature, what a seat says only where it has the root that the chain holds; all of it is kept, for
members forget.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from atoll.chain.database import Database
from atoll.chain.keys import signer_of
from atoll.content.cid import Cid
from atoll.content.fetch import Fetcher
from atoll.errors import MalformedTrace, NotFound, StorageError
from atoll.law.held_out import MAX_REPORT_BYTES, HeldOut, loss_of, note_name
from atoll.law.trace import MAX_TRACE_BYTES, LeafKind, TraceDocument
from atoll.law.views import JobView, SeatReveal
from atoll.law.words import ZERO_DIGEST, Address, Digest, SeatIndex

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS losses (
    spec BLOB NOT NULL, merged INTEGER NOT NULL, model BLOB NOT NULL, who TEXT NOT NULL,
    loss BLOB NOT NULL, PRIMARY KEY (spec, merged, model, who)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS traces (root BLOB PRIMARY KEY, loss BLOB) WITHOUT ROWID;
"""
OWN: Final = Address("")
"""Whose number it is that was computed here."""
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class SeatLoss:
    """A seat's part in a round; `loss` is its mean, None where nobody has its trace any more."""

    seat: SeatIndex
    account: Address
    steps: int
    loss: float | None


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """How good the model is that so many rounds were merged into.

    Attributes:
        merged: 0 is the initial model.
        own: the held-out loss as computed here; None where it was not.
        said: what each verifier says that it is.
        seats: who trained the last of these rounds.
        before: the held-out loss one round earlier, where it is known.
    """

    merged: int
    own: bytes | None = None
    said: Mapping[Address, bytes] = field(default_factory=dict)
    seats: tuple[SeatLoss, ...] = ()
    before: float | None = None

    @property
    def bits(self) -> bytes | None:
        """The held-out loss in 8 bytes: ours, else what most verifiers say, the least of equals."""
        if self.own is not None or not self.said:
            return self.own
        told = list(self.said.values())
        return min(set(told), key=lambda loss: (-told.count(loss), loss))

    @property
    def loss(self) -> float | None:
        """The held-out loss, nats a target."""
        return None if self.bits is None else loss_of(self.bits)

    @property
    def change(self) -> float | None:
        """By how much it rose."""
        return None if self.loss is None or self.before is None else self.loss - self.before

    @property
    def differing(self) -> tuple[Address, ...]:
        """Verifiers that say another number."""
        return tuple(sorted(who for who, loss in self.said.items() if loss != self.bits))

    def to_plain(self) -> dict[str, object]:
        """As JSON has it; `bits` are the 8 bytes, and a loss that is NaN is null."""
        return {
            "merged": self.merged,
            "held_out_loss": _number(self.loss),
            "bits": None if self.bits is None else self.bits.hex(),
            "change": _number(self.change),
            "computed_here": self.own is not None,
            "verifiers": {who: loss.hex() for who, loss in sorted(self.said.items())},
            "differing": list(self.differing),
            "seats": [
                {"seat": s.seat, "account": s.account, "steps": s.steps, "loss": _number(s.loss)}
                for s in self.seats
            ],
        }

    def text(self) -> str:
        """A sentence."""
        when = f"after round {self.merged - 1}" if self.merged else "before training"
        loss = "not known yet" if self.loss is None else f"{self.loss:.6f}"
        change = "" if self.change is None else f" ({self.change:+.6f})"
        seats = ", ".join(
            f"{seat.seat}: {'not known' if seat.loss is None else f'{seat.loss:.4f}'}"
            for seat in self.seats
        )
        parts = [f"held-out loss {when} {loss}{change}"]
        parts += [f"mean training loss of seat {seats}"] if seats else []
        parts += [f"verifier {who} says {loss_of(self.said[who])!r}" for who in self.differing]
        return "; ".join(parts)


class Figures:
    """One SQLite file of one home. Raises StorageError where it cannot be used."""

    def __init__(self, path: Path) -> None:
        self._db = Database(path, SCHEMA)

    def close(self) -> None:
        self._db.close()

    def note_loss(
        self, spec: Digest, merged: int, model: Digest, who: Address, loss: bytes
    ) -> None:
        """Keeps a number; who said another one before stays with that."""
        self._db.execute(
            "INSERT OR IGNORE INTO losses VALUES (?, ?, ?, ?, ?)", (spec, merged, model, who, loss)
        )

    def losses(self, spec: Digest, merged: int, model: Digest) -> dict[Address, bytes]:
        """What is known of a model, by who says it."""
        rows = self._db.execute(
            "SELECT who, loss FROM losses WHERE spec = ? AND merged = ? AND model = ?",
            (spec, merged, model),
        )
        return {Address(who): bytes(loss) for who, loss in rows}

    def note_trace(self, root: Digest, loss: float | None) -> None:
        """Keeps a trace's mean loss; None where nobody has it, NaN where no step was finite."""
        value = None if loss is None else struct.pack(">d", loss)
        self._db.execute("INSERT OR REPLACE INTO traces VALUES (?, ?)", (root, value))

    def trace(self, root: Digest) -> tuple[bool, float | None]:
        """Whether the trace was looked at, and its mean loss."""
        row = self._db.execute("SELECT loss FROM traces WHERE root = ?", (root,)).fetchone()
        loss = None if row is None or row[0] is None else struct.unpack(">d", row[0])[0]
        return row is not None, loss


def known(figures: Figures, view: JobView) -> list[RoundFigures]:
    """Everything that is kept of a job, the initial model first."""
    found: list[RoundFigures] = []
    for merged in range(len(view.settled) + 1):
        said = figures.losses(view.spec_digest, merged, model_of(view, merged))
        own = said.pop(OWN, None)
        seats = tuple(_seat(figures, *item) for item in reveals_of(view, merged).items())
        before = found[-1].loss if found else None
        found.append(RoundFigures(merged, own, said, seats, before))
    return found


async def gather(figures: Figures, view: JobView, fetcher: Fetcher) -> None:
    """Asks verifiers and gateways for what is not kept yet; who does not answer is left out."""
    verifiers = _verifiers(view)
    asking = [_ask(figures, view, who, url, fetcher) for who, url in verifiers.items()]
    reading = [
        _read(figures, seat, fetcher, give_up=merged <= view.final_rounds)
        for merged in range(1, len(view.settled) + 1)
        for seat in reveals_of(view, merged).values()
        if not figures.trace(seat.reveal.trace_root)[0]
    ]
    await _a_few(asking)
    await _a_few(reading)


def model_of(view: JobView, merged: int) -> Digest:
    """The digest of the model after so many rounds; of the initial one, which no event tells, 0."""
    digest = view.settled[merged - 1].verdict.merged_digest if merged else None
    return digest or ZERO_DIGEST


def reveals_of(view: JobView, merged: int) -> Mapping[SeatIndex, SeatReveal]:
    """What was revealed in the last of so many rounds."""
    return dict(sorted(view.settled[merged - 1].reveals.items())) if merged else {}


def mean_training_loss(document: TraceDocument) -> float:
    """Over the finite segments, each of which has as many steps; NaN where there is none."""
    losses = [
        struct.unpack(">f", leaf.loss_bits.to_bytes(4, "big"))[0]
        for leaf in document.leaves
        if leaf.kind is LeafKind.OK
    ]
    return math.fsum(losses) / len(losses) if losses else math.nan


def _verifiers(view: JobView) -> dict[Address, str]:
    """Gateways of everyone who ever verified in the job."""
    accounts = [member.account for member in view.verifiers.values()]
    accounts += [who for past in view.settled for who in past.verifiers.values()]
    return {who: view.gateways[who] for who in dict.fromkeys(accounts) if who in view.gateways}


async def _ask(figures: Figures, view: JobView, who: Address, url: str, fetcher: Fetcher) -> None:
    for merged in reversed(range(len(view.settled) + 1)):
        model = model_of(view, merged)
        if who in figures.losses(view.spec_digest, merged, model):
            continue
        try:
            note = await fetcher.note(url, note_name(view.job_id, merged), MAX_REPORT_BYTES)
        except NotFound:
            return  # it does not answer, and will not for the others
        loss = None if note is None else _signed(view, merged, who, note)
        if loss is not None:
            figures.note_loss(view.spec_digest, merged, model, who, loss)


def _signed(view: JobView, merged: int, who: Address, note: bytes) -> bytes | None:
    """The loss that a verifier's report says; None where it is none of this model, or not its."""
    try:
        report, signature = HeldOut.from_bytes(note)
    except ValueError:
        return None
    model = model_of(view, merged) if merged else report.model
    expected = replace(report, domain=view.domain, job=view.job_id, merged=merged, model=model)
    is_its = report == expected and signer_of(report.digest, signature) == who
    return report.loss if is_its else None


async def _read(figures: Figures, seat: SeatReveal, fetcher: Fetcher, *, give_up: bool) -> None:
    root, loss = seat.reveal.trace_root, None
    try:
        cid = Cid.from_bytes(seat.reveal.trace_cid)
        document = TraceDocument.from_bytes(await fetcher.get(cid, MAX_TRACE_BYTES))
        if document.trace_root == root:
            loss = mean_training_loss(document)
    except (ValueError, StorageError, MalformedTrace):
        if not give_up:
            return
    figures.note_trace(root, loss)


def _seat(figures: Figures, index: SeatIndex, seat: SeatReveal) -> SeatLoss:
    loss = figures.trace(seat.reveal.trace_root)[1]
    return SeatLoss(index, seat.account, seat.reveal.steps, loss)


async def _a_few(work: Iterable[Awaitable[None]]) -> None:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def wait(one: Awaitable[None]) -> None:
        async with turn:
            await one

    await asyncio.gather(*map(wait, work))


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
