"""The durable handle of one job: wait for it, take its result, its refund, its pay.

Rule of this file: what is fetched is checked against what the chain says before it is used.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.errors import ConfigError
from atoll.job.asking import missing_extra
from atoll.job.certified import (
    Certified,
    check_folder,
    export,
    fetch_base,
    fetch_model,
    model_after,
    sample_from,
)
from atoll.job.delivery import Delivery, deliver, first_model
from atoll.job.early_stopping import early_stopping_of, stops_early
from atoll.job.figures import RoundFigures, cid_of
from atoll.job.followed import FollowedJob, Tell, rounds_merged, sentence, untold
from atoll.job.groups import wei_of
from atoll.job.handover import hand_over
from atoll.job.hub_push import with_sources
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.ledger.round_rows import safe_round
from atoll.job.model_card import NO_LABELS, Labels, Origin
from atoll.job.money import pay_out, take_back
from atoll.job.own_distances import measure_here
from atoll.job.own_evaluation import can_evaluate, evaluate_here, measuring
from atoll.job.own_rewards import measure_rewards_here
from atoll.job.spec import JobSpec
from atoll.job.toml_files import parse_toml
from atoll.protocol.manifest import Manifest
from atoll.protocol.safety import first_struck, last_safe
from atoll.protocol.types import Address
from atoll.protocol.views import JobView
from atoll.service.worker import Worker
from atoll.storage.cid import Cid

if TYPE_CHECKING:
    from atoll.train.continue_text import Sampling


@dataclass(frozen=True, slots=True)
class JobHandle(FollowedJob):
    """One job, for whoever submitted it, wants its model or is paid by it."""

    async def evaluate(self) -> list[RoundFigures]:
        """As `figures`, where every held-out loss that is not known from here is computed here, and
        of a job with a task every reward.

        Raises:
            ConfigError: the train extra is missing.
            NotFound: no gateway has a model, or the evaluation set is not here.
            ProtocolError: a model is not the one that a committee signed.
        """
        if not can_evaluate():
            raise missing_extra("evaluating")
        worker = Worker()
        try:
            manifest = await self.manifest()
            await evaluate_here(self, manifest, worker)
            await measure_rewards_here(self, manifest, worker)
        finally:
            worker.kill()
        return await self.figures()

    async def measure_rewards(self, gone: set[int] | None = None) -> None:
        """Brings what merged seats say they sampled, as long as members serve it, and keeps what it
        was worth, for `figures`; and what a model answers to `task.held_out`, where that is here.

        Args:
            gone: as `measure_distances` has it.

        Raises:
            ConfigError: the train extra is missing.
            NotFound, ProtocolError: as `evaluate`.
        """
        if not can_evaluate():
            raise missing_extra("counting rewards")
        worker = Worker()
        try:
            await measure_rewards_here(self, await self.manifest(), worker, gone)
        finally:
            worker.kill()

    async def measure_distances(self, gone: set[int] | None = None) -> None:
        """Fetches every round's updates, as long as members serve them, merges them again, and
        keeps how far each lay from the merge, for `distances`.

        Args:
            gone: rounds that are not asked for; those that nobody serves any more are added.

        Raises:
            ConfigError: the train extra is missing.
            ProtocolError: a model or a merge is not the one that a committee signed.
        """
        if not can_evaluate():
            raise missing_extra("merging a round again")
        worker = Worker()
        try:
            await measure_here(self, await self.manifest(), worker, gone)
        finally:
            worker.kill()

    async def continued(self, folder: str | Path, rounds: int) -> JobSpec:
        """A job like this one, of so many rounds, that starts from its model of now; where more
        were slashed in a round than its merge bears, from the last model before that; and where a
        round was struck, from this job's result.

        Where this one trains adapters, the new one trains others, on the model with these added.

        Args:
            folder: where that model goes; the new job names it.

        Raises:
            ConfigError: the job was not submitted from a file from this home, or no model of it is
                safe; and as `checkpoint`.
        """
        submission = self.client.submissions.of_job(self.id)
        if submission is None or not submission.spec:
            raise ConfigError(
                f"job {self.id} was not submitted from a job file of this home",
                next_step=f"atoll job checkpoint {self.id} DIR, then atoll job new --init DIR",
            )
        spec = JobSpec.of(parse_toml(submission.spec), "the job's file")
        model = Manifest.from_bytes(submission.manifest).model
        started = await self._newest_sound(folder)
        return spec.but(
            {
                "rounds": rounds,
                "model": None,
                "init.folder": str(started.absolute()),
                "init.seq": model.seq,
            }
        )

    async def _newest_sound(self, folder: str | Path) -> Path:
        """What a job may go on from, with adapters added: see `continued`. Raises as that."""
        view = await self.view()
        struck = first_struck(view)
        if struck is not None and last_safe(view).before == struck.round:
            return await self.result(folder, merged=True)
        return await self.checkpoint(folder, safe_round(view), merged=True)

    async def hand_over(self, tell: Tell = untold) -> tuple[Address, ...]:
        """Brings manifest and data to verifiers that ask for them, and is reached by nobody; the
        accounts of two that hold all of it, or of as many as there are slots for.

        Called again, it goes on where it was. It returns sooner where the job runs or has ended.

        Args:
            tell: given to whom it is brought, a sentence each: `print`.

        Raises:
            NotFound: not all of it is in this home.
        """
        await self.client.stop_bringing(self.id)
        return await hand_over(self, tell)

    async def wait(self, tell: Tell = untold) -> JobSnapshot:
        """Until the job has ended and its last round is FINAL; where it stands then.

        A job of ours that is out of patience is cancelled, where the client signs.

        Args:
            tell: given what happens and how good the models are, a sentence each: `print`.
        """
        may_end = self.client.can_sign and early_stopping_of(self).rounds > 0
        async with measuring(self, evaluate_here) if may_end else nullcontext():
            async for item in self.follow():
                tell(sentence(item))
                if may_end and isinstance(item, RoundFigures) and await stops_early(self):
                    await self.cancel()
        return await self.status()

    async def delivery(self) -> Delivery:
        """Which model is the job's result: where somebody was slashed for its last merge, that
        merge is made once more without them, and where a round was struck, the first such round's
        is made as its updates give it.

        Raises:
            ConfigError: the last round is not FINAL, or nothing was merged; somebody was slashed,
                and the train extra is missing.
        """
        snapshot, view = await self.status(), await self.view()
        delivered = None
        if snapshot.is_final and view.settled:
            with self.client.store.holding():
                delivered = await deliver(self, view, await self.manifest())
        if delivered is None:
            raise _no_result(snapshot)
        return delivered

    async def result(
        self,
        folder: str | Path,
        labels: Labels = NO_LABELS,
        *,
        merged: bool = False,
        delivery: Delivery | None = None,
    ) -> Path:
        """Fetches the trained model, checks it against the last certificate, and writes it so that
        `transformers.AutoModelForCausalLM.from_pretrained(folder)` opens it.

        It is delivered once the last round is FINAL. Where somebody was slashed for it, it is
        merged once more without them, if their updates' bytes are still to be had; `delivery()` and
        the model card say which it is.

        Adapters are written as `peft.PeftModel.from_pretrained` opens them, or, if `merged`, added
        to the weights that they were trained on.

        Args:
            folder: empty, or not there, or with an earlier model of a job, which is replaced.
            delivery: what `delivery()` gave, where that was asked for already.

        Raises:
            ConfigError: the last round is not FINAL, or nothing was merged; the folder has files of
                somebody's; the train extra is missing.
            NotFound: no gateway has the model.
            ProtocolError: what was delivered is not what the committee signed.
        """
        check_folder(Path(folder))
        with self.client.store.holding():
            delivered = delivery or await self.delivery()
            model = Certified(Cid.from_bytes(delivered.cid), delivered.digest)
            rounds = delivered.rounds(len((await self.view()).settled))
            return await self._write(Path(folder), model, rounds, Dress(labels, merged, delivered))

    async def clean(
        self, folder: str | Path, labels: Labels = NO_LABELS, *, merged: bool = False
    ) -> int | None:
        """The last clean model, written as `checkpoint` writes it: what the first tainted or struck
        round opened with, which is certified, or is the one that the job began with.

        Returns:
            How many rounds are in it; None, and nothing is written, where no round is tainted or
            struck: then `result` is clean.

        Raises as `result`.
        """
        check_folder(Path(folder))
        snapshot, signs = await self.status(), await self.signs()
        if not snapshot.is_final:
            raise _no_result(snapshot)
        if signs.is_clean:
            return None
        rounds, view = signs.clean_before, await self.view()
        with self.client.store.holding():
            if cid_of(view, rounds):
                model = model_after(view, rounds)
            else:
                first = await first_model(self, view, await self.manifest())
                model = Certified(Cid.from_bytes(first.cid), first.digest)
            await self._write(Path(folder), model, rounds, Dress(labels, merged))
        return rounds

    async def checkpoint(
        self,
        folder: str | Path,
        round: int | None = None,
        labels: Labels = NO_LABELS,
        *,
        merged: bool = False,
    ) -> Path:
        """The model after a settled round (the last, if None), as it was certified: fetched and
        checked as `result` is.

        Beside it lie its model card, README.md, and the same facts for programs, card.json.

        Args:
            folder: as for `result`.

        Raises:
            ConfigError: that round is not settled; the folder has files of somebody's; the train
                extra is missing.
            NotFound: no gateway has the model.
            ProtocolError: what was delivered is not what the committee signed.
        """
        check_folder(Path(folder))
        view = await self.view()
        rounds = rounds_merged(view, round)
        dress = Dress(labels, merged)
        return await self._write(Path(folder), model_after(view, rounds), rounds, dress)

    async def _write(self, folder: Path, model: Certified, rounds: int, dress: Dress) -> Path:
        """A model, which is fetched first, with its card; the folder."""
        ledger, manifest = await self.ledger(), await self.manifest()
        await self._fetch_certified(manifest, model)
        if dress.merged and manifest.lora is not None:
            await fetch_base(self.client.fetcher_of(self.id), manifest)
        figures = await self.figures()
        written = self.client.submissions.of_job(self.id)
        labels = dress.labels
        if written is not None and written.spec:
            labels = with_sources(labels, JobSpec.of(parse_toml(written.spec), "the job's file"))
        origin = Origin(ledger, manifest, rounds, figures, labels, dress.delivery)
        write = partial(export, merged=dress.merged)
        await asyncio.to_thread(write, self.client.store, origin, model, folder)
        return folder

    async def sample(
        self, prompt: str, sampling: Sampling | None = None, round: int | None = None
    ) -> str:
        """Text from the model after a settled round (the last, if None), after a prompt.

        Args:
            sampling: how (`atoll.train.continue_text.Sampling`); None as that is by itself.

        Raises as `checkpoint`, and ConfigError where the prompt has no tokens.
        """
        view, manifest = await self.view(), await self.manifest()
        model = model_after(view, rounds_merged(view, round))
        await self._fetch_certified(manifest, model)
        if manifest.lora is not None:
            await fetch_base(self.client.fetcher_of(self.id), manifest)
        store = self.client.store
        return await asyncio.to_thread(sample_from, store, manifest, model, prompt, sampling)

    async def _fetch_certified(self, manifest: Manifest, model: Certified) -> None:
        tokenizer = Cid.from_bytes(manifest.data.tokenizer_cid)
        await fetch_model(self.client.fetcher_of(self.id), manifest, model.cid, tokenizer)

    async def fund(self, amount: int | str) -> int:
        """Pays more into the job's escrow; what was paid in by then, wei.

        Args:
            amount: wei, or tokens as text.

        Raises:
            ConfigError: the job has ended.
        """
        wei, view = wei_of(amount), await self.view()
        if view.status.is_closed:
            raise _is_over(view)
        key = f"fund:{self.id}:{view.funded}:{wei}"
        await self.client.allow(wei, key)
        await self.client.transact(key, self.client.chain.calls.fund(self.id, wei))
        return (await self.client.chain.escrow(self.id)).funded

    async def cancel(self) -> bool:
        """Ends the job: at once while it waits for members, else at the next round's boundary.

        Returns whether it was this call: a job that is cancelled already is left alone, and nothing
        is sent.

        Raises:
            ConfigError: the job has ended, and not since it was cancelled.
        """
        view = await self.newest()
        if view.cancel_requested:
            return False
        if view.status.is_closed:
            raise _is_over(view)
        await self.client.transact(f"cancel:{self.id}", self.client.chain.calls.cancel(self.id))
        return True

    async def refund(self) -> int:
        """Brings back what nobody can earn any more; wei, in all so far.

        At any time that is what the rounds settled or to come cannot cost; of an ended job the rest
        follows after `rest_due`.
        """
        return await take_back(self)

    async def claim(self, account: Address | None = None) -> int:
        """Pays out what `account` (by default our own) has earned in FINAL rounds; wei, in all.

        Anyone may claim for anyone; the money goes to whoever earned it.
        """
        return await pay_out(self, account or self.client.address)


@dataclass(frozen=True, slots=True)
class Dress:
    """What goes with a model: the card's labels, whether adapters are added to their base, and
    of a result how it came about.
    """

    labels: Labels
    merged: bool
    delivery: Delivery | None = None


def _no_result(snapshot: JobSnapshot) -> ConfigError:
    job, progress = snapshot.job, f"{snapshot.settled_rounds} of {snapshot.rounds} rounds"
    if snapshot.has_ended and not snapshot.settled_rounds:
        return ConfigError(f"job {job} has no result: no round was settled")
    return ConfigError(
        f"job {job} has no result yet: {progress} are settled, {snapshot.final_rounds} are FINAL",
        next_step=f"atoll watch {job}, or for the model so far: atoll job checkpoint {job} DIR",
    )


def _is_over(view: JobView) -> ConfigError:
    return ConfigError(
        f"job {view.job_id} is {view.status.name.lower()}, and no round of it will run any more",
        next_step=f"atoll job refund {view.job_id} brings back what nobody can earn",
    )
