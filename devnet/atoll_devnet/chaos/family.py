"""The processes of a service: itself, its worker and its gateway; found in /proc, so on Linux."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
PAGE = os.sysconf("SC_PAGE_SIZE")
SERVICE, WORKER, GATEWAY = "service", "worker", "gateway"
_GATEWAY_MODULE = b"atoll.service.gateway_process"
_TRACKER = b"multiprocessing.resource_tracker"


def family(pid: int) -> dict[int, str]:
    """Process ids of a service and of what it started, and which each of them is."""
    return {pid: SERVICE} | {
        child: GATEWAY if _GATEWAY_MODULE in words else WORKER
        for child in _children(pid)
        if (words := _words(child)) and _TRACKER not in words
    }


def resident_bytes(pid: int) -> int:
    """Of a process's memory; 0 of one that has ended."""
    try:
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def kill(pid: int) -> None:
    """SIGKILL to one process and none of its children."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(OSError):  # it has ended
        for task in (PROC / str(pid) / "task").iterdir():
            children += map(int, (task / "children").read_text().split())
    return children


def _words(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""
