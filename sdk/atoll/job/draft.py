"""A job before it is paid for: complete, with its manifest, and every figure with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import ConfigError
from atoll.job.asking import Ask
from atoll.job.groups import tokens_text
from atoll.job.plan import BondFloors, Figure, complete, filled, priced
from atoll.job.spec import JobSpec
from atoll.protocol.manifest import DataSpec, InitSpec, Manifest, NumericsSpec
from atoll.protocol.pay import budget
from atoll.protocol.task_spec import TaskSpec
from atoll.protocol.token_units import parts_of
from atoll.protocol.types import JobId
from atoll.service.pace import Pace

if TYPE_CHECKING:
    from atoll.train.corpus.reading_report import ReadingReport


@dataclass(frozen=True, slots=True)
class PreparedParts:
    """What a manifest says that nobody chooses; `init` None draws the first weights, `task` None
    learns text.
    """

    data: DataSpec
    init: InitSpec | None
    numerics: NumericsSpec
    task: TaskSpec | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A job that can be submitted.

    Attributes:
        key: of what it says; the same key is the same job.
        figures: what was excluded and is computed.
        pace: what was measured; None where nothing had to be.
        job: its number, where it is on the chain already.
        file: the job's file as it was, with nothing computed but the commits of what it names on
            the Hub.
        floors: of the network that it is for.
        read: what became of every file and row of the text.
        notes: what a person should know of what was taken from the Hub, and of how the tokenizer
            took the text.
        after: number of the last submission of these words that it knows of, 0 of none: a later one
            is the same job, whichever program submits it. None where it is to be another one.
    """

    key: str
    spec: JobSpec
    manifest: Manifest
    figures: tuple[Figure, ...] = ()
    pace: Pace | None = None
    job: JobId | None = None
    file: str = ""
    floors: BondFloors = field(default_factory=BondFloors)
    read: ReadingReport | None = None
    notes: tuple[str, ...] = ()
    after: int | None = None


async def write_draft(
    key: str, spec: JobSpec, parts: PreparedParts, now: int, floors: BondFloors, *, ask: Ask | None
) -> Draft:
    """Completes a spec, measuring what it leaves open.

    Args:
        ask: who measures the model's pace (`atoll.job.asking`); None where nothing is left open.

    Raises:
        ConfigError: the train extra is missing, the machine cannot be probed, the budget is less
            than the job's price.
        ManifestError: the choices do not fit together.
    """
    pace = None if ask is None else await measure(spec, parts, ask)
    spec, figures = priced(spec, floors) if pace is None else complete(spec, pace, floors)
    prepared = (parts.data, parts.init, parts.numerics)
    manifest = spec.resolve(*prepared, now, decimals=floors.decimals, task=parts.task)
    _check_budget(spec.money.budget, budget(manifest.terms) * parts_of(floors.decimals))
    return Draft(key, spec, manifest, figures, pace, floors=floors)


def _check_budget(most: int | None, price: int) -> None:
    """Of both in parts of a token."""
    if most is not None and price > most:
        raise ConfigError(
            f"money.budget is {tokens_text(most)} tokens, and at money.price_per_million and the "
            f"fees that are written the job costs {tokens_text(price)}",
            next_step="leave money.price_per_million out, which then follows from money.budget, or "
            "raise money.budget",
        )


async def measure(spec: JobSpec, parts: PreparedParts, ask: Ask) -> Pace:
    """The model's pace on this machine. Raises as `write_draft`."""
    # What is left out does not matter to a step.
    manifest = filled(spec).resolve(parts.data, parts.init, parts.numerics, now=0, task=parts.task)
    return Pace(**await ask({"pace": manifest.to_bytes().hex()}))
