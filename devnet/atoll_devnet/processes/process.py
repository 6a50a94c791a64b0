"""Child processes on a leash: own group, log file, and no survivor when this process dies."""

from __future__ import annotations

import atexit
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from atoll.errors import AtollError

LEASH = Path(__file__).with_name("leash.py")
STOP_SECONDS = 8.0
LOWEST_PORT, FIRST_GIVEN_PORT = 20_000, 32_768
"""What is left between well-known ports and those that Linux gives to connections."""
BLOCK = 64
"""Ports that a process takes at a time."""


class ProcessFailed(AtollError):
    """A process of the local network ended by itself."""


@dataclass(slots=True)
class Process:
    """One command in a process group of its own, its output in a file.

    Attributes:
        name: for messages.
        command: program and arguments.
        log_file: where standard output and standard error go; appended to.
        env: variables added to this process's.
    """

    name: str
    command: Sequence[str]
    log_file: Path
    env: Mapping[str, str] = field(default_factory=dict)
    _popen: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Starts the command; after `kill` or `stop`, starts it again with the same arguments."""
        if self.is_running:
            return
        with self.log_file.open("ab") as log:
            # The pipe is the leash: it closes with this process, or in `_end`.
            self._popen = subprocess.Popen(  # noqa: S603  (our own command line)
                [sys.executable, "-I", "-S", str(LEASH), *self.command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.env},
                process_group=0,
            )

    @property
    def pid(self) -> int | None:
        """Of the command itself, while it runs."""
        return self._popen.pid if self._popen is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs or before it was started."""
        return None if self._popen is None else self._popen.poll()

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        self._end(signal.SIGKILL, STOP_SECONDS)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """SIGTERM, then SIGKILL to what is left after `seconds`."""
        self._end(signal.SIGTERM, seconds)

    def check(self) -> None:
        """Raises ProcessFailed, with the end of its log, if the process ended by itself."""
        if self._popen is None or self.is_running:
            return
        raise ProcessFailed(
            f"{self.name} ended with code {self.exit_code}: {last_line(self.log_file)}",
            next_step=f"read {self.log_file}",
        )

    def _end(self, number: signal.Signals, seconds: float) -> None:
        if self._popen is None:
            return
        if self.is_running:
            self._popen.send_signal(number)
            try:
                self._popen.wait(seconds)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait()
        # Closing the leash ends whatever the command left in its group.
        if self._popen.stdin is not None:
            self._popen.stdin.close()


def last_line(path: Path) -> str:
    """The last non-empty line of a text file, or that there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return "no log"
    return next((line.strip() for line in reversed(lines) if line.strip()), "empty log")


def free_port() -> int:
    """A loopback TCP port that nobody listens on now, and that no other process is given.

    It is below those that the system gives to connections (RFC 6056): one of them, of any process
    here, could have taken another before whoever asked for it listens, or while it restarts.

    Raises:
        ProcessFailed: other processes have them all.
    """
    port = next((port for port in _PORTS if is_port_free(port)), None)
    if port is None:
        raise ProcessFailed(
            f"every port from {LOWEST_PORT} to {FIRST_GIVEN_PORT} is of another local network",
            next_step="end one of them",
        )
    return port


def _ports() -> Iterator[int]:
    """This process's, blocks at a time; once no block is left they come again from the first.

    Two networks that start at once would find the same port free. Whoever has the first port of a
    block has all of it: it is bound, and never listened on, as long as this process lives.
    """
    blocks = list(range(LOWEST_PORT, FIRST_GIVEN_PORT - BLOCK, BLOCK))
    guards: list[socket.socket] = []
    for first in random.sample(blocks, len(blocks)):
        guard = socket.socket()
        try:
            guard.bind(("127.0.0.1", first))
        except OSError:
            guard.close()
            continue
        guards.append(guard)
        atexit.register(guard.close)
        yield from range(first + 1, first + BLOCK)
    while guards:
        for guard in guards:
            first = guard.getsockname()[1]
            yield from range(first + 1, first + BLOCK)


_PORTS: Final = _ports()


def is_port_free(port: int) -> bool:
    """Whether a loopback TCP port can be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
