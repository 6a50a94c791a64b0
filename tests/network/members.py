"""A network of real processes on Anvil: a submitter that serves, providers and verifiers.

Nothing of the job room or the devnet is needed: the manifest is written down in `tests.small_job`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eth_account import Account
from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import Anvil
from tests.small_job import small_manifest, with_program

from atoll.chain.calls import Call
from atoll.chain.contracts import AtollChain
from atoll.chain.deploy import deploy
from atoll.chain.keys import import_key
from atoll.content.cid import DAG_CBOR
from atoll.content.storage import StoreConfig
from atoll.law.manifest import Manifest
from atoll.law.pay import budget
from atoll.law.views import JobView
from atoll.law.words import TOKEN, Address, Digest, JobId
from atoll.service.session import Session, SessionConfig, open_session

Account.enable_unaudited_hdwallet_features()
MNEMONIC = "test test test test test test test test test test test junk"
PASSWORD = "only for a network of tests"
ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "provider": "atoll_node",
    "verifier": "atoll_verifier",
    "liar": "tests.network.cheat",
}


def account(index: int) -> LocalAccount:
    """One of those that Anvil makes rich."""
    return Account.from_mnemonic(MNEMONIC, account_path=f"m/44'/60'/0'/0/{index}")


@dataclass
class Members:
    """The processes of a network. End them with `stop`."""

    folder: Path
    anvil: Anvil
    chain: AtollChain
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def send(self, sender: Address, call: Call) -> None:
        """From an account that the node holds the key of; returns once a block has it."""
        sent = {"from": sender, "to": call.to, "data": f"0x{call.data.hex()}", "gas": hex(10**7)}
        found = self.anvil.ask("eth_sendTransaction", sent)
        while (receipt := self.anvil.ask("eth_getTransactionReceipt", found)) is None:
            time.sleep(0.1)
        assert int(receipt["status"], 16) == 1, call.label

    def start(self, role: str, index: int, *, env: dict[str, str] | None = None) -> None:
        """Starts a member with an account of its own and tokens for its bond."""
        me, calls = account(index), self.chain.calls
        submitter = Address(account(0).address)
        self.send(submitter, calls.transfer(Address(me.address), 1000 * TOKEN))
        folder = self.folder / f"{role}-{index}"
        folder.mkdir(mode=0o700)
        key = import_key(folder / "keys", me.key.hex(), PASSWORD, devnet=True)
        (folder / "password").write_text(PASSWORD)
        (folder / "password").chmod(0o600)
        (folder / "service.toml").write_text(
            f'rpc_urls = ["{self.anvil.url}"]\ndeployment = "{self.folder / "deployment.json"}"\n'
            f'keystore = "{key.path}"\npassword_file = "{folder / "password"}"\n'
            f'data_dir = "{folder / "data"}"\nconfirmations = 0\npoll_interval_s = 0.3\n'
            'auto_claim = "each"\nlog_level = "info"\n'
        )
        with (folder / "log").open("wb") as log:
            command = [sys.executable, "-m", PROGRAMS[role], "--config", folder / "service.toml"]
            environ = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
            process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log)
        self.processes.append(process)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(30)


async def create(
    members: Members, session: Session, *, has_judge: bool = False, **terms: Any
) -> tuple[JobId, Manifest]:
    """A small job of these terms, whose submitter serves its content."""
    store, chain = session.store, members.chain
    now = (await chain.head()).timestamp
    manifest = small_manifest(store, expiry=now + 3600, **terms)
    manifest = with_program(manifest, store) if has_judge else manifest
    cid = store.add_block(manifest.to_bytes(), DAG_CBOR)
    gateway = await session.serve()
    me, funding = Address(account(0).address), budget(manifest.terms)
    calls, addresses = chain.calls, chain.deployment.addresses
    members.send(me, calls.announce_gateway(gateway.url))
    members.send(me, calls.approve(addresses["Jobs"], funding))
    digest, policy = Digest(manifest.digest()), addresses["EcdsaPolicy"]
    members.send(me, calls.create(digest, cid.to_bytes(), manifest.terms, policy, funding))
    return JobId(1), manifest


async def network(folder: Path, anvil: Anvil) -> tuple[Members, SessionConfig]:
    """Deploys, and says how the submitter's session is opened."""
    deployment = await deploy(anvil.url, account(0))
    deployment.save(folder / "deployment.json")
    chain = await AtollChain.connect(anvil.url, deployment)
    config = SessionConfig(
        rpc_urls=(anvil.url,),
        deployment=deployment,
        folder=folder / "submitter",
        store=StoreConfig(folder / "submitter" / "store"),
        account=account(0),
        confirmations=0,
    )
    return Members(folder, anvil, chain), config


async def until(
    session: Session, job: JobId, reached: Callable[[JobView, int], bool], seconds: float
) -> JobView:
    """Follows the job until something is so."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        await session.follower.poll()
        view = session.follower.views.get(job)
        head = await session.chain.head()
        if view is not None and reached(view, head.timestamp):
            return view
        await asyncio.sleep(0.5)
    raise TimeoutError(f"not within {seconds} seconds")


__all__ = ["Members", "account", "create", "network", "open_session", "until"]
