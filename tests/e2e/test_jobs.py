"""Job files on a network: one file is one job paid once, whatever ends the submitter's process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from eth_utils.crypto import keccak
from tests.support.jobs import PLAIN, tiny_model
from tests.support.patience import PATIENCE

import atoll as atoll_package
from atoll.job.spec import JobSpec
from atoll.job.toml_files import to_toml
from atoll_devnet.processes.chain import KEPT_STATES
from atoll_devnet.processes.cluster import Cluster, ClusterConfig
from atoll_devnet.run.options import UNHURRIED
from atoll_devnet.run.skipping import skipping
from atoll_devnet.run.stranger import hostile_network

from .conftest import check_ledger
from .test_command_line import assert_refused, atoll

APPROVE = keccak(b"approve(address,uint256)")[:4].hex()
ANNOUNCE = keccak(b"announceGateway(string)")[:4].hex()
LOOK_SECONDS = 0.05
VARIABLES = ("RPC", "DEPLOYMENT", "KEYSTORE", "PASSWORD_FILE", "HOME")


def write_job(folder: Path, changes: dict[str, Any]) -> Path:
    text = folder / "text"
    text.write_text("to be or not to be, that is the question\n" * 4000)
    path = folder / "job.toml"
    path.write_text(to_toml(PLAIN.but({"lifetime": "1d", "data.paths": ["text"], **changes})))
    return path


def options_of(cluster: Cluster) -> list[str]:
    folder = cluster.submitter_folder
    keystore = next((folder / "keys").glob("*.json"))
    return [
        "--rpc", cluster.chain.rpc_url, "--deployment", str(folder / "deployment.json"),
        "--keystore", str(keystore), "--password-file", str(folder / "password"),
        "--home", str(cluster.folder / "home"),
    ]  # fmt: skip


class Submitter:
    """One process of `atoll job submit`, over a chain whose blocks the test makes."""

    def __init__(self, cluster: Cluster, job: Path, *more: str) -> None:
        self.cluster = cluster
        command = [sys.executable, "-m", "atoll.cli.main", "job", "submit", str(job), "--json"]
        command += ["--yes", "--max-spend", "1000", *options_of(cluster), *more]
        self.printed = cluster.folder / f"printed-{len(list(cluster.folder.glob('printed-*')))}"
        with self.printed.open("w") as printed:
            self.process = subprocess.Popen(
                command, stdout=printed, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "NO_COLOR": "1"},
            )  # fmt: skip

    async def waiting(self) -> str | None:
        """The selector of the transaction that waits for a block."""
        pool = await self.cluster.chain.rpc("txpool_content")
        calls = [tx["input"][2:10] for by in pool["pending"].values() for tx in by.values()]
        return calls[0] if calls else None

    async def until(self, *selectors: str) -> None:
        """Makes blocks until a transaction waits that is none of these."""
        async with asyncio.timeout(PATIENCE):
            while (found := await self.waiting()) is None or found in selectors:
                assert self.process.poll() is None, self.process.communicate()
                if found is not None:
                    await self.cluster.chain.rpc("evm_mine")
                await asyncio.sleep(LOOK_SECONDS)

    async def kill(self) -> None:
        """kill -9, and the block that its transaction was waiting for."""
        self.process.kill()
        self.process.communicate()
        await self.cluster.chain.rpc("evm_mine")

    async def number(self) -> int:
        """The job's number, once it says it; makes blocks, and ends it by Ctrl-C."""
        async with asyncio.timeout(PATIENCE):
            while not (text := self.printed.read_text()).endswith("}\n"):
                assert self.process.poll() is None, self.process.communicate()
                await self.cluster.chain.rpc("evm_mine")
                await asyncio.sleep(LOOK_SECONDS)
        return int(json.loads(text)["job"])

    def stop(self) -> str:
        """Ctrl-C; what it says on standard error."""
        self.process.send_signal(signal.SIGINT)
        _, words = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 130, words
        return words


async def test_a_file_is_one_job_paid_once_whatever_kills_its_submitter(
    network: Cluster, tmp_path: Path
) -> None:
    job = write_job(tmp_path, {})
    async with network.chain.still():
        assert atoll_json(network, "list") == []

        paying = Submitter(network, job)
        await paying.until(ANNOUNCE)  # what waits now is the allowance
        assert await paying.waiting() == APPROVE
        await paying.kill()

        creating = Submitter(network, job)
        await creating.until(ANNOUNCE, APPROVE)  # what waits now is the job
        await creating.kill()
        # It comes back when no node has the state of the job's block any more.
        await network.chain.rpc("anvil_mine", hex(KEPT_STATES + 8))

        serving = Submitter(network, job)
        assert await serving.number() == 1
        # Somebody else may look, and sign, while it serves.
        (row,) = atoll_json(network, "list")
        assert (row["job"], row["status"], row["rounds"]) == (1, "open", "0/4")
        budget = int(row["funded_wei"])
        words = serving.stop()
        assert "atoll job serve 1" in words
        assert "Traceback" not in words

        again = Submitter(network, job)
        assert await again.number() == 1
        cancelled = cancel_while_mining(network)
        assert (await cancelled)["status"] == "cancelled"
        again.process.communicate(timeout=PATIENCE)  # the job has ended, and so does serving
        assert again.process.returncode == 0

        another = Submitter(network, job, "--again")
        assert await another.number() == 2
        another.stop()
        rows = atoll_json(network, "list")
        assert [(r["job"], r["funded_wei"]) for r in rows] == [(1, str(budget)), (2, str(budget))]


def atoll_json(cluster: Cluster, *command: str) -> Any:
    """What a command that only reads prints."""
    unsigned = options_of(cluster)
    del unsigned[4:8]
    done = atoll("job", *command, *unsigned, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def cancel_while_mining(cluster: Cluster) -> Any:
    """`atoll job cancel 1`, with the blocks that it waits for."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "atoll.cli.main", "job", "cancel", "1", "--json",
        *options_of(cluster), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    ending = asyncio.create_task(process.communicate())
    async with asyncio.timeout(PATIENCE):
        while not ending.done():
            await cluster.chain.rpc("evm_mine")
            await asyncio.sleep(LOOK_SECONDS)
    printed, complaint = await ending
    assert process.returncode == 0, complaint.decode()
    return json.loads(printed)


def test_a_job_file_runs_on_a_local_network_and_costs_what_was_said(tmp_path: Path) -> None:
    """With everything excluded that can be; a cheat is caught, and the ledger adds up."""
    phases = PLAIN.model_dump()["windows"].keys() - {"slower", "step_seconds", "megabits"}
    changes: dict[str, Any] = {f"windows.{name}": None for name in phases}
    amounts = PLAIN.model_dump()["money"].keys() - {"gas_price"}
    changes |= {f"money.{name}": None for name in amounts}
    changes |= {"model": tiny_model(), "rounds": 1, "inner.steps": 16, "inner.segment": 2}
    changes |= {"members.seats": 3, "members.min_verifiers": 1, "members.slots": 2}
    changes |= {"members.min_providers": 2, "lifetime": None, "money.budget": "3"}
    job, report = write_job(tmp_path, changes), tmp_path / "report.json"
    said = atoll("job", "check", str(job), "--home", str(tmp_path / "home"), "--json")
    assert said.returncode == 0, said.stderr
    quote = json.loads(said.stdout)

    command = ["devnet", "run", "--job", str(job), "--cheat", "2:hollow", "--skip-windows"]
    command += ["--verifiers", "2", "--report", str(report), "--folder", str(tmp_path / "run")]
    command += ["--stranger"]
    done = subprocess.run(
        [sys.executable, "-m", "atoll.cli.main", *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ran: dict[str, Any] = json.loads(report.read_text())
    check_ledger(ran)
    assert ran["job"]["status"] == "done"
    assert all(cheat["caught"] for cheat in ran["cheats"])
    # The run's token has six decimals, and a segment's pay is whole units of it.
    budget, unit = int(quote["budget_wei"]), 10**12
    assert 0.999 * budget < int(ran["money"]["funded_wei"]) * unit <= budget
    assert 2.99 * 10**18 < budget <= 3 * 10**18
    assert int(ran["money"]["paid_wei"]) * unit <= budget
    computed = {figure["path"] for figure in quote["computed"]}
    assert {"windows.train", "windows.audit", "money.provider_bond", "lifetime"} <= computed


async def test_a_job_handed_over_is_trained_and_a_script_goes_on_with_it(
    tmp_path: Path, beginning: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`submit --detach` until verifiers hold the data, then a script of the same words."""
    ones = ("seats", "min_providers", "min_verifiers", "slots")
    job = PLAIN.but(
        {
            "model": tiny_model(),
            "rounds": 1,
            "inner.steps": 8,
            "inner.segment": 2,
            "lifetime": "1d",
            "money.price_per_million": None,
            "money.sign_fee": None,
            "money.duty_fee": None,
            **UNHURRIED,
            **{f"members.{name}": 1 for name in ones},
        }
    )
    text = tmp_path / "text"
    text.write_text("to be or not to be, that is the question\n" * 4000)
    config = ClusterConfig(tmp_path / "net", providers=1, verifiers=1, beginning=beginning)
    async with hostile_network(config) as network, skipping(network, print):
        named = dict(zip(VARIABLES, options_of(network)[1::2], strict=True))
        for name, value in named.items():
            monkeypatch.setenv(f"ATOLL_{name}", value)
        file = tmp_path / "job.toml"
        file.write_text(to_toml(job.but({"data.paths": ["text"], "money.budget": "2"})))
        pay = ("job", "submit", str(file), "--max-spend", "2", "--yes", "--detach")
        handed_over = await asyncio.to_thread(atoll, *pay)
        assert handed_over.returncode == 0, handed_over.stderr
        assert "the verifiers hold the data of job 1" in handed_over.stderr

        train = partial(atoll_package.train_model, text, budget="2", job=job)
        folder = await asyncio.to_thread(train, folder=tmp_path / "model")
        assert (folder / "model.safetensors").is_file()
        again = await asyncio.to_thread(train, folder=tmp_path / "again")
        first, second = (place / "model.safetensors" for place in (folder, again))
        assert first.read_bytes() == second.read_bytes()

        (row,) = atoll_json(network, "list")
        assert (row["status"], row["rounds"]) == ("done", "1/1")
        assert 1.99 * 10**18 < int(row["funded_wei"]) <= 2 * 10**18
        status, told = atoll_json(network, "status", "1"), atoll_json(network, "logs", "1")
        assert (status["settled_rounds"], told[0]["kind"]) == (1, "JobCreated")
        of_seat = atoll_json(network, "logs", "1", "--seat", "0")
        assert {"Committed", "Revealed"} <= {line["kind"] for line in of_seat}
        following = tmp_path / "following"
        go_on = ["job", "continue", "1", "--rounds", "3", "--max-spend", "2"]
        go_on += ["--folder", str(following)]
        unpaid = await asyncio.to_thread(atoll, *go_on)
        assert_refused(unpaid, 2, "there is nobody to ask whether to pay")
        assert not following.exists()
        assert len(atoll_json(network, "list")) == 1
        for _ in range(2):
            paid = await asyncio.to_thread(atoll, *go_on, "--yes", "--detach")
            assert paid.returncode == 0, paid.stderr
        written = JobSpec.read(following / "job.toml")
        assert (written.rounds, written.init.folder) == (3, str(following))
        first, second = atoll_json(network, "list")
        assert first["job"] == 1 < second["job"]  # a stranger's jobs are between
        assert 1.99 * 10**18 < int(second["funded_wei"]) <= 2 * 10**18
