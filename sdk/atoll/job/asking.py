"""What a manifest says of this machine, asked of a process that has torch.

That is `atoll.train.answers`, unless whoever asks has such a process already.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from tempfile import TemporaryFile
from typing import IO, Any, TypeAlias

from atoll.errors import ConfigError
from atoll.nested import loads
from atoll.numerics.kernels.devices import Devices, as_text
from atoll.numerics.kernels.variables import DEVICES_VARIABLE

Ask: TypeAlias = Callable[[dict[str, str]], Awaitable[Any]]
"""Takes a question of `atoll.train.answers` and returns its answer."""
PROGRAM = (sys.executable, "-m", "atoll.train.answers")


@asynccontextmanager
async def asking(ask: Ask | None = None, devices: Devices | None = None) -> AsyncIterator[Ask]:
    """Somebody to ask: whoever is given, or a process that starts with the first question.

    Args:
        devices: of which the process computes on the first; None is what the environment says.

    Raises, from the question:
        ConfigError: the train extra is missing, or this machine cannot be probed.
    """
    if ask is not None:
        yield ask
        return
    with TemporaryFile() as complaints:
        machine = _Machine(complaints, devices)
        try:
            yield machine.ask
        finally:
            await machine.end()


def missing_extra(what: str) -> ConfigError:
    """What to raise where torch would be needed."""
    return ConfigError(
        f"{what} needs torch, which is not installed", next_step="pip install 'atoll[train]'"
    )


class _Machine:
    """One process, and one question at a time; what it complains of goes to a file."""

    def __init__(self, complaints: IO[bytes], devices: Devices | None) -> None:
        self._complaints, self._devices = complaints, devices
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, question: dict[str, str]) -> Any:
        process = self._process = self._process or await self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        except ConnectionError:
            line = b""  # it ended while it was asked
        if not line:
            raise await self._failed(process)
        return loads(line)

    async def end(self) -> None:
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        if find_spec("torch") is None:
            raise missing_extra("working out what this machine reproduces")
        pipe = asyncio.subprocess.PIPE
        devices = self._devices
        chosen = {} if devices is None else {DEVICES_VARIABLE: as_text(devices)}
        return await asyncio.create_subprocess_exec(
            *PROGRAM, stdin=pipe, stdout=pipe, stderr=self._complaints, env=os.environ | chosen
        )

    async def _failed(self, process: asyncio.subprocess.Process) -> ConfigError:
        await process.wait()
        self._complaints.seek(0)
        words = self._complaints.read().decode(errors="replace")
        return ConfigError(
            f"this machine could not be probed: {words.strip().rpartition(chr(10))[2]}",
            next_step=f"run {' '.join(PROGRAM)} with a question to see why",
        )
