"""What cheats give out, as their gateway's process asks it for every block.

Rule of this file: it imports little, since a gateway has to start at once. A gateway has one loop:
whatever waits here lets everybody else who asks wait, too.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Final

from atoll.service.gateway_process import Serves
from atoll.service.task import Task
from atoll.storage.cid import Cid

DRIP_SECONDS: Final = 4.0
_LOOK_SECONDS: Final = 1.0
NOTHING: Final[Serves] = Task("cheat-serve-nothing.v1", __name__)
STALLED: Final[Serves] = Task("cheat-serve-stalled.v1", __name__)
DRIPPED: Final[Serves] = Task("cheat-serve-dripped.v1", __name__)
HALF: Final[Serves] = Task("cheat-serve-half.v1", __name__)
_asked: Counter[Cid] = Counter()


@NOTHING.runs
def nothing(cid: Cid) -> bool:
    """Refuses."""
    del cid
    return False


@STALLED.runs
def stalled(cid: Cid) -> bool:
    """Holds the request, and all that come later, for as long as its service lives."""
    del cid
    service = os.getppid()
    while os.getppid() == service:
        time.sleep(_LOOK_SECONDS)
    return False


@DRIPPED.runs
def dripped(cid: Cid) -> bool:
    """Gives the block, late; who asks meanwhile waits behind it."""
    del cid
    time.sleep(DRIP_SECONDS)
    return True


@HALF.runs
def half(cid: Cid) -> bool:
    """Gives a block to the first who asks, refuses it to the second, and so on."""
    _asked[cid] += 1
    return _asked[cid] % 2 == 1
