"""Where a client has key, journal and deployment from, and several programs with the same ones."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from eth_account import Account
from tests.integration.chain.benches import NUMERICS, PLENTY, Bench, answered_here, config
from tests.integration.chain.paying_process import SOMEONE

import atoll
from atoll import Client
from atoll.chain.keys import import_key
from atoll.errors import (
    ChainError,
    ConfigError,
    RpcUnavailable,
)
from atoll.job.job_update import JobUpdate
from atoll.job.submissions import Submissions
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import JobId, JobStatus
from atoll.service.lock import holder_of


async def test_a_restarted_client_finds_its_job_again(bench: Bench) -> None:
    manifest = await bench.manifest()
    first = await bench.client.submit(manifest, max_spend=PLENTY)
    await bench.client.close()
    again = Client(
        bench.anvil.url, bench.deployment, bench.accounts[0], config(bench.folder / "client")
    )
    async with again:
        assert (await again.submit(manifest, max_spend=PLENTY)).id == first.id
        assert again.attach(first.to_json()).id == first.id
        urls = (await again.attach(first.id).view()).gateways
        assert urls[again.address] == await again.serve()


async def test_a_client_without_a_key_only_watches(bench: Bench) -> None:
    job = await bench.client.submit(await bench.manifest(), max_spend=PLENTY)
    watcher = Client(bench.anvil.url, bench.deployment, None, config(bench.folder / "watcher"))
    async with watcher:
        assert (await watcher.attach(job.id).status()).status is JobStatus.OPEN
        with pytest.raises(ConfigError, match="only watch"):
            await watcher.attach(job.id).cancel()
        with pytest.raises(ChainError, match="has no job 99"):
            await watcher.attach(99).status()


async def test_handles_name_their_deployment(bench: Bench) -> None:
    handle = bench.client.attach(3)
    document = json.loads(handle.to_json())
    document["deployment"]["chain_id"] = 1
    with pytest.raises(ConfigError, match="another deployment"):
        bench.client.attach(json.dumps(document))
    for nonsense in ("{}", "[]", "not json", '{"job": "x", "deployment": {}}'):
        with pytest.raises(ConfigError, match="not a job handle"):
            bench.client.attach(nonsense)


async def test_a_client_has_to_be_open(bench: Bench) -> None:
    closed = Client(
        bench.anvil.url, bench.deployment, bench.accounts[1], config(bench.folder / "closed")
    )
    with pytest.raises(ConfigError, match="not open"):
        await closed.attach(1).status()
    with pytest.raises(ConfigError, match="not open"):
        await closed.prepare(bench.job, NUMERICS)


async def test_a_keystore_and_a_deployment_file_are_enough(bench: Bench) -> None:
    bench.deployment.save(bench.folder / "deployment.json")
    key = import_key(bench.folder, bench.accounts[1].key.hex(), "secret", devnet=True)
    (bench.folder / "password").write_text("secret\n")
    client = Client.from_keystore(
        bench.anvil.url,
        bench.folder / "deployment.json",
        key.path,
        bench.folder / "password",
        config(bench.folder / "keyed"),
    )
    async with client:
        assert client.address == key.address


async def test_a_chain_out_of_reach_is_said_when_opening(bench: Bench) -> None:
    client = Client(
        "http://127.0.0.1:9", bench.deployment, Account.create(), config(bench.folder / "far")
    )
    with pytest.raises(RpcUnavailable):
        async with client:
            pass


async def test_missing_torch_is_said_with_the_next_command(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.job.asking.find_spec", lambda name: None)
    bench.client.ask = None
    with pytest.raises(ConfigError, match="needs torch") as caught:
        await bench.client.prepare(bench.job)
    assert caught.value.next_step == "pip install 'atoll[train]'"


async def test_the_same_words_and_text_are_the_same_job_wherever_they_lie(bench: Bench) -> None:
    first = await bench.client.submit(
        await bench.client.draft(bench.job, NUMERICS), max_spend="1000"
    )
    (bench.folder / "text").rename(bench.folder / "moved")
    moved = bench.job.but({"data.paths": [str(bench.folder / "moved")]})
    bench.anvil.mine(3)  # a manifest written now would have another time in it
    draft = await bench.client.draft(moved, NUMERICS)
    assert draft.job == first.id
    assert (await bench.client.submit(draft, max_spend=PLENTY)).id == first.id
    another = await bench.client.draft(moved, NUMERICS, again=True)
    assert another.manifest.created > draft.manifest.created
    second = await bench.client.submit(another, max_spend=PLENTY)
    third = await bench.client.draft(moved, NUMERICS, again=True)
    assert third.manifest.created > another.manifest.created
    assert second.id != first.id
    (bench.folder / "moved" / "a.txt").write_text("another text altogether\n" * 990)
    assert (await bench.client.draft(moved, NUMERICS)).job is None
    assert [job.id for job in bench.client.jobs()] == [first.id, second.id]


async def test_a_job_goes_on_elsewhere_with_its_journal(bench: Bench) -> None:
    """The home's databases without its store, on another machine with the file and the key."""
    draft = await bench.client.draft(bench.job, NUMERICS)
    first = await bench.client.submit(draft, max_spend=PLENTY)
    paid = await bench.chain.token_balance(bench.client.address)
    await bench.client.close()
    async with _elsewhere(bench, "*.sqlite*") as other:
        again = await other.draft(bench.job, NUMERICS)
        assert (again.job, again.manifest) == (first.id, draft.manifest)
        assert (await other.submit(again, max_spend=PLENTY)).id == first.id
        assert await bench.chain.token_balance(other.address) == paid
        assert [job.id for job in other.jobs()] == [first.id]
        assert (await other.attach(first.id).view()).gateway_urls() == (other.session.url,)


async def test_a_job_killed_before_its_number_was_noted_is_paid_once_elsewhere(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other machine has what was said, and nothing of the transaction that was sent."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    draft = await bench.client.draft(bench.job, NUMERICS)
    with monkeypatch.context() as killed:
        killed.setattr(Submissions, "created", die)
        with pytest.raises(KeyboardInterrupt):
            await bench.client.submit(draft, max_spend=PLENTY)
    paid = await bench.chain.token_balance(bench.client.address)
    assert bench.client.jobs() == []
    await bench.client.close()
    async with _elsewhere(bench, "submissions.sqlite*") as other:
        again = await other.draft(bench.job, NUMERICS)
        assert again.job == 1
        assert (await other.submit(again, max_spend=PLENTY)).id == 1
        assert (await other.submit(draft.manifest, max_spend=PLENTY)).id == 1
        assert await bench.chain.token_balance(other.address) == paid
        assert [job.id for job in other.jobs()] == [1]


def _elsewhere(bench: Bench, journal: str) -> Client:
    """A client of the same account in another home, to which these files were copied."""
    home = bench.folder / "elsewhere"
    home.mkdir()
    for file in (bench.folder / "client").glob(journal):
        shutil.copy(file, home)
    return Client(
        bench.anvil.url, bench.deployment, bench.accounts[0], config(home), ask=answered_here
    )


async def test_any_number_watch_from_a_home_with_its_key_or_without(bench: Bench) -> None:
    job = await bench.client.submit(await bench.manifest(), max_spend=PLENTY)
    home = config(bench.folder / "client")
    async with (
        Client(bench.anvil.url, bench.deployment, bench.accounts[0], home) as one,
        Client(bench.anvil.url, bench.deployment, None, home) as two,
    ):
        for watcher in (one, two):
            (seen,) = watcher.jobs()
            assert (await seen.status()).funded_wei == (await job.status()).funded_wei
        with pytest.raises(ConfigError, match="can only watch"):
            async with two.sending():
                pass
        assert holder_of(bench.folder / "client") is None


async def test_programs_with_one_account_send_in_turn_and_see_each_other_s_nonces(
    bench: Bench,
) -> None:
    """Two processes and the test, which all watch the whole time."""
    home, deployment = bench.folder / "client", bench.folder / "deployment.json"
    bench.deployment.save(deployment)
    first = await bench.chain.nonce(bench.client.address)
    script = ("-m", "tests.integration.chain.sending_process", bench.anvil.url, str(deployment))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    others = [
        await asyncio.create_subprocess_exec(sys.executable, *script, str(home), name, "4", **pipes)
        for name in ("one", "two")
    ]
    for other in others:
        assert other.stdout is not None and other.stdin is not None
        assert await other.stdout.readline() == b"watches\n"
    for other in others:
        assert other.stdin is not None
        other.stdin.write(b"\n")
    call = bench.client.chain.calls.transfer(SOMEONE, 1)
    sent = [(await bench.client.transact(f"here:{i}", call)).nonce for i in range(4)]
    for other in others:
        told, _ = await other.communicate()
        assert other.returncode == 0
        lines = [line.split() for line in told.splitlines()]  # the log's among them
        sent += [int(line[1]) for line in lines if line[0] == b"sent"]
    assert sorted(n for n in sent if n is not None) == list(range(first, first + 12))


async def test_one_file_that_two_programs_submit_at_once_is_one_job(bench: Bench) -> None:
    """Both have drawn it up before either has paid: their manifests are of other seconds."""
    home = config(bench.folder / "client")
    before = await bench.chain.token_balance(bench.client.address)
    other = Client(bench.anvil.url, bench.deployment, bench.accounts[0], home, ask=answered_here)
    async with other:
        drafts = [await bench.client.draft(bench.job, NUMERICS)]
        bench.anvil.ask("evm_increaseTime", 5)
        bench.anvil.mine()
        drafts.append(await other.draft(bench.job, NUMERICS))
        assert drafts[0].manifest != drafts[1].manifest
        jobs = await asyncio.gather(
            *(
                client.submit(draft, max_spend=PLENTY)
                for client, draft in zip((bench.client, other), drafts, strict=True)
            )
        )
        budget = (await bench.client.estimate(drafts[0].manifest)).budget
        assert {job.id for job in jobs} == {1}
        assert before - await bench.chain.token_balance(bench.client.address) == budget
        again = await other.draft(bench.job, NUMERICS, again=True)
        assert (await other.submit(again, max_spend=PLENTY)).id == 2


async def test_the_environment_names_network_key_and_home(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ATOLL_DEPLOYMENT", raising=False)
    with pytest.raises(ConfigError, match="ATOLL_DEPLOYMENT is not set"):
        Client.from_env()
    bench.deployment.save(bench.folder / "deployment.json")
    key = import_key(bench.folder, bench.accounts[1].key.hex(), "secret", devnet=True)
    (bench.folder / "password").write_text("secret\n")
    named = {
        "RPC": bench.anvil.url,
        "DEPLOYMENT": str(bench.folder / "deployment.json"),
        "KEYSTORE": str(key.path),
        "HOME": str(bench.folder / "mine"),
    }
    for name, value in named.items():
        monkeypatch.setenv(f"ATOLL_{name}", value)
    with pytest.raises(ConfigError, match="ATOLL_PASSWORD_FILE is not set"):
        Client.from_env()
    monkeypatch.setenv("ATOLL_PASSWORD_FILE", str(bench.folder / "password"))
    async with Client.from_env() as client:
        assert (client.address, client.home) == (key.address, bench.folder / "mine")


async def test_a_chain_that_pauses_is_waited_for_by_whoever_watches(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await bench.client.submit(await bench.manifest(), max_spend=PLENTY)
    await job.cancel()
    asked, updates = 0, bench.client.follower.updates

    async def paused_at_first(number: JobId) -> Sequence[JobUpdate]:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise RpcUnavailable("no endpoint answers")
        return await updates(number)

    monkeypatch.setattr(bench.client.follower, "updates", paused_at_first)
    kinds = [update.kind async for update in job.watch()]
    assert (kinds[0], asked) == ("JobCreated", 3)


def test_the_package_has_at_most_twelve_names() -> None:
    assert len(atoll.__all__) <= 12
    assert all(getattr(atoll, name) is not None for name in atoll.__all__)
    assert set(dir(atoll)) == set(atoll.__all__)


def test_manifests_come_from_the_package() -> None:
    assert atoll.Manifest is Manifest
