"""A client of a submitter on a chain of its own, and the small job that it submits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import Anvil
from tests.integration.chain.one_round import OneRound
from tests.support.jobs import PLAIN

from atoll import Client, ClientConfig, JobSpec
from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.txconfig import QueueConfig
from atoll.protocol.manifest import Manifest, NumericsSpec
from atoll.protocol.types import Digest, JobId
from atoll.train.answers import answer

PLENTY = 10**24
NUMERICS = NumericsSpec(code_digest=Digest(bytes(32)), probe_digest=Digest(bytes(32)))
ONE = ("seats", "min_providers", "min_verifiers", "slots")
JOB = PLAIN.but(
    {
        "rounds": 1,
        "lifetime": "1d",
        **{f"members.{name}": 1 for name in ONE},
    }
)


@dataclass
class Bench:
    """A connected client, the node under it, and text to train on."""

    anvil: Anvil
    chain: AtollChain
    deployment: Deployment
    accounts: list[LocalAccount]
    folder: Path
    client: Client

    @property
    def job(self) -> JobSpec:
        return JOB.but({"data.paths": [str(self.folder / "text")]})

    async def manifest(self, job: JobSpec | None = None) -> Manifest:
        return await self.client.prepare(job or self.job, NUMERICS)

    def members(self, job: int) -> OneRound:
        provider, verifier = self.accounts[1:3]
        return OneRound(self.anvil, self.chain, JobId(job), (provider, verifier))


async def answered_here(question: dict[str, str]) -> Any:
    """What a process of its own says else, which takes seconds to start."""
    return answer(question)


def config(folder: Path) -> ClientConfig:
    queue = QueueConfig(rebroadcast_seconds=1.0)
    return ClientConfig(home=folder, confirmations=0, poll_seconds=0.02, queue=queue)
