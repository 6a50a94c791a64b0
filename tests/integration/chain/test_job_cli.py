"""`atoll job` on a network: a job of one round, as its submitter sees it from the command line."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from eth_account.signers.local import LocalAccount
from tests.integration.chain.benches import JOB, NUMERICS, PLENTY, answered_here
from tests.integration.chain.conftest import KEYS
from tests.integration.chain.local_anvil import Anvil, free_port
from tests.integration.chain.one_round import OneRound, initial_model
from typer import Typer
from typer.testing import CliRunner

from atoll import Client, ClientConfig
from atoll.chain.contracts import AtollChain
from atoll.chain.deploy import deploy
from atoll.chain.deployment import Deployment
from atoll.chain.keys import import_key
from atoll.cli.job import app
from atoll.cli.job_reading import watch_app
from atoll.cli.window import report_app
from atoll.dashboard.page import embedded
from atoll.dashboard.reader import Reader
from atoll.errors import ConfigError
from atoll.job.event_text import tokens
from atoll.job.spec import JobSpec
from atoll.job.toml_files import to_toml
from atoll.numerics.state_layout import param_count
from atoll.protocol.manifest import Manifest
from atoll.protocol.pay import budget
from atoll.protocol.types import Address, JobId, Role

PASSWORD = "correct horse battery"


@dataclass
class Submitted:
    """A job whose only round is settled, and the members that did it."""

    anvil: Anvil
    deployment: Deployment
    accounts: list[LocalAccount]
    folder: Path

    @property
    def home(self) -> ClientConfig:
        return ClientConfig(home=self.folder / "home", confirmations=0, poll_seconds=0.02)

    async def members(self, job: int) -> OneRound:
        chain = await AtollChain.connect(self.anvil.url, self.deployment)
        return OneRound(self.anvil, chain, JobId(job), (self.accounts[1], self.accounts[2]))

    async def until_settled(self) -> Manifest:
        """The model is in the home's store, where commands look first."""
        text = {"data.paths": [str(self.folder / "text")]}
        client = Client(
            self.anvil.url, self.deployment, self.accounts[0], self.home, ask=answered_here
        )
        async with client:
            draft = await client.draft(JOB.but(text), NUMERICS)
            job = await client.submit(draft, max_spend=PLENTY)
            manifest, members = await job.manifest(), await self.members(job.id)
            await members.join(client.address)
            await members.work(manifest)
            members.settle(await job.view(), initial_model(manifest, client.store))
            await members.chain.close()
        return manifest

    async def audit(self, manifest: Manifest) -> None:
        members = await self.members(1)
        async with Client(self.anvil.url, self.deployment, None, self.home) as client:
            view = await client.attach(1).view()
        members.audit(view.settled[0], manifest)
        await members.chain.close()


@pytest.fixture
def submitted(
    anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Submitted]:
    """The environment names network, key and home."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 800)
    deployment = asyncio.run(deploy(anvil.url, accounts[0]))
    deployment.save(tmp_path / "deployment.json")
    (tmp_path / "password").write_text(PASSWORD)
    key = import_key(tmp_path / "keys", KEYS[0], PASSWORD, devnet=True)
    for name, value in {
        "RPC": anvil.url,
        "DEPLOYMENT": tmp_path / "deployment.json",
        "KEYSTORE": key.path,
        "PASSWORD_FILE": tmp_path / "password",
        "HOME": tmp_path / "home",
    }.items():
        monkeypatch.setenv(f"ATOLL_{name}", str(value))
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield Submitted(anvil, deployment, accounts, tmp_path)
    structlog.reset_defaults()


def run(*arguments: object, group: Typer = app) -> str:
    done = CliRunner().invoke(group, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def told(*arguments: object) -> Any:
    """The one document that a command prints."""
    (line,) = run(*arguments, "--json").splitlines()
    return json.loads(line)


def test_a_job_is_followed_paid_and_taken_home(submitted: Submitted) -> None:
    manifest = asyncio.run(submitted.until_settled())
    submitted.anvil.mine(3)
    check_audited(submitted)
    with pytest.raises(ConfigError, match="1 of 1 rounds are settled, 0 are FINAL"):
        run("result", 1, submitted.folder / "model")
    asyncio.run(submitted.audit(manifest))
    submitted.anvil.mine(3)

    found = told("status", 1)
    (only,) = told("history", 1)["rounds"]
    assert (found["status"], found["final_rounds"], only["phase"]) == ("done", 1, "final")
    assert (only["available"], only["drawn"], only["valid"], only["paid"]) == ([0], [0], [0], [0])
    told_lines = [json.loads(line) for line in run(1, "--json", group=watch_app).splitlines()]
    assert told_lines[0]["kind"] == "JobCreated"
    assert {"Settled", "Opened", "KeyShown", "Evaluated"} <= {item["kind"] for item in told_lines}
    times = [item["time"] for item in told_lines if item["kind"] != "Evaluated"]
    assert times == sorted(times) and times[0] > 0
    assert told("checkpoint", 1, submitted.folder / "first")["round"] == 0
    assert "model CID" in run("status", 1) and " tokens" in run("status", 1)
    assert told("result", 1, submitted.folder / "model")["folder"].endswith("model")
    assert (submitted.folder / "model" / "model.safetensors").is_file()
    check_page(submitted)
    check_money(submitted, manifest)
    submitted.anvil.mine(3)
    check_page(submitted)
    check_dashboard()
    check_export(submitted)


def check_page(submitted: Submitted) -> None:
    """The numbers of the page are those of the contracts."""
    page = submitted.folder / "page.html"
    arguments = ["1", "--html", str(page), "--json"]
    done = CliRunner().invoke(report_app, arguments, catch_exceptions=False)
    assert json.loads(done.stdout) == {"page": str(page)}
    document = told("history", 1)
    assert embedded(document) in page.read_text(encoding="utf-8")
    asyncio.run(compare_with_chain(submitted, document))


def check_dashboard() -> None:
    """The command serves what it says, until it is told to stop."""
    command = [sys.executable, "-m", "atoll.cli.main", "dashboard", "--job", "1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            with urllib.request.urlopen(url) as answer:
                assert answer.url == f"{url}job/1"
                assert "<title>Atoll, job 1</title>" in answer.read().decode()
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
        finally:
            process.kill()


async def compare_with_chain(submitted: Submitted, document: dict[str, Any]) -> None:
    async with Client(submitted.anvil.url, submitted.deployment, None, submitted.home) as client:
        escrow = await client.chain.escrow(JobId(1))
        names = ("funded_wei", "paid_wei", "refunded_wei", "burnt_wei", "balance_wei")
        amounts = (escrow.funded, escrow.claimed, escrow.refunded, escrow.burnt, escrow.balance)
        assert [document["money"][name] for name in names] == list(map(str, amounts))
        for move in document["money"]["moves"]:
            receipt = await client.chain.receipt(move["tx"])
            assert receipt is not None and receipt.block_number == move["block"]
            assert move["log"] in {raw.index for raw in receipt.logs}
        await compare_first_screen(client, document)
        members = {m["account"]: m for m in (await Reader(client).network())["members"]}
        assert {m["account"] for m in document["members"]} <= set(members)
        for account, member in members.items():
            stakes = [await client.chain.stake(account, role) for role in Role]
            held = sum(stake.active + stake.unbonding for stake in stakes)
            assert member["stake_wei"] == str(held)
            assert int(member["bonds_wei"]) == sum(stake.locked for stake in stakes)


async def compare_first_screen(client: Client, document: dict[str, Any]) -> None:
    """What is trained, for how much gas, at which price: the manifest's, the receipts', the
    contract's own numbers."""
    handle = client.attach(JobId(1))
    manifest, ledger = await handle.manifest(), await handle.ledger()
    assert document["what"]["name"] == manifest.name
    assert document["what"]["parameters"] == param_count(manifest.model)
    receipts = [
        await client.chain.receipt(f"0x{tx.hex()}")
        for tx in {item.transaction for item in ledger.items}
    ]
    gas = document["price"]["gas"]
    assert gas["transactions"] == gas["counted"] == len(receipts)
    used = [(r.gas_used or 0, r.fee_price or 0) for r in receipts if r is not None]
    assert gas["gas"] == sum(amount for amount, _ in used) > 0
    assert gas["wei"] == str(sum(amount * price for amount, price in used))
    assert document["price"]["budget_wei"] == str(budget(manifest.terms))
    history = await handle.history()
    assert document["speed"]["tokens"] == history[-1].total_tokens
    costs = [round(row.total_cost * 10**18) for row in history]
    assert int(document["price"]["earned_wei"]) == pytest.approx(costs[-1], rel=1e-12)


def check_export(submitted: Submitted) -> None:
    """The same pages as files."""
    folder = submitted.folder / "public"
    command = [sys.executable, "-m", "atoll.cli.main", "dashboard", "--export", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    document = told("history", 1)
    assert json.loads((folder / "job" / "1" / "document.json").read_text()) == document
    assert embedded(document) in (folder / "job" / "1" / "index.html").read_text()
    assert (folder / "index.html").is_file()


def check_audited(submitted: Submitted) -> None:
    """While the only round is audited."""
    (only,) = told("history", 1)["rounds"]
    assert (only["phase"], only["drawn"], only["valid"]) == ("audit", [0], [])
    text = run("history", 1)
    assert "audit" in text and "excluded" in text and "escrow: " in text
    assert [row["rounds"] for row in told("list")] == ["1/1"]
    assert "funded (tokens)" in run("list") and "_wei" not in run("list")
    kinds = [update["kind"] for update in told("logs", 1, "--seat", 0)]
    assert "Revealed" in kinds and "Enrolled" not in kinds


def check_money(submitted: Submitted, manifest: Manifest) -> None:
    terms, provider = manifest.terms, submitted.accounts[1].address
    earned = terms.segments * terms.segment_pay
    assert asyncio.run(claimed(submitted, provider)) == earned
    back = told("refund", 1)
    fees = terms.sign_fee + terms.duty_fee  # which their verifier never claims
    assert int(back["left_wei"]) == fees
    newest = submitted.anvil.ask("eth_getBlockByNumber", "latest", False)
    submitted.anvil.ask("evm_increaseTime", back["rest_due"] - int(newest["timestamp"], 16))
    submitted.anvil.mine(3)
    rest = told("refund", 1)
    assert rest["left_wei"] == "0"
    assert int(rest["refunded_wei"]) - int(back["refunded_wei"]) == fees


async def claimed(submitted: Submitted, account: Address) -> int:
    """What an account has been paid in all, once anybody had it paid."""
    me, home = submitted.accounts[0], submitted.home
    async with Client(submitted.anvil.url, submitted.deployment, me, home) as client:
        return await client.attach(1).claim(account)


def test_submitting_tells_one_document_and_serves(submitted: Submitted) -> None:
    """A file whose job has ended: what was submitted is said, and nothing is left to serve."""
    text = {"data.paths": [str(submitted.folder / "text")]}
    file = submitted.folder / "job.toml"
    file.write_text(to_toml(JOB.but(text)))
    asyncio.run(cancelled(submitted, file))
    submitted.anvil.mine(3)
    port = free_port()
    url = f"http://localhost:{port}/data"
    announced = ("--host", "127.0.0.1", "--port", port, "--public-url", url)
    document = told("submit", file, "--max-spend", 1000, "--yes", *announced)
    assert document["job"] == 1
    assert asyncio.run(gateways(submitted)) == (url,)
    assert told("status", 1)["status"] == "cancelled"
    before = int(told("refund", 1)["refunded_wei"])
    assert before > 0 and told("refund", 1)["left_wei"] == "0"


async def gateways(submitted: Submitted) -> tuple[str, ...]:
    """Of everybody in the job."""
    async with Client(submitted.anvil.url, submitted.deployment, None, submitted.home) as client:
        return (await client.attach(1).view()).gateway_urls()


async def submit(submitted: Submitted) -> Address:
    """Job 1, which waits for members; whose it is."""
    text, me = {"data.paths": [str(submitted.folder / "text")]}, submitted.accounts[0]
    home, url = submitted.home, submitted.anvil.url
    async with Client(url, submitted.deployment, me, home, ask=answered_here) as client:
        await client.submit(await client.draft(JOB.but(text), NUMERICS), max_spend=PLENTY)
        return client.address


async def open_round(submitted: Submitted, submitter: Address) -> None:
    """Members come, and a round runs."""
    members = await submitted.members(1)
    await members.join(submitter)
    submitted.anvil.mine()
    members.send(members.provider, members.chain.calls.advance(members.job))
    await members.chain.close()


def cancels(submitted: Submitted) -> tuple[str, bool]:
    """What a cancel says, which ends with 0; and whether it sent anything."""
    sent = ("eth_getTransactionCount", submitted.accounts[0].address, "latest")
    before = submitted.anvil.ask(*sent)
    done = CliRunner().invoke(app, ["cancel", "1"])
    assert done.exit_code == 0, done.output
    return done.stderr, submitted.anvil.ask(*sent) != before


def test_a_second_cancel_says_so_sends_nothing_and_tells_what_came_back(
    submitted: Submitted,
) -> None:
    asyncio.run(submit(submitted))
    submitted.anvil.mine(2)
    rest = "and `atoll job refund 1` brings back what nobody can earn\n"
    none = f"0 tokens of it came back to its submitter, {rest}"
    assert cancels(submitted) == (f"job 1 is cancelled; {none}", True)
    assert cancels(submitted) == (f"job 1 is cancelled already; {none}", False)
    back = int(told("refund", 1)["refunded_wei"])
    said = f"{tokens(back)} tokens of it came back to its submitter, {rest}"
    assert cancels(submitted) == (f"job 1 is cancelled already; {said}", False)


def test_a_second_cancel_while_a_round_runs_says_that_it_ends_with_it(submitted: Submitted) -> None:
    asyncio.run(open_round(submitted, asyncio.run(submit(submitted))))
    first, second = cancels(submitted), cancels(submitted)
    assert first[0].startswith("job 1 is cancelled, and ends with the running round; 0 tokens")
    assert second[0] == first[0].replace("cancelled,", "cancelled already,")
    assert (first[1], second[1]) == (True, False)
    assert told("status", 1)["phase"] == "train"


async def cancelled(submitted: Submitted, file: Path) -> None:
    home = submitted.home
    client = Client(
        submitted.anvil.url, submitted.deployment, submitted.accounts[0], home, ask=answered_here
    )
    async with client:
        job = await client.submit(
            await client.draft(JobSpec.read(file), NUMERICS), max_spend=PLENTY
        )
        await job.cancel()
