"""Ends the service of a config: by asking it, else by a signal to the process that has its folder.

Rule of this file: only the process that took the folder's lock as a service is sent a signal, and
only while it is still that one.
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.cli import services
from atoll.cli.output import say
from atoll.errors import AtollError, ConfigError

if TYPE_CHECKING:
    from atoll.service.lock import LockHolder

PAUSE_S = 0.2
TELLS_S = 10.0
"""So often it is said what is waited for."""


class StillRuns(AtollError):
    """The service was told to stop, and has not ended within the time that was given."""

    exit_code = 6


def stop(config: Path, wait_s: float, *, kills: bool) -> dict[str, Any]:
    """Has the service of a config end, and waits until its process holds the folder no more.

    Args:
        wait_s: seconds for an orderly end.
        kills: whether a process that has not ended then is killed: what it signed is on the disk.

    Returns:
        What became of it, with `text` for a person; one that does not run is no error.

    Raises:
        ConfigError: a command holds the folder, and no service.
        StillRuns: it has not ended.
    """
    from atoll.service.lock import holder_in

    data_dir = services.load(config).data_dir
    holder = holder_in(data_dir)
    if holder is None:
        return {"was_running": False, "text": f"no service of {config} is running"}
    _require_service(data_dir, holder)
    owes = _ask(data_dir, holder)
    if owes is None:
        _signal(data_dir, holder, signal.SIGTERM)
    if _has_ended(data_dir, holder, wait_s):
        return _ended(holder, f"process {holder.pid} has ended", owes)
    if not kills:
        raise StillRuns(
            f"process {holder.pid} was told to stop {wait_s:g} s ago, and has not ended",
            next_step="wait longer (--wait), or pass --kill: what it signed and sent is on the "
            "disk, and a restart takes up from there",
        )
    _signal(data_dir, holder, signal.SIGKILL)
    if not _has_ended(data_dir, holder, wait_s):
        raise StillRuns(
            f"process {holder.pid} was killed, and is still there",
            next_step="look what it waits for: a disk or a network file system that hangs",
        )
    return _ended(holder, f"process {holder.pid} was killed", owes)


def _ask(data_dir: Path, holder: LockHolder) -> dict[str, Any] | None:
    """What a service that answers said when it was told to stop; None of one that does not."""
    from atoll.service.control import NotRunning, StoppedBySignal, ask

    try:
        answer: dict[str, Any] = asyncio.run(ask(data_dir, "stop"))
    except StoppedBySignal:
        say(f"process {holder.pid} is frozen; it goes on, and is told to stop")
        return None
    except NotRunning:
        say(f"process {holder.pid} does not answer; it is sent SIGTERM")
        return None
    for job, owed in answer.get("obligations", {}).items():
        for duty in owed:
            say(f"job {job} owes {services.owed_text(duty)}: start it again before then")
    if answer.get("under_way"):
        say(f"it lets go of what is under way: {', '.join(answer['under_way'])}")
    if answer.get("is_supervised"):
        say("systemd may start it again: `systemctl stop` its unit keeps it stopped")
    return answer


def _signal(data_dir: Path, holder: LockHolder, number: signal.Signals) -> None:
    """To the service's process, which goes on for it where it is frozen.

    Raises ConfigError where that one does not hold the folder any more.
    """
    from atoll.service.lock import holder_in
    from atoll.service.processes import send

    now = holder_in(data_dir)
    if now is None:
        return  # it has ended meanwhile
    if now != holder or not send(now.pid, now.started, number, signal.SIGCONT):
        raise ConfigError(
            f"the process that holds {data_dir} is not the one that took it: it was sent nothing",
            next_step=f"look who has {data_dir / 'lock'} open: a part of the service may have "
            "outlived it (`fuser` names it)",
        )


def _require_service(data_dir: Path, holder: LockHolder) -> None:
    """Raises ConfigError where a command works in the folder."""
    if not holder.is_service:
        raise ConfigError(
            f"process {holder.pid} works in {data_dir}, and is no service",
            next_step="wait until that command has ended",
        )


def _has_ended(data_dir: Path, holder: LockHolder, wait_s: float) -> bool:
    """Whether the folder is let go of within so many seconds."""
    from atoll.service.lock import holder_in

    began = said_at = time.monotonic()
    while holder_in(data_dir) == holder:
        now = time.monotonic()
        if now - began >= wait_s:
            return False
        if now - said_at >= TELLS_S:
            said_at = now
            say(f"waits for process {holder.pid} to end, {now - began:.0f} s so far")
        time.sleep(PAUSE_S)
    return True


def _ended(holder: LockHolder, text: str, answer: dict[str, Any] | None) -> dict[str, Any]:
    owes = {} if answer is None else answer.get("obligations", {})
    return {"was_running": True, "pid": holder.pid, "obligations": owes, "text": text}
