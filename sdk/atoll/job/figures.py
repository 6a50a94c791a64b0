"""How a job's training goes, round by round: the held-out losses of its models, and of a job with a
task what its completions were worth.

Rule of this file: a number has a source. A loss is what this machine computed, which is kept, or
what a committee signed with the round after; rewards are what this machine computed; the rest is
the chain's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from atoll.chain.database import Database
from atoll.errors import ProtocolError
from atoll.job.signs import RoundSigns, Signs, merged_seats
from atoll.protocol.losses import loss_of
from atoll.protocol.types import ZERO_DIGEST, Digest
from atoll.protocol.views import JobView
from atoll.service.duties.sampled import Sampled, mean_of
from atoll.storage.cid import Cid

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS own_losses (
    spec BLOB NOT NULL, merged INTEGER NOT NULL, model BLOB NOT NULL, loss BLOB NOT NULL,
    PRIMARY KEY (spec, merged, model)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS own_distances (
    spec BLOB NOT NULL, model BLOB NOT NULL, seat INTEGER NOT NULL, distance REAL NOT NULL,
    PRIMARY KEY (spec, model, seat)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS own_sampled (
    spec BLOB NOT NULL, update_root BLOB NOT NULL,
    reward REAL NOT NULL, length REAL NOT NULL, spread REAL NOT NULL,
    PRIMARY KEY (spec, update_root)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS own_rewards (
    spec BLOB NOT NULL, merged INTEGER NOT NULL, model BLOB NOT NULL, reward REAL NOT NULL,
    PRIMARY KEY (spec, merged, model)) WITHOUT ROWID;
"""
_NOT_EVALUATED: Final = bytes(8)
"""What a verdict says where the job has no held-out text."""


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """How good the model is that so many rounds were merged into.

    Attributes:
        merged: 0 is the initial model.
        computed: the held-out loss as computed here, 8 bytes; None where it was not.
        certified: what a committee signed with the next round's verdict; None before that.
        before: the held-out loss one round earlier, where it is known.
        signs: of the last of these rounds; None of the initial model.
        sampled: what its seats sampled in the last of these rounds; None where nobody measured it.
        held_out_reward: what the model answers to prompts that it was not trained on is worth, as
            a share, where the submitter gave some.
    """

    merged: int
    computed: bytes | None = None
    certified: bytes | None = None
    before: float | None = None
    signs: RoundSigns | None = None
    sampled: Sampled | None = None
    held_out_reward: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether anything is."""
        return (self.loss, self.sampled, self.held_out_reward) != (None, None, None)

    @property
    def bits(self) -> bytes | None:
        """The held-out loss in 8 bytes: ours, else what was certified."""
        return self.certified if self.computed is None else self.computed

    @property
    def loss(self) -> float | None:
        """The held-out loss, nats a target."""
        return None if self.bits is None else loss_of(self.bits)

    @property
    def change(self) -> float | None:
        """By how much it rose."""
        return None if self.loss is None or self.before is None else self.loss - self.before

    @property
    def is_disputed(self) -> bool:
        """Whether a committee signed another number than the one that was computed here."""
        return None not in {self.computed, self.certified} and self.computed != self.certified

    def to_json_value(self) -> dict[str, object]:
        """As JSON has it; `bits` are the 8 bytes, and a loss that is NaN is null."""
        return {
            "merged": self.merged,
            "held_out_loss": number_of(self.bits),
            "bits": None if self.bits is None else self.bits.hex(),
            "change": None if self.change is None or math.isnan(self.change) else self.change,
            "own": number_of(self.computed),
            "certified": number_of(self.certified),
            "certified_bits": None if self.certified is None else self.certified.hex(),
            "computed_here": self.computed is not None,
            "disputed": self.is_disputed,
            "reward": None if self.sampled is None else self.sampled.reward,
            "length": None if self.sampled is None else self.sampled.length,
            "spread": None if self.sampled is None else self.sampled.spread,
            "held_out_reward": self.held_out_reward,
        }

    def text(self) -> str:
        """A sentence."""
        when = f"after round {self.merged - 1}" if self.merged else "before training"
        loss = "not known yet" if self.loss is None else f"{self.loss:.6f}"
        change = "" if self.change is None else f" ({self.change:+.6f})"
        parts = list(self._rewards(when))
        if self.loss is not None or not parts:
            parts.insert(0, f"held-out loss {when} {loss}{change}")
        if self.is_disputed and self.certified is not None:
            parts.append(f"the committee signed {loss_of(self.certified)!r}")
        sign = "" if self.signs is None else self.signs.text()
        return "; ".join([*parts, sign] if sign else parts)

    def _rewards(self, when: str) -> Iterator[str]:
        if self.sampled is not None:
            yield (
                f"round {self.merged - 1} sampled a mean reward of {self.sampled.reward:.4f} in "
                f"{self.sampled.length:.1f} tokens, and {self.sampled.spread:.1%} of its groups "
                "have an advantage"
            )
        if self.held_out_reward is not None:
            yield f"held-out reward {when} {self.held_out_reward:.4f}"


class Figures:
    """One SQLite file of one home. Raises StorageError where it cannot be used."""

    def __init__(self, path: Path) -> None:
        self._db = Database(path, SCHEMA)

    def close(self) -> None:
        self._db.close()

    def note_loss(self, spec: Digest, merged: int, model: Digest, loss: bytes) -> None:
        """Keeps what was computed here; the first number of a model stays."""
        self._db.execute(
            "INSERT OR IGNORE INTO own_losses VALUES (?, ?, ?, ?)", (spec, merged, model, loss)
        )

    def loss(self, spec: Digest, merged: int, model: Digest) -> bytes | None:
        """What was computed here of a model."""
        row = self._db.execute(
            "SELECT loss FROM own_losses WHERE spec = ? AND merged = ? AND model = ?",
            (spec, merged, model),
        ).fetchone()
        return None if row is None else bytes(row[0])

    def note_distances(self, spec: Digest, model: Digest, distances: Mapping[int, float]) -> None:
        """Keeps how far each update lay from the merge that made a model."""
        for seat, distance in distances.items():
            self._db.execute(
                "INSERT OR IGNORE INTO own_distances VALUES (?, ?, ?, ?)",
                (spec, model, seat, distance),
            )

    def distances(self, spec: Digest, model: Digest) -> dict[int, float]:
        """What was measured here of the merge that made a model, by seat."""
        return dict(
            self._db.execute(
                "SELECT seat, distance FROM own_distances WHERE spec = ? AND model = ?",
                (spec, model),
            )
        )

    def note_sampled(self, spec: Digest, update_root: Digest, sampled: Sampled) -> None:
        """Keeps what the completions were worth that an update ends with."""
        self._db.execute(
            "INSERT OR IGNORE INTO own_sampled VALUES (?, ?, ?, ?, ?)",
            (spec, update_root, sampled.reward, sampled.length, sampled.spread),
        )

    def sampled(self, spec: Digest, update_root: Digest) -> Sampled | None:
        """What was measured here of an update."""
        row = self._db.execute(
            "SELECT reward, length, spread FROM own_sampled WHERE spec = ? AND update_root = ?",
            (spec, update_root),
        ).fetchone()
        return None if row is None else Sampled(*row)

    def note_reward(self, spec: Digest, merged: int, model: Digest, reward: float) -> None:
        """Keeps a model's held-out reward."""
        self._db.execute(
            "INSERT OR IGNORE INTO own_rewards VALUES (?, ?, ?, ?)", (spec, merged, model, reward)
        )

    def reward(self, spec: Digest, merged: int, model: Digest) -> float | None:
        """What was computed here of a model."""
        row = self._db.execute(
            "SELECT reward FROM own_rewards WHERE spec = ? AND merged = ? AND model = ?",
            (spec, merged, model),
        ).fetchone()
        return None if row is None else float(row[0])


def known(figures: Figures | None, view: JobView) -> list[RoundFigures]:
    """Everything that is known of a job, the initial model first; without figures of this machine
    what committees signed.
    """
    rows: list[RoundFigures] = []
    for merged in range(len(view.settled) + 1):
        model = model_of(view, merged)
        computed = None if figures is None else figures.loss(view.spec_digest, merged, model)
        before = rows[-1].loss if rows else None
        reward = None if figures is None else figures.reward(view.spec_digest, merged, model)
        item = RoundFigures(merged, computed, certified_loss(view, merged), before)
        sampled = None if figures is None or not merged else _sampled_in(figures, view, merged - 1)
        rows.append(replace(item, sampled=sampled, held_out_reward=reward))
    signs = Signs.of(view, [item.bits for item in rows]).rounds
    return [replace(item, signs=sign) for item, sign in zip(rows, (None, *signs), strict=True)]


def _sampled_in(figures: Figures, view: JobView, round: int) -> Sampled | None:
    """By the seats whose updates were merged, as far as they were measured."""
    settled = view.settled[round]
    roots = (settled.reveals[seat].reveal.update_root for seat in merged_seats(view, settled))
    known_of = (figures.sampled(view.spec_digest, root) for root in roots)
    return mean_of([sampled for sampled in known_of if sampled is not None])


def measured_distances(figures: Figures, view: JobView) -> dict[tuple[int, int], float]:
    """What was measured here so far, by round and seat."""
    return {
        (settled.round, seat): distance
        for settled in view.settled
        for seat, distance in figures.distances(view.spec_digest, settled.verdict.state).items()
    }


def certified_loss(view: JobView, merged: int) -> bytes | None:
    """The loss of the model after so many rounds, as the next round's committee signed it.

    None where that is not settled, settled without a certificate, or evaluates nothing.
    """
    if merged >= len(view.settled):
        return None
    following = view.settled[merged]
    is_said = any(following.digest) and following.verdict.loss != _NOT_EVALUATED
    return following.verdict.loss if is_said and _is_loss(following.verdict.loss) else None


def model_of(view: JobView, merged: int) -> Digest:
    """The digest of the model after so many rounds; of the initial one, which no event tells, 0."""
    return view.settled[merged - 1].verdict.state if merged else ZERO_DIGEST


def cid_of(view: JobView, merged: int) -> bytes:
    """Where the model after so many rounds is; empty for the initial one.

    A round that is settled without a certificate leaves the model as it was.
    """
    cids = (settled_round.verdict.cid for settled_round in reversed(view.settled[:merged]))
    return next(filter(None, cids), b"")


def named(data: bytes, what: str) -> Cid:
    """The CID that somebody put on the chain. Raises ProtocolError where it is none."""
    try:
        return Cid.from_bytes(data)
    except ValueError as error:
        raise ProtocolError(f"the chain names no {what}: {data.hex()} is no CID") from error


def _is_loss(data: bytes) -> bool:
    """A committee may sign 8 bytes that are no loss."""
    try:
        loss_of(data)
    except ValueError:
        return False
    return True


def number_of(bits: bytes | None) -> float | None:
    """Nats a target; None where there is no number, or NaN."""
    value = None if bits is None else loss_of(bits)
    return None if value is None or math.isnan(value) else value
