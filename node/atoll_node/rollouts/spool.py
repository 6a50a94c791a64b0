"""What a provider's worker and its rollout endpoint tell each other: files of one folder.

Rule of this file: neither waits for the other, each takes what is there; so a helper that is slow,
gone or hostile, and an endpoint that ended, cost a round no time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from atoll.nested import loads
from atoll_node.deadlines import since_boot
from atoll_node.rollouts.splitting import Splitting

PRESENT_SECONDS: Final = 60.0
"""So long a helper counts as there after it asked for work."""
OFFER: Final = "offer.json"
_HELPERS, _COUNTS, _RESULTS = "helpers.json", "counts.json", "results"
_SPLITTING: Final = "splitting.json"


@dataclass(frozen=True, slots=True)
class Part:
    """Sequences of a step that follow one another."""

    first: int
    count: int

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A step's completions, to be generated in parts.

    Attributes:
        step: a name that nobody knows before.
        manifest, params: SHA-256 of what goes with it, in hexadecimal digits.
        base: CID of what adapters are added to; None where whole weights are trained.
        key, global_step: of the draw.
    """

    step: str
    manifest: str
    params: str
    base: str | None
    parts: tuple[Part, ...]
    prompts: tuple[tuple[int, ...], ...]
    new_tokens: int
    ends: tuple[int, ...]
    key: tuple[int, int]
    global_step: int
    seq: int

    def part_bytes(self, part: Part) -> int:
        """Of the ids of a part, as little-endian int32."""
        return 4 * part.count * (self.seq + 1)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Offer:
        """Raises ValueError, TypeError or KeyError where it is none."""
        plain: dict[str, Any] = loads(data.decode())
        plain["parts"] = tuple(Part(**part) for part in plain["parts"])
        plain["prompts"] = tuple(map(tuple, plain["prompts"]))
        plain["ends"], plain["key"] = tuple(plain["ends"]), tuple(plain["key"])
        return cls(**plain)


@dataclass(frozen=True, slots=True)
class Count:
    """What a helper did.

    Attributes:
        tokens: of sequences that were used; `late` are those that came when they were there
            already, `false` those that are not what the law gives.
    """

    sequences: int = 0
    tokens: int = 0
    late: int = 0
    false: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What a helper sent of a part; nothing is known of the bytes but how many they are."""

    part: Part
    name: str
    ids: bytes


@dataclass(frozen=True, slots=True)
class Spool:
    """One provider's folder."""

    folder: Path

    @classmethod
    def beside(cls, store_dir: str) -> Spool:
        """The one of the service whose store this is."""
        return cls(Path(store_dir).parent / "rollouts")

    # --- the endpoint's side ---

    def begin(self) -> None:
        """Makes the folder, in which nothing is left of an earlier run but what helpers did."""
        (self.folder / _RESULTS).mkdir(parents=True, exist_ok=True)
        self._remove(_HELPERS)

    def note_helper(self) -> None:
        """Says that a helper is there."""
        self.write(_HELPERS, json.dumps(since_boot() + PRESENT_SECONDS).encode())

    def offer(self) -> Offer | None:
        """What is to be generated now."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            return Offer.from_bytes((self.folder / OFFER).read_bytes())
        return None

    def take_in(self, offer: Offer, result: Result) -> None:
        """Leaves it to the worker; the first of a part stays."""
        file = self._result(offer, result.part)
        if not file.exists():
            head = json.dumps(result.name).encode() + b"\n"
            self.write(file.relative_to(self.folder).as_posix(), head + result.ids)

    # --- the worker's side ---

    def has_helpers(self) -> bool:
        """Whether one was there lately."""
        with suppress(OSError, ValueError, TypeError):
            return float(loads((self.folder / _HELPERS).read_text())) > since_boot()
        return False

    def splitting(self, job: str) -> Splitting:
        """What it has cost so far to generate this job's completions in parts."""
        with suppress(OSError, ValueError, TypeError):
            kept = Splitting(**loads((self.folder / _SPLITTING).read_text()))
            return kept if kept.job == job else Splitting(job)
        return Splitting(job)

    def keep(self, splitting: Splitting) -> None:
        """Of one job, for the next step. Raises OSError."""
        self.write(_SPLITTING, json.dumps(asdict(splitting)).encode())

    def publish(self, offer: Offer, files: Mapping[str, bytes]) -> None:
        """Offers a step with what goes with it, named by its SHA-256; the one before goes."""
        self.withdraw()
        for old in self._digests():
            if old.name not in files:
                old.unlink(missing_ok=True)
        for name, data in files.items():
            if not (self.folder / name).exists():
                self.write(name, data)
        self.write(OFFER, offer.to_bytes())

    def results(self, offer: Offer, parts: Sequence[Part]) -> Iterator[Result]:
        """What came of these parts so far."""
        for part in parts:
            with suppress(OSError, ValueError):
                head, _, ids = self._result(offer, part).read_bytes().partition(b"\n")
                yield Result(part, str(loads(head.decode())), ids)

    def withdraw(self) -> None:
        """Offers nothing any more."""
        self._remove(OFFER)
        with suppress(OSError):
            for file in (self.folder / _RESULTS).iterdir():
                file.unlink(missing_ok=True)

    def counts(self) -> dict[str, Count]:
        """What each helper did, by name."""
        with suppress(OSError, ValueError, TypeError):
            plain: dict[str, Any] = loads((self.folder / _COUNTS).read_text())
            return {name: Count(**count) for name, count in plain.items()}
        return {}

    def add(self, name: str, more: Count) -> None:
        """Adds to what a helper did."""
        counts = self.counts()
        old = counts.get(name, Count())
        counts[name] = replace(
            old,
            sequences=old.sequences + more.sequences,
            tokens=old.tokens + more.tokens,
            late=old.late + more.late,
            false=old.false + more.false,
        )
        plain = {helper: asdict(count) for helper, count in counts.items()}
        self.write(_COUNTS, json.dumps(plain).encode())

    # --- files ---

    def write(self, name: str, data: bytes) -> None:
        """At once or not at all."""
        file = self.folder / name
        partial = file.with_name(f".{file.name}.partial")
        partial.write_bytes(data)
        partial.replace(file)

    def _result(self, offer: Offer, part: Part) -> Path:
        return self.folder / _RESULTS / f"{offer.step}-{part.first}"

    def _digests(self) -> list[Path]:
        return [file for file in self.folder.iterdir() if len(file.name) == 64]

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            (self.folder / name).unlink(missing_ok=True)


@dataclass(slots=True)
class Leases:
    """Which part of an offer who has, as the endpoint gives them out: the first ones first, since a
    provider begins at the end.

    Attributes:
        seconds: after which a part is given to another helper, too.
    """

    seconds: float
    _step: str = ""
    _until: dict[int, float] = field(default_factory=dict)
    _taker: dict[int, str] = field(default_factory=dict)
    _sent: set[int] = field(default_factory=set)

    def take(self, offer: Offer, name: str, now: float) -> Part | None:
        """One that nobody has; None where there is none, or this helper has one of the step, which
        it has to send first: so nobody keeps parts from others.
        """
        if offer.step != self._step:
            self._step, self._until, self._taker, self._sent = offer.step, {}, {}, set()
        if any(first not in self._sent for first, who in self._taker.items() if who == name):
            return None
        for part in offer.parts:
            if part.first not in self._sent and self._until.get(part.first, 0.0) <= now:
                self._until[part.first] = now + self.seconds
                self._taker[part.first] = name
                return part
        return None

    def give_back(self, offer: Offer, first: int) -> Part | None:
        """The part that was given out, which is sent now; None where it was not, or twice."""
        is_out = offer.step == self._step and first in self._until and first not in self._sent
        if not is_out:
            return None
        self._sent.add(first)
        return next((part for part in offer.parts if part.first == first), None)
