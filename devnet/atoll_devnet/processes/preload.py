"""What every member needs, made once for all: members are forked from the process that did.

They share what a process finds out once, too: the engine, the code's digest and the probe's, the
contracts' interfaces, a second or two of computing that would come to the same in each of them.

Rule of this file: importing it starts no thread, since a thread does not live through a fork.
"""

from __future__ import annotations

import gc
import logging
import os
from contextlib import suppress
from importlib import import_module

import structlog

from atoll.chain.abi import registry
from atoll.errors import AtollError
from atoll.numerics.kernels.variables import DEVICES_VARIABLE
from atoll.service.worker import THREAD_VARIABLES
from atoll_devnet.processes import clock

MODULES = (
    "eth_account",  # which a member imports once it reads its key
    "atoll_devnet.processes.member",
    *(f"atoll_devnet.cheats.{name}" for name in ("providers", "verifiers", "players")),
    *(f"atoll_devnet.cheats.{name}" for name in ("training", "replays", "merges")),
    *("atoll_node.tasks", "atoll.service.tasks", "atoll.service.game_moves"),
    *("atoll_devnet.run.evaluation", "atoll.train.answers"),
)

# Before the numerical libraries are loaded: they read these once, and start as many threads.
os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
clock.install()
for name in MODULES:
    import_module(name)


def find_numerics() -> None:
    """Works out what a worker compares with its job's manifest; whoever was forked remembers it."""
    from atoll.train.probe import numerics_spec, pin_torch  # noqa: PLC0415 (after the lines above)

    # Nobody has configured logging yet in this process, and its output is the runner's.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    # A GPU that was used before a fork cannot be used behind it.
    chosen = os.environ.pop(DEVICES_VARIABLE, None)
    pin_torch()
    # A machine that comes to other bits is each member's to refuse, in its own log.
    with suppress(AtollError):
        numerics_spec()
    if chosen is not None:
        os.environ[DEVICES_VARIABLE] = chosen
    structlog.reset_defaults()


find_numerics()
registry()
# What is imported lives as long as the process: without this, the collector of every fork would
# walk through it, and so copy what they share.
gc.collect()
gc.freeze()
