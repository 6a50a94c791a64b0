"""The client whose calls wait, against real contracts, where an event loop runs already."""

from __future__ import annotations

from pathlib import Path

import pytest
from eth_account.signers.local import LocalAccount
from tests.integration.chain.benches import JOB, NUMERICS, PLENTY, config
from tests.integration.chain.local_anvil import Anvil

from atoll.chain.deployment import Deployment
from atoll.errors import ConfigError
from atoll.sync import Client


async def test_a_notebook_submits_follows_and_ends_a_job(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 800)
    spec = JOB.but({"data.paths": [str(tmp_path / "text")]})
    client = Client(anvil.url, deployment, accounts[0], config(tmp_path / "home")).open()
    try:
        manifest = client.prepare(spec, NUMERICS)
        budget = client.estimate(manifest).budget
        job = client.submit(manifest, max_spend=PLENTY)
        assert [each.id for each in client.jobs()] == [job.id]
        own = job.own_manifest()
        assert own is not None and own.digest() == manifest.digest()
        status = job.status()
        assert status.funded_wei == budget
        assert "status     open" in str(status).splitlines()
        assert job._repr_html_() == job.status()._repr_html_()
        assert (job.history(), job.seat_history()) == ([], [])
        updates = job.watch()
        assert next(updates).kind == "JobCreated"
        assert job.cancel()
        assert [update.kind for update in updates][-1] == "Closed"
        assert job.status().has_ended
        assert client.attach(job.to_json()).id == job.id
    finally:
        client.close()
    with pytest.raises(ConfigError, match="not open"):
        client.jobs()
    with client:
        assert client.attach(job.id).status().has_ended
