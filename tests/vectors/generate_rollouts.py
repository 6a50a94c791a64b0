"""Writes the vectors of steps that sample: `python -m tests.vectors.generate_rollouts`.

Rule of this file: as `generate_step.py`; the job is one of the small ones of the trace's tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from tests.unit.numerics.trace.jobs import DATA_SEED, SEAT, small

from atoll.numerics.segment import run_segment
from atoll.numerics.step import inner_step, state_roots
from atoll.numerics.tensors import raw_bytes

HERE = Path(__file__).parent
JOB: Final = "rl"


def rollouts() -> dict[str, Any]:
    """What the first step samples, what that is worth, and where it and its segment lead."""
    job = small(JOB)
    given = job.course.input_of(0, job.initial_state)
    made = given.rollouts
    assert made is not None
    done = inner_step(job.initial_state, given, job.course.recipe)
    segment = run_segment(job.initial_state, 0, job.course)
    return {
        "manifest": job.manifest.to_bytes().hex(),
        "words": raw_bytes_of(job.course.tokens).hex(),
        "globalState": job.course.model.to_bytes().hex() if job.course.model else "",
        "dataSeed": DATA_SEED.hex(),
        "seat": SEAT,
        "step": {
            "ids": made.signed.tolist(),
            "below": made.below.tolist(),
            "rewards": list(made.rewards),
            "weights": bytes(raw_bytes(made.weights)).hex(),
            "drawn": [str(number) for number in made.drawn],
            "norm": np.array(done.work.norm, ">f8").tobytes().hex(),
            "losses": np.array(done.work.losses, ">f4").tobytes().hex(),
            "stateRoots": [root.hex() for root in state_roots(done.state)],
        },
        "segment": {"stateDigest": segment.digest.hex(), "workTag": segment.work_tag.hex()},
    }


def raw_bytes_of(words: Any) -> bytes:
    """The job's data, little-endian."""
    return np.ascontiguousarray(words[:]).tobytes()


def render(build: Callable[[], dict[str, Any]]) -> str:
    """The file's text."""
    return json.dumps(build(), indent=1, sort_keys=True) + "\n"


FILES: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {"rollouts.json": rollouts}

if __name__ == "__main__":
    for name, make in FILES.items():
        (HERE / name).write_text(render(make))
