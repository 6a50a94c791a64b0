"""A job before it is paid for: complete, with its manifest, and every figure with its reason."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from atoll.job.plan import Figure, Floors, Pace, complete
from atoll.job.prepare import ask, missing_extra
from atoll.job.spec import JobSpec
from atoll.law.manifest import DataSpec, InitSpec, Manifest, NumericsSpec
from atoll.law.words import JobId


@dataclass(frozen=True, slots=True)
class Found:
    """What a manifest says that nobody chooses; `init` None draws the first weights."""

    data: DataSpec
    init: InitSpec | None
    numerics: NumericsSpec


@dataclass(frozen=True, slots=True)
class Draft:
    """A job that can be submitted.

    Attributes:
        key: of what it says; the same key is the same job.
        figures: what was left out and is computed.
        pace: what was measured; None where nothing had to be.
        job: its number, where it is on the chain already.
        said: the job's file as it was, with nothing computed.
    """

    key: str
    spec: JobSpec
    manifest: Manifest
    figures: tuple[Figure, ...] = ()
    pace: Pace | None = None
    job: JobId | None = None
    said: str = ""


async def write_draft(
    key: str, spec: JobSpec, found: Found, now: int, floors: Floors, *, measured: bool = False
) -> Draft:
    """Completes a spec, measuring what it leaves open, or in any case if `measured`.

    Raises:
        ConfigError: the train extra is missing, the machine cannot be probed, the budget is small.
        ManifestError: the choices do not fit together.
    """
    figures: tuple[Figure, ...] = ()
    pace = await measure(spec, found) if measured or spec.left_out() else None
    if pace is not None:
        spec, figures = complete(spec, pace, floors)
    manifest = spec.resolve(found.data, found.init, found.numerics, now)
    return Draft(key, spec, manifest, figures, pace)


async def measure(spec: JobSpec, found: Found) -> Pace:
    """The model's pace on this machine, from a process of its own. Raises as `write_draft`."""
    if find_spec("torch") is None:
        raise missing_extra("measuring how long a step takes")
    # What is left out does not matter to a step.
    anything = {path: "1" if path == "audit.coverage" else 1 for path in spec.left_out()}
    manifest = spec.but(anything).resolve(found.data, found.init, found.numerics, now=0)
    program = (sys.executable, "-m", "atoll.train.pace")
    return Pace(**json.loads(await ask(program, manifest.to_bytes())))
