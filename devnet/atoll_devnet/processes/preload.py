"""What every member needs, imported once for all: members are forked from the process that did.

Rule of this file: importing it starts no thread, since a thread does not live through a fork.
"""

from __future__ import annotations

import os
from importlib import import_module

from atoll.service.worker import THREAD_VARIABLES

MODULES = (
    "atoll_devnet.processes.member",
    *("atoll_devnet.cheats.providers", "atoll_devnet.cheats.verifiers"),
    *("atoll_node.tasks", "atoll_verifier.tasks", "atoll_devnet.cheats.training"),
    "atoll_devnet.run.evaluation",
)

# Before the numerical libraries are loaded: they read these once, and start as many threads.
os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
for name in MODULES:
    import_module(name)
