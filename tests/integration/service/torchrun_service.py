"""What torchrun starts in the tests: a service that has its worker and its ranks compute.

It says what they came to in a file, a line each time: whether the bits are those of one process,
and how many ranks there were.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

from tests.integration.service import rank_tasks

from atoll.service.config import ServiceConfig
from atoll.service.main import main
from atoll.service.worker import Worker

SAYS: Final = "ATOLL_TEST_SAYS"
"""The file."""
WAITS: Final = "ATOLL_TEST_WAITS"
"""Set where it does not end by itself before torchrun has started it a second time."""


async def serve(_: ServiceConfig) -> None:
    for _ in range(2):  # a second worker leads the ranks that the first one led
        worker = Worker(leads=True)
        try:
            say(*await worker.run(rank_tasks.ON_HOSTS()))
        finally:
            worker.kill()
    while is_first_attempt():  # noqa: ASYNC110 (somebody else ends it)
        await asyncio.sleep(1)


def say(is_same: bool, ranks: int) -> None:
    with Path(os.environ[SAYS]).open("a") as file:
        file.write(json.dumps([is_same, ranks]) + "\n")


def is_first_attempt() -> bool:
    return WAITS in os.environ and len(Path(os.environ[SAYS]).read_text().splitlines()) == 2


if __name__ == "__main__":
    sys.exit(main("torchrun_service", serve))
