"""One job as its client follows it: what the chain says of it, its manifest, its figures.

Rule of this file: it spends nothing, and what is fetched is checked against what the chain says.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from atoll.chain.log_store import LogFilter
from atoll.errors import ChainError, ConfigError, ManifestError, RpcUnavailable
from atoll.job.connection import Connection
from atoll.job.figures import RoundFigures, known, measured_distances, named
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.job_update import JobUpdate, is_about
from atoll.job.ledger.history_rows import (
    RoundHistory,
    SeatHistory,
    round_history,
    seat_history,
)
from atoll.job.ledger.ledger import Ledger
from atoll.job.readable import table_html
from atoll.job.signs import Signs
from atoll.job.standings import Standing, standings
from atoll.nested import loads
from atoll.protocol.manifest import MAX_MANIFEST_BYTES, Manifest
from atoll.protocol.types import JobId
from atoll.protocol.views import JobView
from atoll.storage.cid import DAG_CBOR

FIGURES_SECONDS = 3.0
"""Between two looks at what was computed here."""
LAST_FIGURES_SECONDS = 60.0
"""How long the last model's loss is waited for once a job is over."""
Tell: TypeAlias = Callable[[str], None]
"""Takes a sentence about what happens."""
log = structlog.get_logger("atoll.job.followed")


def untold(text: str) -> None:
    """A `Tell` of who does not want to know."""
    del text


@dataclass(frozen=True, slots=True)
class FollowedJob:
    """One job of a deployment; outlives the program through `to_json` and `Client.attach`."""

    client: Connection
    id: JobId

    def to_json(self) -> str:
        """All it takes to attach to the job from elsewhere; no secret in it."""
        deployment = loads(self.client.deployment.to_json())
        return json.dumps({"job": self.id, "deployment": deployment})

    async def view(self) -> JobView:
        """Everything the chain says of the job, as of the last confirmed block."""
        return await self.client.follower.view(self.id)

    async def newest(self) -> JobView:
        """The same, as of the newest block, which a reorg may take back."""
        return await self.client.follower.newest(self.id)

    async def status(self) -> JobSnapshot:
        """Where the job stands. Raises ChainError where the chain has no such job."""
        return JobSnapshot.of(await self.view(), self.client.follower.now)

    async def standings(self) -> list[Standing]:
        """How members without a place in it stand to it, while it waits for some."""
        return await standings(self.client, await self.view())

    async def ledger(self) -> Ledger:
        """What became of its rounds, its seats and its money so far."""
        view = await self.view()
        items = self.client.session.follower.history(LogFilter.of_job(self.id))
        return Ledger.of(view, items, self.client.follower.now)

    async def history(self) -> list[RoundHistory]:
        """Loss, tokens, seconds and money of each round, as rows for `pandas.DataFrame`."""
        ledger = await self.ledger()
        return round_history(ledger, await self.figures())

    async def seat_history(self) -> list[SeatHistory]:
        """What each seat did in each round, and its pay: rows as those of `history`."""
        return seat_history(await self.ledger())

    def _repr_html_(self) -> str:
        """Where it stood when the chain was last looked at, since a display cannot wait."""
        snapshot = self.client.follower.snapshot(self.id) if self.client.is_open else None
        if snapshot is None:
            return table_html(f"job {self.id}", {"status": "see `await job.status()`"})
        return snapshot._repr_html_()

    async def watch(self) -> AsyncIterator[JobUpdate]:
        """What happened since the job was created, then what happens, until nothing more can: it
        has ended, and its last round is FINAL.

        A chain that does not answer is waited for.
        """
        yielded = 0
        while True:
            updates, snapshot = await self._look()
            for update in updates[yielded:]:
                yield update
            yielded = max(yielded, len(updates))
            if snapshot is not None and snapshot.is_final:
                return
            await asyncio.sleep(self.client.config.poll_seconds)

    async def follow(self, *, evaluated: bool = False) -> AsyncIterator[JobUpdate | RoundFigures]:
        """As `watch`, with every model's figures as they become known, and again when what they say
        as a sentence is another.

        Args:
            evaluated: losses are computed here meanwhile (`evaluation.evaluating`), so that the
                last model's, which no certificate has, is waited for, a while.
        """
        shown: dict[int, str] = {}
        yielded, looked, over = 0, -math.inf, math.inf
        while True:
            (updates, snapshot), now = await self._look(), asyncio.get_running_loop().time()
            for update in updates[yielded:]:
                yield update
            if updates and (len(updates) > yielded or now - looked >= FIGURES_SECONDS):
                looked = now
                for item in await self._figures_or_none():
                    if item.is_known and shown.get(item.merged) != item.text():
                        shown[item.merged] = item.text()
                        yield item
            yielded = max(yielded, len(updates))
            if snapshot is not None and snapshot.is_final:
                over = min(over, now)
                lacks_last = evaluated and snapshot.settled_rounds not in shown
                if not lacks_last or now - over >= LAST_FIGURES_SECONDS:
                    return
            await asyncio.sleep(self.client.config.poll_seconds)

    async def _figures_or_none(self) -> list[RoundFigures]:
        try:
            return await self.figures()
        except ChainError as error:  # it pauses, or a reorg took the job's creation back
            log.warning("the chain does not tell how far the job is", cause=str(error))
            return []

    async def _look(self) -> tuple[Sequence[JobUpdate], JobSnapshot | None]:
        """What happened so far, and where the job stands; nothing where the chain is silent."""
        follower = self.client.follower
        try:
            return await follower.updates(self.id), follower.snapshot(self.id)
        except RpcUnavailable as error:
            log.warning("the chain does not answer", cause=str(error))
            return (), None

    async def logs(self, seat: int | None = None) -> list[JobUpdate]:
        """What happened so far, oldest first; of one seat's rounds and holders if given.

        Raises:
            ChainError: the chain has no such job.
            ConfigError: the job has no such seat.
        """
        view = await self.view()
        job_updates = list(await self.client.follower.updates(self.id))
        if seat is None:
            return job_updates
        check_seat(view, seat)
        holders = {held.account for held in view.providers.values() if held.index == seat}
        return [update for update in job_updates if is_about(update.event, seat, holders)]

    async def figures(self) -> list[RoundFigures]:
        """How good the model was before training and after each settled round, as certified and
        as computed here.
        """
        return known(self.client.figures, await self.view())

    async def distances(self) -> dict[tuple[int, int], float]:
        """How far each seat's update lay from its round's merge, in lengths of the merged update,
        by round and seat: of the rounds that `measure_distances` has measured here.
        """
        return measured_distances(self.client.figures, await self.view())

    async def signs(self) -> Signs:
        """What speaks against its models: rounds that are tainted, moved nothing, or after which
        the held-out loss rose three times running.
        """
        view = await self.view()
        return Signs.of(view, [item.bits for item in known(self.client.figures, view)])

    async def loss(self) -> float | None:
        """The newest model's held-out loss, nats a target; None where it was not computed here, for
        the next round's certificate has it.
        """
        return (await self.figures())[-1].loss

    def own_manifest(self) -> Manifest | None:
        """The manifest, where the job was submitted from this home."""
        submission = self.client.submissions.of_job(self.id)
        return None if submission is None else Manifest.from_bytes(submission.manifest)

    async def is_handed_over(self) -> bool:
        """Whether verifiers hold the data, so that nobody needs the submitter's copy."""
        view = await self.view()
        ready = view.ready_slots(view.round).bit_count()
        return view.status.is_closed or ready >= view.require_terms().min_verifiers

    async def manifest(self) -> Manifest:
        """The job's manifest, from the gateways announced on chain.

        Raises:
            NotFound: no gateway has it.
            ManifestError: it does not fit what the chain says.
            ProtocolError: the chain names none.
        """
        view = await self.view()
        cid = named(view.spec_cid, "manifest")
        if cid.codec != DAG_CBOR:
            raise ManifestError(f"{cid} is no manifest, which is a DAG-CBOR block")
        data = await self.client.fetcher_of(self.id).get(cid, MAX_MANIFEST_BYTES)
        manifest = Manifest.from_bytes(data)
        if manifest.digest() != view.spec_digest:
            raise ManifestError("the manifest is not the one that the committee signed")
        manifest.check_terms(view.terms_hash)
        return manifest

    async def settled_round(self, round: int | None = None) -> int:
        """That round, or the last settled one if None: there is a model after it.

        Raises:
            ConfigError: it is not settled, or none is.
        """
        return rounds_merged(await self.view(), round) - 1

    async def rest_due(self) -> int:
        """Unix seconds from which on all that is left of the ended job is the submitter's."""
        terms = (await self.view()).require_terms()
        return await self.client.chain.absolute_end(self.id) + terms.claim_seconds


def sentence(item: JobUpdate | RoundFigures) -> str:
    """What `FollowedJob.follow` told, in words."""
    return item.text() if isinstance(item, RoundFigures) else item.text


def check_seat(view: JobView, seat: int) -> None:
    """Raises ConfigError where the job has no such seat."""
    seats = view.require_terms().seats
    if not 0 <= seat < seats:
        raise ConfigError(
            f"job {view.job_id} has no seat {seat}", next_step=f"name one from 0 to {seats - 1}"
        )


def rounds_merged(view: JobView, round: int | None) -> int:
    """How many rounds the model after `round` has in it. Raises ConfigError if not settled."""
    settled = len(view.settled)
    if not settled or not 0 <= (settled - 1 if round is None else round) < settled:
        wanted = "a round" if round is None else f"round {round}"
        raise ConfigError(
            f"job {view.job_id} has no model of {wanted} yet: {settled} rounds are settled",
            next_step=f"atoll watch {view.job_id}",
        )
    return settled if round is None else round + 1
