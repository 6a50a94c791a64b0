"""A wrong clock, as a process has it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from atoll_devnet.processes.clock import SITE, VARIABLE

CLOCK = """
import subprocess, sys, time
from time import time as named
print(time.time(), named(), subprocess.check_output([sys.executable, "-c", sys.argv[1]]).decode())
"""


def test_a_wrong_clock_is_wrong_for_a_process_and_what_it_starts() -> None:
    path = os.pathsep.join([str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, VARIABLE: "-7200.0", "PYTHONPATH": path}
    now = "import time; print(time.time())"
    said = subprocess.check_output([sys.executable, "-c", CLOCK, now], env=env, text=True)
    for told in map(float, said.split()):
        assert abs(time.time() - 7200 - told) < 3000
