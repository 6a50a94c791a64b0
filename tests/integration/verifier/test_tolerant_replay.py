"""A verifier's own tasks on the work of a provider with other threads and instruction sets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.train.factories import Job, make_job

from atoll.law.trace import TraceDocument
from atoll.law.words import ZERO_DIGEST, Address, Reveal
from atoll.train.probe import configure_native, numerics_spec
from atoll_verifier import tasks
from atoll_verifier.seatwork import SeatWork

ELSEWHERE = {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default"}
SEGMENTS = range(4)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    configure_native()
    prepared = make_job(tmp_path_factory.mktemp("tolerant"))
    return prepared.with_numerics(numerics_spec("tolerant"))


def provided(job: Job, work: str, threads: int, caps: dict[str, str]) -> SeatWork:
    """What a provider in a process of its own leaves in the store, as a verifier is asked."""
    manifest, task = job.manifest.to_bytes(), job.task
    program = Path(__file__).with_name("provider_process.py")
    arguments = [str(job.store.root), manifest.hex(), task.global_state_cid.hex()]
    done = subprocess.run(
        [sys.executable, str(program), *arguments, str(threads), work],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **caps},
    )
    assert done.returncode == 0, done.stderr
    revealed = {name: bytes.fromhex(value) for name, value in json.loads(done.stdout).items()}
    steps = job.manifest.inner.steps
    return SeatWork(
        slot=task.slot,
        seat=task.seat,
        reveal=Reveal(**revealed, steps=steps, reset=False, salt=ZERO_DIGEST),  # type: ignore[arg-type]
        account=Address("0x" + "22" * 20),
        gateway="",
        data_seed=task.data_seed,
        manifest=manifest,
        opening=task.global_state_cid,
        params_root=job.model.params_root(),
        optimiser_root=ZERO_DIGEST,
    )


def test_honest_work_from_elsewhere_is_vouched_for(job: Job) -> None:
    work, store = provided(job, "honest", 2, ELSEWHERE), str(job.store.root)
    assert tasks.check_seat(work, store) == ""
    document = TraceDocument.from_bytes(job.blob(work.reveal.trace_cid))
    replays = [tasks.replay(work, segment, store, 5) for segment in SEGMENTS]
    assert [r.differs for r in replays] == [""] * 4
    assert all(0.0 <= r.excess < 0.5 for r in replays)
    digests = [leaf.state_digest for leaf in document.leaves]
    assert [r.computed for r in replays] != digests
    assert tasks.link(work, store) == ""


@pytest.mark.parametrize("cheat", ["a step skipped", "no weight decay", "half the rate"])
def test_other_work_is_out_of_tolerance(job: Job, cheat: str) -> None:
    work, store = provided(job, cheat, 1, {}), str(job.store.root)
    assert tasks.check_seat(work, store) == ""
    for segment in SEGMENTS:
        replay = tasks.replay(work, segment, store, 5)
        assert replay.differs == ""
        assert replay.excess > 1.0
    assert tasks.link(work, store) == ""
