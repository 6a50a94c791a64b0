"""A preparation whose process is killed goes on in the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.unit.train.corpus.test_resume import SAVE, write_book

from atoll.storage.local import LocalStore
from atoll.train.corpus import prepare
from atoll.train.corpus.prepare import Progress

PROGRAM = """
import os, sys
from pathlib import Path
from atoll.storage.local import LocalStore
from atoll.train.corpus import prepare
from atoll.train.corpus.options import DataOptions
prepare.BATCH_BYTES, prepare.SAVE_BYTES = 1 << 12, 1 << 14
options = DataOptions((Path(sys.argv[1]),), held_out="0.1")
prepare.prepare(options, LocalStore(sys.argv[2]), lambda p: print(p.bytes, flush=True))
"""


def test_a_process_is_killed_and_the_next_one_goes_on(tmp_path: Path) -> None:
    options = write_book(tmp_path / "book")
    whole = prepare.prepare(options, LocalStore(tmp_path / "whole", sync=False))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "book"), str(tmp_path / "store")]
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) > 6 * SAVE:
                    process.send_signal(signal.SIGKILL)
                    break
        assert process.returncode == -signal.SIGKILL
    told: list[Progress] = []
    again = prepare.prepare(options, LocalStore(tmp_path / "store"), told.append)
    assert again == whole
    assert told[0].bytes > 5 * SAVE
