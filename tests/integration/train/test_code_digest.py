"""The code digest covers what a process that trains and merges runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.train.test_code_digest import FILES, PACKAGE, ROOT

PROBE = "import atoll.train.probe as probe", "probe.probe_digest()"
TRACE = """
import json, os, sys
import torch  # once for all: what takes longest, and is not ours
for first, traced in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if forked := os.fork():
        assert os.waitpid(forked, 0)[1] == 0
        continue
    exec(first)
    ran = set()
    sys.settrace(lambda frame, *_: ran.add(frame.f_code.co_filename))  # calls alone
    exec(traced)
    sys.settrace(None)
    print(json.dumps(sorted(ran)), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def ran() -> dict[tuple[str, str], set[str]]:
    """Files of atoll in which something runs after something else, each in a process of its own."""
    asked = [PROBE, CHECKED_ROUND]
    command = [sys.executable, "-c", TRACE, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    lines = done.stdout.splitlines()
    found = [json.loads(line) for line in lines if line.startswith("[")]  # others are logs
    ours = [[Path(name) for name in names if name.startswith(f"{PACKAGE}/")] for names in found]
    files = [{str(name.relative_to(PACKAGE)) for name in names} for names in ours]
    return dict(zip(asked, files, strict=True))


CHECKED_ROUND = (
    """
import pathlib, tempfile
from tests.unit.train.factories import make_job
from atoll.protocol.types import Digest
from atoll.train.replay import RevealedRound, replay_seat
from atoll.train.round import train_round
job = make_job(pathlib.Path(tempfile.mkdtemp()))
""",
    """
trained = train_round(job.task, job.store)
claimed = RevealedRound(trained.checkpoint_commitments(Digest(bytes(32))), trained.update_root)
assert replay_seat(job.task, claimed, job.store).mismatch_at is None
""",
)


def test_what_training_and_merging_execute_is_covered(
    ran: dict[tuple[str, str], set[str]],
) -> None:
    """Everything of atoll that runs in the probe is in the closure, but for `train` itself."""
    found = ran[PROBE]
    assert "numerics/step.py" in found
    assert found - set(FILES) - {"files.py"} == {"train/probe_job.py"}  # with kernels not built yet
    assert {
        "numerics/update_proof.py",
        "numerics/outer.py",
        "aggregation/merge_round.py",
        "protocol/merge_inputs.py",
    } <= found


def test_what_decides_a_seats_verdict_is_covered(ran: dict[tuple[str, str], set[str]]) -> None:
    """Outside is only the store, whose files are checked against roots where they are used."""
    found = ran[CHECKED_ROUND]
    assert {
        "numerics/initial_state.py",
        "numerics/update_proof.py",
        "numerics/segment.py",
        "protocol/checkpoint_commitments.py",
    } <= found
    assert {"train/round.py", "train/data.py", "train/course.py", "train/replay.py"} <= found
    assert {"train/resume.py", "train/seat_task.py", "train/stored_states.py"} <= found
    assert {name.split("/")[0] for name in found - set(FILES) - {"files.py"}} == {"storage"}
