"""What pages show of a client's network, read from its chain and its members: the documents of
jobs, members and the network, as of the last confirmed block.

Rule of this file: it changes nothing. What cannot be had now, a manifest that nobody serves or a
receipt that no endpoint has, is left out and asked for again later.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from atoll.chain.indexed import Indexed
from atoll.dashboard.fees import Fees
from atoll.dashboard.member import member_document
from atoll.dashboard.network_document import network_document
from atoll.errors import AtollError
from atoll.job.client import Client
from atoll.job.handle import JobHandle
from atoll.job.hub_push import with_sources
from atoll.job.ledger.json_document import job_document, name_of
from atoll.job.ledger.overview import Beside, Sample
from atoll.job.model_card import NO_LABELS
from atoll.job.own_evaluation import can_evaluate
from atoll.job.spec import JobSpec
from atoll.job.toml_files import parse_toml
from atoll.protocol.events import JobCreated
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Address, JobId
from atoll.protocol.views import JobView

log = structlog.get_logger("atoll.dashboard")
MANIFEST_SECONDS: Final = 3.0
"""For members to send a manifest, before a page is made without."""
AGAIN_SECONDS: Final = 20.0
"""Until a manifest or a model that nobody sent is asked for again."""
RECEIPTS: Final = 200
"""Read for one look, so that a long job's page does not wait for all of them."""


@dataclass
class Reader:
    """Reads a client's network; keeps what never changes.

    Attributes:
        prompt: what the newest models are asked to go on with; None asks them nothing.
        waits: for what they write, and for what is measured; else it is in a later document.
        measures: merges every round again, for how far each update lay from the merge.
    """

    client: Client
    prompt: str | None = None
    waits: bool = True
    measures: bool = False
    _manifests: dict[JobId, Manifest] = field(default_factory=dict)
    _not_before: dict[JobId, float] = field(default_factory=dict)
    _fees: Fees = field(default_factory=Fees)
    _samples: dict[JobId, Sample] = field(default_factory=dict)
    _asking: dict[JobId, asyncio.Task[None]] = field(default_factory=dict)
    _merged: dict[JobId, int] = field(default_factory=dict)
    _gone: dict[JobId, set[int]] = field(default_factory=lambda: defaultdict(set))
    _measuring: dict[JobId, asyncio.Task[None]] = field(default_factory=dict)
    _counted: dict[JobId, int] = field(default_factory=dict)
    _silent: dict[JobId, set[int]] = field(default_factory=lambda: defaultdict(set))
    _counting: dict[JobId, asyncio.Task[None]] = field(default_factory=dict)

    async def job(self, job: JobId) -> dict[str, Any]:
        """The document of a job. Raises ChainError."""
        handle = self.client.attach(job)
        ledger, manifest = await handle.ledger(), await self._manifest(job)
        await self._rewards(handle, ledger.view, manifest)
        figures = await handle.figures()
        beside = Beside(
            manifest=manifest,
            sources=self._sources(job),
            gas=await self._fees.of(self.client.chain, ledger, RECEIPTS),
            sample=await self._sample(job, ledger.view),
            distances=await self._distances(handle, ledger.view),
            explorer=self.client.deployment.explorer,
        )
        return job_document(ledger, figures, name_of(self._names), beside)

    async def network(self) -> dict[str, Any]:
        """The document of the network. Raises ChainError."""
        views, items = await self.everything()
        manifests = {job: await self._manifest(job) for job in views}
        titles = {job: manifest.name for job, manifest in manifests.items() if manifest}
        document = network_document(views, items, self.client.follower.now, self._names)
        for job in document["jobs"]:
            job["name"] = titles.get(job["job"])
        return document | {"explorer": self.client.deployment.explorer}

    async def member(self, account: Address) -> dict[str, Any]:
        """The document of an account. Raises ChainError."""
        views, items = await self.everything()
        now, explorer = self.client.follower.now, self.client.deployment.explorer
        return member_document(account, views, items, now, self._names) | {"explorer": explorer}

    async def everything(self) -> tuple[dict[JobId, JobView], Sequence[Indexed]]:
        """Every job that exists, and every event. Raises ChainError."""
        await self.client.follower.catch_up()
        items = self.client.session.follower.history()
        created = [item.event.job_id for item in items if isinstance(item.event, JobCreated)]
        return {job: await self.client.follower.view(job) for job in created}, items

    @property
    def _names(self) -> Mapping[Address, str]:
        return self.client.deployment.names

    async def _manifest(self, job: JobId) -> Manifest | None:
        """Kept once it was seen: its digest is on the chain."""
        clock = asyncio.get_running_loop().time
        if job not in self._manifests and clock() >= self._not_before.get(job, 0.0):
            handle = self.client.attach(job)
            try:
                async with asyncio.timeout(MANIFEST_SECONDS):
                    self._manifests[job] = handle.own_manifest() or await handle.manifest()
            except (AtollError, TimeoutError):
                self._not_before[job] = clock() + AGAIN_SECONDS
        return self._manifests.get(job)

    def _sources(self, job: JobId) -> Sequence[str]:
        """What the job's file names on the Hub, where it was submitted from this home."""
        submission = self.client.submissions.of_job(job)
        if submission is None or not submission.spec:
            return ()
        return with_sources(NO_LABELS, JobSpec.of(parse_toml(submission.spec), "its file")).sources

    async def _sample(self, job: JobId, view: JobView) -> Sample | None:
        """Of the newest certified model; the last one stays where a newer is not there yet."""
        merged, known = len(view.settled), self._samples.get(job)
        if self.prompt is not None and merged and (known is None or known.merged != merged):
            if job not in self._asking:
                self._asking[job] = asyncio.create_task(self._ask(job, merged, self.prompt))
            if self.waits:
                await self._asking[job]
        return self._samples.get(job)

    async def _ask(self, job: JobId, merged: int, prompt: str) -> None:
        """Takes as long as it takes to fetch the model. What fails is tried again after a while."""
        try:
            text = await self.client.attach(job).sample(prompt, round=merged - 1)
            self._samples[job] = Sample(prompt, text, merged)
        except AtollError:  # nobody serves it now
            if not self.waits:
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            del self._asking[job]

    async def _distances(self, handle: JobHandle, view: JobView) -> Mapping[tuple[int, int], float]:
        """Of the rounds that were measured by now; once a round is merged it is measured, too."""
        job, merged = handle.id, len(view.settled)
        if self.measures and merged != self._merged.get(job, 0):
            if job not in self._measuring:
                self._measuring[job] = asyncio.create_task(self._measure(handle, merged))
            if self.waits:
                await self._measuring[job]
        return await handle.distances()

    async def _rewards(self, handle: JobHandle, view: JobView, manifest: Manifest | None) -> None:
        """Has what seats sampled counted where a job has a task; the page has what is known."""
        is_new = len(view.settled) != self._counted.get(handle.id, 0)
        if manifest is None or manifest.task is None or not is_new or not can_evaluate():
            return
        if handle.id not in self._counting:
            self._counting[handle.id] = asyncio.create_task(self._count(handle, len(view.settled)))
        if self.waits:
            await self._counting[handle.id]

    async def _count(self, handle: JobHandle, merged: int) -> None:
        """Takes as long as it takes to fetch the ids. What fails is tried with the next round."""
        try:
            await handle.measure_rewards(self._silent[handle.id])
        except AtollError as error:
            log.info("no rewards are counted", job=handle.id, cause=str(error))
        finally:
            self._counted[handle.id] = merged
            del self._counting[handle.id]

    async def _measure(self, handle: JobHandle, merged: int) -> None:
        """Takes as long as it takes to fetch the updates. What fails is tried with the next one."""
        try:
            await handle.measure_distances(self._gone[handle.id])
        except AtollError as error:
            log.info("no distances are measured", job=handle.id, cause=str(error))
        finally:
            self._merged[handle.id] = merged
            del self._measuring[handle.id]
