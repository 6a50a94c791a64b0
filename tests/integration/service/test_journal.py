"""A journal whose process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.service.journal import AlreadySigned, Journal

CHILD = """
import sys
from pathlib import Path
from atoll.errors import StorageError
from atoll.service.journal import Journal
journal = Journal(Path(sys.argv[1]))
for i in range(10**6):
    journal.sign_once(f"subject:{i}", f"content:{i}".encode())
    print(i, flush=True)
"""


@pytest.mark.parametrize("lines", [1, 2, 7])
def test_what_was_signed_before_a_kill_is_there_after_it(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "journal.sqlite"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    told = [int(child.stdout.readline()) for _ in range(lines)]
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    journal = Journal(path)
    for i in told:
        assert journal.signed(f"subject:{i}") == f"content:{i}".encode()
        with pytest.raises(AlreadySigned):
            journal.sign_once(f"subject:{i}", b"another")
    journal.close()
