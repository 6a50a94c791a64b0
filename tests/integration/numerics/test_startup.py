"""A process whose libraries were set to less precision takes the known step or is refused."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_library_set_to_reduced_precision_gives_the_known_step_or_is_refused() -> None:
    """In a process of its own, since libraries read the variable once."""
    code = "from atoll.numerics.kernels.engine import make_engine; make_engine('fp32', 'eager')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "DNNL_DEFAULT_FPMATH_MODE": "BF16"},
    )  # fmt: skip
    assert done.returncode == 0 or "NumericsMismatch" in done.stderr
