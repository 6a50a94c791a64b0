"""Work in progress that was killed with its process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.unit.storage.test_keeping import age

from atoll.storage import LocalStore


def test_work_that_was_killed_is_in_progress_no_more(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, sync=False)
    killed = (
        "import os, sys; from atoll.storage import LocalStore\n"
        "with LocalStore(sys.argv[1], sync=False).holding():\n"
        "    os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", killed, str(store.root)], check=False)
    assert done.returncode == -9
    (mark,) = (store.root / "tmp").iterdir()
    began = mark.stat().st_mtime - 80_000
    os.utime(mark, (began, began))
    cid = store.add_bytes(b"leaf")
    age(store)
    assert store.collect().freed_bytes == 4
    assert not store.has(cid)
    os.utime(mark, (0, 0))
    store.collect()
    assert not mark.exists()
