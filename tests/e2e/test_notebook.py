"""docs/first_job.ipynb, run by nbclient against the network that it says to start.

The programs of `.venv-notebook` run it: Jupyter and pandas are no part of what `make test` needs.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "first_job.ipynb"
EXECUTE = ROOT / ".venv-notebook" / "bin" / "jupyter-execute"
ROUNDS = 3


@contextmanager
def standing_network(folder: Path) -> Iterator[dict[str, str]]:
    """The command of the notebook's first cell; what it prints, as variables."""
    atoll = [sys.executable, "-m", "atoll", "devnet", "up", "--skip-windows", "--json"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*atoll, "--port", "0", "--folder", str(folder / "net")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], PATIENCE)[0]
        yield json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)


@pytest.fixture
def executed(tmp_path: Path) -> list[dict[str, Any]]:
    """The cells of the notebook with what they showed, in the folder where it ran."""
    notebook = shutil.copy2(NOTEBOOK, tmp_path)
    with standing_network(tmp_path) as variables:
        done = subprocess.run(
            [EXECUTE, "--inplace", "--timeout", str(int(PATIENCE)), notebook],
            cwd=tmp_path,
            env=os.environ
            | variables
            | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    cells = json.loads(Path(notebook).read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def shown(cells: list[dict[str, Any]], source: str, kind: str) -> str:
    """What the one cell with these words showed, of one kind of output."""
    (cell,) = [cell for cell in cells if source in "".join(cell["source"])]
    outputs = [output.get("data", {}).get(kind) for output in cell["outputs"]]
    outputs += [output["text"] for output in cell["outputs"] if output.get("name") == kind]
    return "".join("".join(text) for text in outputs if text is not None)


def test_the_notebook_ends_with_curves_and_a_model(
    executed: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert shown(executed, "client.address", "text/plain").startswith("'0x")
    assert "tokens at most" in shown(executed, "client.estimate", "text/plain")
    assert f"{ROUNDS}/{ROUNDS}" in shown(executed, "job.watch()", "stderr")
    assert "<table" in shown(executed, "job.watch()", "text/html")
    rows = shown(executed, "job.history()", "text/html")
    assert rows.count("<tr") == 1 + ROUNDS
    assert "NaN" not in rows.split("</thead>")[1].split("</tr>")[0]  # the first round's losses
    assert shown(executed, "rounds.plot", "image/png")
    assert shown(executed, "job.seat_history()", "text/html").count("<tr") == 2 + ROUNDS
    assert shown(executed, 'job.result("model")', "stdout").startswith("def ")
    assert {"config.json", "model.safetensors", "README.md"} <= {
        path.name for path in (tmp_path / "model").iterdir()
    }
