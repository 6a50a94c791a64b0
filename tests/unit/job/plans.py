"""Jobs as they are planned for a machine of a known pace."""

from __future__ import annotations

from tests.unit.job.test_spec import DATA, NOW, NUMERICS

from atoll.job.draft import Draft
from atoll.job.plan import (
    Pace,
    complete,
)
from atoll.job.presets import preset
from atoll.job.quote import quote
from atoll.job.spec import JobSpec
from atoll.protocol.pay import budget
from atoll.protocol.types import Terms

PACE = Pace(
    step_seconds=2.0,
    segment_seconds=0.5,
    parameters=10_000_000,
    timed_parameters=10_000_000,
    update_bytes=10_000_000,
    kept=0.99,
)
NANO = preset("nano").but({"audit.rate": "0.5"})


def completed(changes: dict[str, object], pace: Pace = PACE) -> JobSpec:
    return complete(NANO.but(changes), pace)[0]


def resolved(spec: JobSpec) -> Terms:
    return spec.resolve(DATA, None, NUMERICS, NOW).terms


def cost(spec: JobSpec) -> int:
    return budget(resolved(spec))


def warnings_of(changes: dict[str, object]) -> str:
    spec = completed(changes)
    draft = Draft("key", spec, spec.resolve(DATA, None, NUMERICS, NOW), (), PACE)
    return "\n".join(quote(draft, PACE, 1).warnings)
