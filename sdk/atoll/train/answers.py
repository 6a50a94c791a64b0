"""Answers what a submitter asks of this machine: `python -m atoll.train.answers`.

A line of JSON in is a question, a line of JSON out its answer, until there are no more. A program
of its own, because bits depend on settings of torch that a caller's process keeps; one for all
questions, because torch takes seconds to load.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import structlog

from atoll.nested import loads
from atoll.protocol.manifest import Manifest
from atoll.train.manifest_program import program_root
from atoll.train.measure_pace import kept_share, measure
from atoll.train.probe import numerics_spec, pin_torch


def answer(question: dict[str, str]) -> Any:
    """What this machine says to a question; bytes are hexadecimal digits on both sides.

    `{"numerics": ""}` asks what workers reproduce here, `{"pace": MANIFEST}` how fast a job's
    model is trained and what is kept of a first update (`atoll.train.measure_pace`), `{"program":
    MANIFEST, "store": FOLDER}` which root its terms have to name (`atoll.train.manifest_program`).

    Raises:
        ValueError: it is none of these.
        NotFound, CorruptBlock, MalformedState: of a program, whose initial weights are not here.
    """
    pin_torch()
    match question:
        case {"numerics": _}:
            return loads(json.dumps(numerics_spec().model_dump(), default=bytes.hex))
        case {"pace": manifest}:
            job = Manifest.from_bytes(bytes.fromhex(manifest))
            return {**measure(job), "kept": kept_share(job)}
        case {"program": manifest, "store": folder}:
            return program_root(bytes.fromhex(manifest), folder)[0].hex()
    raise ValueError(f"no question: {sorted(question)}")


def main() -> None:
    """Answers until standard input ends."""
    # Standard output is the answers' alone.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
