"""What tolerances a job needs: how far honest machines lie apart, and how near cheats come.

One reference run gives the openings; each setting that this machine can vary and each cheat trains
every segment from there, in a process of its own since libraries read their caps once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_UP, Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from atoll.errors import NumericsMismatch
from atoll.lab.differential import CAPS, RUN_SECONDS
from atoll.lab.trial import CHEATS, REFERENCE, Measured, Trial, TrialResult
from atoll.law.manifest import ToleranceSpec
from atoll.train.tolerance import Distance, default_tolerance, excess

MARGIN = 8
"""Tolerances over the largest honest distance: twice the four that voting needs (SPEC.md, 10)."""
LEAST = 1e-6
"""No tolerance is smaller: one machine cannot show how near all others stay."""


@dataclass(frozen=True, slots=True)
class Row:
    """A setting or a cheat.

    Attributes:
        far: the largest of each measure over all segments.
        cosine: the largest mean cosine between residuals of one seed's segments.
        least_excess, most_excess: of its segments, under the proposed tolerances; a cheat's
            least is the segment that comes nearest to passing.
    """

    name: str
    honest: bool
    far: Measured
    cosine: float
    least_excess: float
    most_excess: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured, and the tolerances that follow.

    Attributes:
        separation: the smallest excess of any cheat's segment; above 1 each of them is caught.
    """

    rows: tuple[Row, ...]
    proposed: ToleranceSpec
    separation: float

    def to_plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            "rows": [asdict(row) for row in self.rows],
            "proposed": self.proposed.model_dump(),
            "separation": self.separation,
        }


def calibrate(base: Trial, tell: Callable[[str], object] = lambda _: None) -> Calibration:
    """Runs everything; `tell` hears what begins.

    Raises:
        NumericsMismatch: the reference cannot be trained here, or nothing honest can be compared.
    """
    found: dict[str, TrialResult] = {}
    with TemporaryDirectory(prefix="atoll-calibrate-") as name:
        tell("the reference\n")
        _run_apart(replace(base, what=REFERENCE), Path(name))
        for trial in trials(base):
            tell(f"{trial.what}\n")
            result = _run_apart(trial, Path(name))
            if result is not None:
                found[trial.what] = result
    return judged(found)


def trials(base: Trial) -> Iterator[Trial]:
    """The honest settings of this machine, then the cheats."""
    yield replace(base, what="2 threads", threads=2)
    yield replace(base, what="fp64 arithmetic", dtype="float64")
    capped = {
        "ATEN_CPU_CAPABILITY": ("default", "avx2"),
        "ONEDNN_MAX_CPU_ISA": ("AVX2",),
        "MKL_ENABLE_INSTRUCTIONS": ("SSE4_2", "AVX2"),
        "MKL_CBWR": ("COMPATIBLE",),
    }
    for name, values in capped.items():
        for value in values:
            yield replace(base, what=f"{name}={value}", caps={name: value})
    if torch.cuda.is_available():
        yield replace(base, what="CUDA", device="cuda")
    for cheat in CHEATS:
        yield replace(base, what=cheat)


def judged(results: dict[str, TrialResult]) -> Calibration:
    """The tolerances that honest trials need, and every trial under them.

    Raises NumericsMismatch where no honest trial is among them.
    """
    honest = [m for name, r in results.items() if name not in CHEATS for m in r.segments]
    if not honest:
        raise NumericsMismatch("no honest setting could be run here", next_step="see the errors")
    limits = default_tolerance().model_copy(
        update={
            part: _proposal(max(getattr(m, part) for m in honest))
            for part in ("params", "slots", "loss")
        }
    )
    rows = tuple(_row(name, result, limits) for name, result in results.items())
    cheats = [row.least_excess for row in rows if not row.honest]
    return Calibration(rows, limits, min(cheats, default=0.0))


def _row(name: str, result: TrialResult, limits: ToleranceSpec) -> Row:
    found = result.segments
    excesses = [_excess(m, limits) for m in found]
    far = Measured(
        params=max(m.params for m in found),
        slots=max(m.slots for m in found),
        loss=max(m.loss for m in found),
        work=min(m.work for m in found),
    )
    cosine = max(result.cosines)
    return Row(name, name not in CHEATS, far, cosine, min(excesses), max(excesses))


def _excess(measured: Measured, limits: ToleranceSpec) -> float:
    parts = (
        Distance("params", "", measured.params, measured.work),
        Distance("slots", "", measured.slots, measured.work),
    )
    return excess(parts, (1.0, 1.0 + measured.loss), limits)


def _proposal(honest: float) -> str:
    """`MARGIN` times the largest honest distance, rounded up to one digit."""
    value = Decimal(f"{max(LEAST, MARGIN * honest):.3g}")
    digit = value.quantize(Decimal(1).scaleb(value.adjusted()), rounding=ROUND_UP)
    return f"{digit.normalize():f}"


def _run_apart(trial: Trial, folder: Path) -> TrialResult | None:
    """The trial's result, None for the reference or where this machine cannot run it."""
    kept = {name: value for name, value in os.environ.items() if name not in CAPS}
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **kept, **trial.caps}
    done = subprocess.run(  # noqa: S603 - this interpreter on this package
        [sys.executable, "-m", "atoll.lab.trial", str(folder), json.dumps(asdict(trial))],
        capture_output=True, text=True, timeout=RUN_SECONDS, check=False, env=environment,
    )  # fmt: skip
    if done.returncode and trial.what == REFERENCE:
        raise NumericsMismatch(f"no reference: {done.stderr.strip()[-300:]}")
    if done.returncode or trial.what == REFERENCE:
        return None
    plain = json.loads(done.stdout.splitlines()[-1])
    segments = tuple(Measured(**measured) for measured in plain["segments"])
    return TrialResult(segments, tuple(plain["cosines"]))
