"""Prints the numerics that workers reproduce on this machine: `python -m atoll.runtime.describe`.

A program of its own, because bits depend on settings of torch that a caller's process keeps.
"""

from __future__ import annotations

import json
import sys

from atoll.train.probe import configure_native, native_numerics


def main() -> None:
    """Writes one JSON object; digests in hex."""
    configure_native()
    numerics = native_numerics()
    document = {
        "mode": numerics.mode,
        "software_class": numerics.software_class,
        "code_digest": numerics.code_digest.hex(),
        "probe_digest": numerics.probe_digest.hex(),
    }
    sys.stdout.write(json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
