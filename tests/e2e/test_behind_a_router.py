"""A submitter that nobody can reach starts a job, and goes."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tests.support.jobs import PLAIN, tiny_model

from atoll import Client
from atoll.job.toml_files import to_toml
from atoll.protocol.types import JobStatus
from atoll_devnet.processes.cluster import ClusterConfig
from atoll_devnet.run.options import UNHURRIED
from atoll_devnet.run.skipping import skipping
from atoll_devnet.run.stranger import hostile_network

from .test_command_line import atoll
from .test_jobs import VARIABLES, options_of

MEMBERS = 2
JOB = PLAIN.but(
    {
        "model": tiny_model(),
        "rounds": 1,
        "inner.steps": 8,
        "inner.segment": 2,
        "lifetime": "1d",
        "data.paths": ["text"],
        "money.budget": "2",
        "money.price_per_million": None,
        "money.sign_fee": None,
        "money.duty_fee": None,
        **UNHURRIED,
        **{f"members.{n}": MEMBERS for n in ("seats", "min_providers", "min_verifiers", "slots")},
    }
)


async def test_a_submitter_that_nobody_reaches_starts_a_job_and_goes(
    tmp_path: Path, beginning: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It announces nothing and listens nowhere; two verifiers ask for the data and get it."""
    (tmp_path / "text").write_text("to be or not to be, that is the question\n" * 4000)
    file = tmp_path / "job.toml"
    file.write_text(to_toml(JOB))
    config = ClusterConfig(tmp_path / "net", MEMBERS, MEMBERS, beginning=beginning)
    async with hostile_network(config) as network, skipping(network, print):
        for name, value in zip(VARIABLES, options_of(network)[1::2], strict=True):
            monkeypatch.setenv(f"ATOLL_{name}", value)
        submit = ("job", "submit", str(file), "--max-spend", "2", "--yes", "--detach")
        gone = await asyncio.to_thread(atoll, *submit)
        assert gone.returncode == 0, gone.stderr
        assert "the verifiers hold the data of job 1" in gone.stderr

        verifiers = {member.account for member in network.verifiers}
        brought = re.findall(r"brings the data of job 1 to (0x\w+) at http://", gone.stderr)
        assert set(brought) == verifiers
        async with Client.from_env() as client:
            job = client.attach(1)
            view = await job.view()
            assert view.submitter == client.address and view.submitter not in view.gateways
            snapshot = await job.wait()
            assert (snapshot.status, snapshot.settled_rounds) == (JobStatus.DONE, 1)
            folder = await job.result(tmp_path / "model")
    assert (folder / "model.safetensors").is_file()
