"""torchrun in a member's place: the service is a rank that it starts, on one host of several."""

from __future__ import annotations

import os
import sys
from runpy import run_module

MODULE = "torch.distributed.run"


def run(arguments: list[str]) -> int:
    """Starts the ranks of this host and waits for them; what it exits with."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    sys.argv = [MODULE, *arguments]
    run_module(MODULE, run_name="__main__")
    return 0
