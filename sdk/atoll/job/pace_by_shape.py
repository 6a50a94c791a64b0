"""A model's pace where there is no torch to time it with: what its shape says.

Rule of this file: pure. It is an answer of `atoll.job.asking` for sizes and prices alone: a job
that is submitted names what a machine reproduces, and nothing here does.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from atoll.numerics.operation_counts import token_operations
from atoll.numerics.state_layout import param_count
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import ZERO_DIGEST
from atoll.service.pace import OPERATIONS_A_SECOND, TRACE_STEPS, Pace
from atoll.service.update_limits import HEADER_BYTES, max_update_bytes

NOTE = (
    "torch is not installed here, so nothing was timed: seconds follow from the model's shape, at "
    f"{OPERATIONS_A_SECOND / 10**9:.0f} billion operations a second, and what its grid keeps is "
    "not known; pip install 'atoll[train]' measures"
)


GENERATION_PART: Final = 1.4
"""Of a step's training: a token at a time takes about four times as long as one forward pass
(`bench/rl.py`)."""


async def answer_by_shape(question: dict[str, str]) -> Any:
    """What `atoll.train.answers` says, as far as a shape tells it."""
    match question:
        case {"numerics": _}:
            return dict.fromkeys(("code_digest", "probe_digest"), ZERO_DIGEST.hex())
        case {"pace": manifest}:
            return asdict(pace_by_shape(Manifest.from_bytes(bytes.fromhex(manifest))))
    raise ValueError(f"a shape does not answer {sorted(question)}")


def pace_by_shape(manifest: Manifest) -> Pace:
    """Of a machine that computes as assumed; an update at its largest."""
    tokens = manifest.inner.batch * manifest.model.seq
    training = tokens * token_operations(manifest.model) / OPERATIONS_A_SECOND
    generation = GENERATION_PART * training if manifest.task is not None else 0.0
    # A forward pass of one sequence is a third of its training.
    passed = training / manifest.inner.batch / 3
    token = TRACE_STEPS * passed if manifest.task is not None else 0.0
    return Pace(
        step_seconds=training + generation,
        segment_seconds=0.0,
        parameters=param_count(manifest.model),
        timed_parameters=0,
        update_bytes=max_update_bytes(manifest) - HEADER_BYTES,
        generation_seconds=generation,
        token_seconds=token,
    )
