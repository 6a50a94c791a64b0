"""Any `atoll` command as a member's process is: warm, in a session of its own, its words in a log.

Run as `MemberProcess(NAME, "atoll_devnet.processes.command", ["job", "submit", ...], LOG)`.
"""

from __future__ import annotations

import sys

from atoll.cli.main import main


def run(arguments: list[str]) -> int:
    """Runs the command; what it exits with."""
    sys.argv = ["atoll", *arguments]
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
