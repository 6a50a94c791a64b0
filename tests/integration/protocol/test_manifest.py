"""A manifest that is nested deeply, in a process that may take little."""

from __future__ import annotations

import subprocess
import sys


def test_deep_nesting_costs_nothing_whatever_the_recursion_limit() -> None:
    program = (
        "import resource, sys\n"
        "from atoll.protocol.canonical import decode\n"
        "sys.setrecursionlimit(1_000_000)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))\n"
        "try:\n    decode(b'\\x81' * 16_000, 16_384)\n"
        "except ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert b"nested deeper" in done.stdout
