"""Runs a command that ends when whoever started it ends, however that happens.

Started as `python leash.py COMMAND…` in a process group of its own, with a pipe as standard input
whose other end only the starter holds. The command keeps this process's pid; a watcher beside it
kills the whole group as soon as the pipe closes. Standard library only: it starts in milliseconds.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def main(command: list[str]) -> None:
    """Forks the watcher, then becomes the command."""
    alive_r, alive_w = os.pipe()
    if os.fork() == 0:
        if os.fork() != 0:
            os._exit(0)
        os.close(alive_w)
        _watch(alive_r)
    os.wait()
    os.close(alive_r)
    os.set_inheritable(alive_w, True)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    try:
        os.execvp(command[0], command)  # noqa: S606 (the starter's own command)
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error.strerror}\n")
        os._exit(127)


def _watch(alive_r: int) -> None:
    """Waits for the starter's or the command's end, then ends the group, this process included."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    select.select([0, alive_r], [], [])
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
