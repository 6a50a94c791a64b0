"""Prints the numerics that workers reproduce here: `python -m atoll.train.describe MODE`.

A program of its own, because bits depend on settings of torch that a caller's process keeps.
"""

from __future__ import annotations

import json
import sys
from typing import get_args

import structlog

from atoll.law.words import NumericsMode
from atoll.train.probe import configure_native, numerics_spec


def main() -> None:
    """Writes one JSON object; digests in hex."""
    known: tuple[NumericsMode, ...] = get_args(NumericsMode)
    modes = [mode for mode in known if sys.argv[1:] == [mode]]
    if not modes:
        sys.exit(f"usage: python -m atoll.train.describe {'|'.join(known)}")
    # Standard output is the document's alone.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
    configure_native()
    document = numerics_spec(modes[0]).model_dump()
    sys.stdout.write(json.dumps(document, default=bytes.hex) + "\n")


if __name__ == "__main__":
    main()
