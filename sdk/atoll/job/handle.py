"""The durable handle of one job: watch it, take its result, its refund, its pay.

Rule of this file: what is fetched is checked against what the chain says before it is used.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from atoll.content.cid import Cid
from atoll.content.fetch import Fetcher
from atoll.content.local import LocalStore
from atoll.errors import ConfigError, ManifestError, ProtocolError, RpcUnavailable
from atoll.job.document import parse_toml
from atoll.job.narrate import JobSnapshot, JobUpdate, is_about
from atoll.job.prepare import missing_extra
from atoll.job.spec import JobSpec
from atoll.law.manifest import MAX_MANIFEST_BYTES, Manifest
from atoll.law.merkle import claims_tree
from atoll.law.views import JobView
from atoll.law.words import Address, Digest, JobId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from atoll.job.client import Client

log = structlog.get_logger("atoll.job.handle")


@dataclass(frozen=True, slots=True)
class JobHandle:
    """One job; outlives the program through `to_json` and `Client.attach`."""

    client: Client
    id: JobId

    def to_json(self) -> str:
        """All it takes to attach to the job from elsewhere; no secret in it."""
        deployment = json.loads(self.client.deployment.to_json())
        return json.dumps({"job": self.id, "deployment": deployment})

    async def view(self) -> JobView:
        """Everything the chain says of the job, as of the last confirmed block."""
        return await self.client.follower.view(self.id)

    async def status(self) -> JobSnapshot:
        """Where the job stands. Raises ChainError where the chain has no such job."""
        return JobSnapshot.of(await self.view())

    async def watch(self) -> AsyncIterator[JobUpdate]:
        """What happened since the job was created, then what happens, until it has ended.

        A chain that does not answer is waited for.
        """
        told = 0
        while True:
            updates: Sequence[JobUpdate]
            try:
                updates = await self.client.follower.updates(self.id)
            except RpcUnavailable as error:
                log.warning("the chain does not answer", cause=str(error))
                updates = ()
            for update in updates[told:]:
                yield update
            told = max(told, len(updates))
            if updates and updates[-1].snapshot.has_ended:
                return
            await asyncio.sleep(self.client.config.poll_seconds)

    async def logs(self, seat: int | None = None) -> list[JobUpdate]:
        """What happened so far, oldest first; of one seat's work, reports and holders if given."""
        told = list(await self.client.follower.updates(self.id))
        return told if seat is None else [update for update in told if is_about(update, seat)]

    def own_manifest(self) -> Manifest | None:
        """The manifest, where the job was submitted from this home."""
        own = self.client.submissions.of_job(self.id)
        return None if own is None else Manifest.from_bytes(own.manifest)

    async def continued(self, folder: Path, rounds: int) -> JobSpec:
        """A job like this one, of so many rounds, that starts from its model of now.

        Args:
            folder: where that model goes; the new job names it.

        Raises:
            ConfigError: the job was not submitted from a file from this home, and as `checkpoint`.
        """
        own = self.client.submissions.of_job(self.id)
        if own is None or not own.spec:
            raise ConfigError(
                f"job {self.id} was not submitted from a job file of this home",
                next_step=f"atoll job checkpoint {self.id} DIR, then atoll job new --init DIR",
            )
        spec = JobSpec.of(parse_toml(own.spec), "the job's file")
        model = Manifest.from_bytes(own.manifest).model
        started = await self.checkpoint(folder)
        return spec.but(
            {
                "rounds": rounds,
                "model": None,
                "init.folder": str(started.absolute()),
                "init.seq": model.seq,
            }
        )

    async def is_handed_over(self) -> bool:
        """Whether verifiers hold the data, so that nobody needs the submitter's copy."""
        view = await self.view()
        ready = sum(member.ready for member in view.verifiers.values())
        return view.state.status.is_closed or ready >= view.require_terms().min_verifiers

    async def wait(self) -> JobSnapshot:
        """Until the job has ended; where it stands then."""
        async for _ in self.watch():
            continue
        return await self.status()

    async def manifest(self) -> Manifest:
        """The job's manifest, from the gateways announced on chain.

        Raises:
            NotFound: no gateway has it.
            ManifestError: it does not fit what the chain says.
        """
        view = await self.view()
        cid = Cid.from_bytes(view.spec_cid)
        data = await self.client.fetcher_of(self.id).get(cid, MAX_MANIFEST_BYTES)
        manifest = Manifest.from_bytes(data)
        if manifest.digest() != view.spec_digest:
            raise ManifestError("the manifest is not the one that the chain names")
        manifest.check_terms(view.terms_hash)
        return manifest

    async def result(self, folder: Path, *, merged: bool = False) -> Path:
        """Fetches the trained model, checks it against the settled verdict, and writes it so that
        `transformers.AutoModelForCausalLM.from_pretrained(folder)` opens it.

        Adapters are written as `peft.PeftModel.from_pretrained` opens them, or, if `merged`, added
        to the weights that they were trained on.

        Raises:
            ConfigError: no round is settled and the job has not ended; the train extra is missing.
            NotFound: no gateway has the model.
            ProtocolError: what was delivered is not what the verifiers signed.
        """
        snapshot = await self.status()
        is_trained = snapshot.settled_rounds >= snapshot.rounds
        if not snapshot.settled_rounds or not (is_trained or snapshot.has_ended):
            raise ConfigError(
                f"job {self.id} has no result yet: {snapshot.settled_rounds} of "
                f"{snapshot.rounds} rounds are settled",
                next_step=None if snapshot.has_ended else f"atoll job watch {self.id}",
            )
        return await self.checkpoint(folder, merged=merged)

    async def checkpoint(
        self, folder: Path, round: int | None = None, *, merged: bool = False
    ) -> Path:
        """The model after a settled round (the last, if None), fetched and checked as `result` is.

        Raises:
            ConfigError: that round is not settled; the train extra is missing.
            NotFound: no gateway has the model.
            ProtocolError: what was delivered is not what the verifiers signed.
        """
        settled = (await self.view()).settled
        if not settled or not 0 <= (len(settled) - 1 if round is None else round) < len(settled):
            wanted = "a round" if round is None else f"round {round}"
            raise ConfigError(
                f"job {self.id} has no model of {wanted} yet: {len(settled)} rounds are settled",
                next_step=f"atoll job watch {self.id}",
            )
        verdict = settled[-1 if round is None else round].verdict
        manifest = await self.manifest()
        model, tokenizer = map(Cid.from_bytes, (verdict.merged_cid, manifest.data.tokenizer_cid))
        await _fetch_model(self.client.fetcher_of(self.id), manifest, model, tokenizer)
        store, digest = self.client.store, verdict.merged_digest
        if merged and manifest.lora is not None:
            await _fetch_base(self.client.fetcher_of(self.id), manifest)
        export = partial(_export, merged=merged)
        await asyncio.to_thread(export, store, manifest, model, digest, folder)
        return folder

    async def fund(self, amount: int | str) -> int:
        """Pays more into the job's escrow; what was paid in by then, wei.

        Args:
            amount: wei, or tokens as text.

        Raises:
            TransactionFailed: the job has ended.
        """
        from atoll.job.client import wei_of  # noqa: PLC0415 (a handle is of a client)

        wei, funded = wei_of(amount), (await self.view()).funded
        key = f"fund:{self.id}:{funded}:{wei}"
        await self.client.allow(wei, key)
        await self.client.transact(key, self.client.chain.calls.fund(self.id, wei))
        return (await self.client.chain.escrow(self.id)).funded

    async def cancel(self) -> None:
        """Ends the job: at once while it waits for members, else at the next round's boundary."""
        await self.client.transact(f"cancel:{self.id}", self.client.chain.calls.cancel(self.id))

    async def refund(self) -> int:
        """Brings back what was not earned, once the job has ended; wei.

        Raises:
            TransactionFailed: it has not ended, or was refunded already.
        """
        await self._finalise_due()
        call = self.client.chain.calls.refund(self.id)
        await self.client.transact(f"refund:{self.id}", call)
        return (await self.client.chain.escrow(self.id)).refunded

    async def claim(self, account: Address | None = None) -> int:
        """Pays out what `account` (by default our own) has earned in final rounds; wei, in all.

        Anyone may claim for anyone; the money goes to whoever earned it.
        """
        await self._finalise_due()
        chain, view = self.client.chain, await self.view()
        who = account or self.client.address
        final = view.final_claims
        earned, proof = final.get(who, 0), []
        if earned:
            jobs = self.client.deployment.addresses["Jobs"]
            proof = claims_tree(self.client.deployment.chain_id, jobs, self.id, final).proof(who)
        key = f"claim:{self.id}:{who}:{view.final_rounds}:{view.credits.get(who, 0)}"
        await self.client.transact(key, chain.calls.claim(self.id, who, earned, proof))
        return await chain.paid_to(self.id, who)

    async def _finalise_due(self) -> None:
        """Pays late is not pays never: closes the dispute windows that have passed."""
        chain = self.client.chain
        view, now = await self.view(), (await chain.head()).timestamp
        for position, settled in enumerate(view.settled):
            if position >= view.final_rounds and settled.dispute_until <= now:
                key = f"finalise:{self.id}:{position}"
                await self.client.transact(key, chain.calls.finalise(self.id))


async def _fetch_model(fetcher: Fetcher, manifest: Manifest, model: Cid, tokenizer: Cid) -> None:
    from atoll.bits.layout import max_state_bytes  # noqa: PLC0415
    from atoll.train.data import MAX_TOKENIZER_BYTES  # noqa: PLC0415

    await fetcher.fetch(model, max_state_bytes(manifest))
    await fetcher.fetch(tokenizer, MAX_TOKENIZER_BYTES)


async def _fetch_base(fetcher: Fetcher, manifest: Manifest) -> None:
    from atoll.bits.layout import max_params_bytes  # noqa: PLC0415

    if manifest.init.cid is not None:
        limit = max_params_bytes(manifest.model)
        await fetcher.fetch(Cid.from_bytes(manifest.init.cid), limit)


def _export(
    store: LocalStore,
    manifest: Manifest,
    model: Cid,
    digest: Digest | None,
    folder: Path,
    *,
    merged: bool,
) -> None:
    try:
        from atoll.bits.layout import max_state_bytes, trained_shapes  # noqa: PLC0415
        from atoll.bits.state import GlobalState  # noqa: PLC0415
        from atoll.train.adapters import export_adapters, full_weights  # noqa: PLC0415
        from atoll.train.data import open_tokenizer  # noqa: PLC0415
        from atoll.train.export import export_model  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("writing the model") from error
    data = store.read_bytes(model, max_state_bytes(manifest))
    state = GlobalState.from_bytes(data, trained_shapes(manifest))
    if state.digest() != digest:
        raise ProtocolError(f"the model {model} is not the one that the verifiers signed")
    if manifest.lora is not None and not merged:
        export_adapters(state.params, manifest.lora, folder)
        return
    weights = full_weights(state.params, manifest, store)
    tokenizer = open_tokenizer(store, manifest.data.tokenizer_cid)
    export_model(weights, manifest.model, tokenizer, folder)
