"""Data and sizes, in a process that has no torch loaded."""

from __future__ import annotations

import subprocess
import sys


def test_data_and_sizes_need_no_torch() -> None:
    """A submitter prepares data and sizes a job on a machine without torch; a service's own process
    lets go of checkpoints."""
    program = (
        "import sys, atoll.train.data, atoll.numerics.state_layout, atoll.train.code\n"
        "import atoll.train.checkpoints\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
