"""A provider that is killed between any two segments commits the same."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.small_job import small_job

from atoll.train.round import TrainedRound

PROCESS_SECONDS = 600


def test_a_killed_provider_commits_the_same_without_running_segments_again(
    tmp_path: Path, trained: TrainedRound
) -> None:
    job = small_job(tmp_path)
    task_file = tmp_path / "task"
    task_file.write_bytes(pickle.dumps(job.task))

    def provider(waits_at: int) -> subprocess.Popen[str]:
        name = "tests.integration.rounds.provider_process"
        command = [sys.executable, "-m", name, task_file, job.store.root, str(waits_at)]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )

    with provider(waits_at=2) as first:
        assert first.stdout is not None
        begun = [first.stdout.readline().strip() for _ in range(3)]
        os.kill(first.pid, signal.SIGKILL)
        assert first.wait(PROCESS_SECONDS) == -signal.SIGKILL
    assert begun == ["begins 0", "begins 1", "begins 2"]
    with provider(waits_at=-1) as second:
        lines = second.communicate(timeout=PROCESS_SECONDS)[0].splitlines()
    assert lines[:-1] == ["begins 2", "begins 3"]
    told = [bytes.fromhex(item) for item in lines[-1].split()]
    assert told == [*trained.states, *trained.work_tags, trained.update_root]
