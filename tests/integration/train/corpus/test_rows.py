"""What a long row takes, of a process's memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.train.corpus.test_prepare import (  # noqa: F401
    documents_in,
    store,
    tokenizer_folder,
    tokens_of,
)

MEASURED = """
import sys
from pathlib import Path
from atoll.storage.local import LocalStore
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import prepare
store = LocalStore(Path(sys.argv[2]), sync=False)
prepare(DataOptions((Path(sys.argv[1]),), held_out="0.5"), store)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_row_of_50_mb_takes_the_memory_that_is_promised(name: str, tmp_path: Path) -> None:
    """docs/submitter.md says 200 MB; `VmHWM` is the most that was resident at once."""
    short = [{"text": f"{i} short row " * 40} for i in range(40)]
    with (tmp_path / name).open("w") as file:
        file.write("[" * name.endswith("n"))
        file.write('{"text": "' + "aaaa \\u00e9 \\n " * 3_500_000 + '"}')
        for row in short:
            file.write("\n" + "," * name.endswith("n") + json.dumps(row))
        file.write("]" * name.endswith("n"))
    assert (tmp_path / name).stat().st_size > 50_000_000
    command = [sys.executable, "-c", MEASURED, str(tmp_path / name), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200_000, f"{done.stdout} kB"
