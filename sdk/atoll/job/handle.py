"""The durable handle of one job: watch it, take its result, its refund, its pay.

Rule of this file: what is fetched is checked against what the chain says before it is used.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import structlog

from atoll.content.cid import DAG_CBOR, Cid
from atoll.content.fetch import Fetcher
from atoll.content.local import LocalStore
from atoll.errors import (
    ChainError,
    ConfigError,
    ManifestError,
    ProtocolError,
    RpcUnavailable,
    StorageError,
)
from atoll.job.asking import missing_extra
from atoll.job.card import CARD, FACTS, NO_LABELS, Labels, Origin, card, facts
from atoll.job.delivery import Delivery, deliver
from atoll.job.document import parse_toml
from atoll.job.evaluation import can_evaluate, evaluate_here, evaluating
from atoll.job.figures import RoundFigures, cid_of, known, model_of, named
from atoll.job.money import pay_out, take_back
from atoll.job.narrate import JobSnapshot, JobUpdate, is_about
from atoll.job.patience import is_out_of_patience, patience_of
from atoll.job.spec import JobSpec
from atoll.job.story import RoundStory, clean_round, tell_rounds
from atoll.law.events import Fell, Missed
from atoll.law.manifest import MAX_MANIFEST_BYTES, Manifest
from atoll.law.views import JobView
from atoll.law.words import Address, Digest, JobId
from atoll.service.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from atoll.bits.state import GlobalState
    from atoll.job.client import Client
    from atoll.train.generate import Sampling

FIGURES_SECONDS = 3.0
"""Between two looks at what was computed here."""
LAST_FIGURES_SECONDS = 60.0
"""How long the last model's loss is waited for once a job is over."""
Tell: TypeAlias = Callable[[str], None]
"""Takes a sentence about what happens."""
log = structlog.get_logger("atoll.job.handle")


def untold(text: str) -> None:
    """A `Tell` of who does not want to know."""
    del text


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
        return JobSnapshot.of(await self.view(), self.client.follower.now)

    async def rounds(self) -> list[RoundStory]:
        """What became of every round so far, oldest first; the open one last."""
        return tell_rounds(await self.view(), self.client.follower.now)

    async def watch(self) -> AsyncIterator[JobUpdate]:
        """What happened since the job was created, then what happens, until nothing more can: it
        has ended, and its last round is FINAL.

        A chain that does not answer is waited for.
        """
        told = 0
        while True:
            updates, snapshot = await self._look()
            for update in updates[told:]:
                yield update
            told = max(told, len(updates))
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
        told, looked, over = 0, -math.inf, math.inf
        while True:
            (updates, snapshot), now = await self._look(), asyncio.get_running_loop().time()
            for update in updates[told:]:
                yield update
            if updates and (len(updates) > told or now - looked >= FIGURES_SECONDS):
                looked = now
                for item in await self._figures_or_none():
                    if item.loss is not None and shown.get(item.merged) != item.text():
                        shown[item.merged] = item.text()
                        yield item
            told = max(told, len(updates))
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
        told = list(await self.client.follower.updates(self.id))
        if seat is None:
            return told
        check_seat(view, seat)
        holders = {held.account for held in view.providers.values() if held.index == seat}
        return [update for update in told if is_about(update.event, seat, holders)]

    async def figures(self) -> list[RoundFigures]:
        """How good the model was before training and after each settled round, as certified and
        as computed here.
        """
        return known(self.client.figures, await self.view())

    async def loss(self) -> float | None:
        """The newest model's held-out loss, nats a target; None where it was not computed here, for
        the next round's certificate has it.
        """
        return (await self.figures())[-1].loss

    async def evaluate(self) -> list[RoundFigures]:
        """As `figures`, where every held-out loss that is not known from here is computed here.

        Raises:
            ConfigError: the train extra is missing.
            NotFound: no gateway has a model, or the evaluation set is not here.
            ProtocolError: a model is not the one that a committee signed.
        """
        if not can_evaluate():
            raise missing_extra("evaluating")
        worker = Worker()
        try:
            await evaluate_here(self, await self.manifest(), worker)
        finally:
            worker.kill()
        return await self.figures()

    def own_manifest(self) -> Manifest | None:
        """The manifest, where the job was submitted from this home."""
        own = self.client.submissions.of_job(self.id)
        return None if own is None else Manifest.from_bytes(own.manifest)

    async def continued(self, folder: str | Path, rounds: int) -> JobSpec:
        """A job like this one, of so many rounds, that starts from its model of now, or where more
        fell in a round than its merge bears, from the last model before that.

        Where this one trains adapters, the new one trains others, on the model with these added.

        Args:
            folder: where that model goes; the new job names it.

        Raises:
            ConfigError: the job was not submitted from a file from this home, or no model of it is
                clean; and as `checkpoint`.
        """
        own = self.client.submissions.of_job(self.id)
        if own is None or not own.spec:
            raise ConfigError(
                f"job {self.id} was not submitted from a job file of this home",
                next_step=f"atoll job checkpoint {self.id} DIR, then atoll job new --init DIR",
            )
        spec = JobSpec.of(parse_toml(own.spec), "the job's file")
        model = Manifest.from_bytes(own.manifest).model
        started = await self.checkpoint(folder, clean_round(await self.view()), merged=True)
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
        ready = view.ready_places(view.round).bit_count()
        return view.status.is_closed or ready >= view.require_terms().min_verifiers

    async def wait(self, tell: Tell = untold) -> JobSnapshot:
        """Until the job has ended and its last round is FINAL; where it stands then.

        A job of ours that is out of patience is cancelled, where the client signs.

        Args:
            tell: given what happens and how good the models are, a sentence each: `print`.
        """
        may_end = self.client.can_sign and patience_of(self).rounds > 0
        async with evaluating(self) if may_end else nullcontext():
            async for item in self.follow():
                tell(sentence(item))
                if may_end and isinstance(item, RoundFigures) and await is_out_of_patience(self):
                    await self.cancel()
        return await self.status()

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

    async def delivery(self) -> Delivery:
        """Which model is the job's result: where somebody fell in its last merge, that merge is
        made once more without them.

        Raises:
            ConfigError: the last round is not FINAL, or nothing was merged; somebody fell, and the
                train extra is missing.
        """
        snapshot, view = await self.status(), await self.view()
        found = None
        if snapshot.is_final and view.settled:
            with self.client.store.holding():
                found = await deliver(self, view, await self.manifest())
        if found is None:
            raise _no_result(snapshot)
        return found

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

        It is delivered once the last round is FINAL. Where somebody fell in it, it is merged once
        more without them, if their updates' bytes are still to be had; `delivery()` and the model
        card say which it is.

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
            found = delivery or await self.delivery()
            model = Certified(Cid.from_bytes(found.cid), found.digest)
            rounds = len((await self.view()).settled)
            return await self._write(Path(folder), model, rounds, Dress(labels, merged, found))

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
        rounds = _rounds_merged(view, round)
        dress = Dress(labels, merged)
        return await self._write(Path(folder), _model_of(view, rounds), rounds, dress)

    async def _write(self, folder: Path, model: Certified, rounds: int, dress: Dress) -> Path:
        """A model, which is fetched first, with its card; the folder."""
        view, manifest = await self.view(), await self.manifest()
        await self._fetch_certified(manifest, model)
        if dress.merged and manifest.lora is not None:
            await _fetch_base(self.client.fetcher_of(self.id), manifest)
        events = [update.event for update in await self.client.follower.updates(self.id)]
        cuts = [event for event in events if isinstance(event, Missed | Fell)]
        told = view, manifest, rounds, await self.figures(), cuts, dress.labels
        origin = Origin(*told, delivery=dress.delivery)
        form = Form(dress.merged, self._started_from())
        await asyncio.to_thread(_export, self.client.store, origin, model, folder, form)
        return folder

    async def settled_round(self, round: int | None = None) -> int:
        """That round, or the last settled one if None: there is a model after it.

        Raises:
            ConfigError: it is not settled, or none is.
        """
        return _rounds_merged(await self.view(), round) - 1

    async def sample(
        self, prompt: str, sampling: Sampling | None = None, round: int | None = None
    ) -> str:
        """Text from the model after a settled round (the last, if None), after a prompt.

        Args:
            sampling: how (`atoll.train.generate.Sampling`); None as that is by itself.

        Raises as `checkpoint`, and ConfigError where the prompt has no tokens.
        """
        view, manifest = await self.view(), await self.manifest()
        model = _model_of(view, _rounds_merged(view, round))
        await self._fetch_certified(manifest, model)
        if manifest.lora is not None:
            await _fetch_base(self.client.fetcher_of(self.id), manifest)
        store = self.client.store
        return await asyncio.to_thread(_sample, store, manifest, model, prompt, sampling)

    def _started_from(self) -> Path | None:
        """The folder that the job started from, if this home submitted it and has it still."""
        own = self.client.submissions.of_job(self.id)
        if own is None or not own.spec:
            return None
        named = JobSpec.of(parse_toml(own.spec), "the job's file").init.folder
        return Path(named) if named and (Path(named) / "config.json").is_file() else None

    async def _fetch_certified(self, manifest: Manifest, model: Certified) -> None:
        tokenizer = Cid.from_bytes(manifest.data.tokenizer_cid)
        await _fetch_model(self.client.fetcher_of(self.id), manifest, model.cid, tokenizer)

    async def fund(self, amount: int | str) -> int:
        """Pays more into the job's escrow; what was paid in by then, wei.

        Args:
            amount: wei, or tokens as text.

        Raises:
            ConfigError: the job has ended.
        """
        from atoll.job.client import wei_of  # noqa: PLC0415 (a handle is of a client)

        wei, view = wei_of(amount), await self.view()
        if view.status.is_closed:
            raise _is_over(view)
        key = f"fund:{self.id}:{view.funded}:{wei}"
        await self.client.allow(wei, key)
        await self.client.transact(key, self.client.chain.calls.fund(self.id, wei))
        return (await self.client.chain.escrow(self.id)).funded

    async def cancel(self) -> None:
        """Ends the job: at once while it waits for members, else at the next round's boundary.

        Raises:
            ConfigError: the job has ended, and not since it was cancelled.
        """
        view = await self.view()
        if view.status.is_closed and not view.cancel_requested:
            raise _is_over(view)
        await self.client.transact(f"cancel:{self.id}", self.client.chain.calls.cancel(self.id))

    async def refund(self) -> int:
        """Brings back what nobody can earn any more; wei, in all so far.

        At any time that is what the rounds settled or to come cannot cost; of an ended job the rest
        follows after `rest_due`.
        """
        return await take_back(self)

    async def rest_due(self) -> int:
        """Unix seconds from which on all that is left of the ended job is the submitter's."""
        terms = (await self.view()).require_terms()
        return await self.client.chain.absolute_end(self.id) + terms.claim_seconds

    async def claim(self, account: Address | None = None) -> int:
        """Pays out what `account` (by default our own) has earned in FINAL rounds; wei, in all.

        Anyone may claim for anyone; the money goes to whoever earned it.
        """
        return await pay_out(self, account or self.client.address)


def sentence(item: JobUpdate | RoundFigures) -> str:
    """What `JobHandle.follow` told, in words."""
    return item.text() if isinstance(item, RoundFigures) else item.text


def check_seat(view: JobView, seat: int) -> None:
    """Raises ConfigError where the job has no such seat."""
    seats = view.require_terms().seats
    if not 0 <= seat < seats:
        raise ConfigError(
            f"job {view.job_id} has no seat {seat}", next_step=f"name one from 0 to {seats - 1}"
        )


def _is_over(view: JobView) -> ConfigError:
    return ConfigError(
        f"job {view.job_id} is {view.status.name.lower()}, and no round of it will run any more",
        next_step=f"atoll job refund {view.job_id} brings back what nobody can earn",
    )


async def _fetch_model(fetcher: Fetcher, manifest: Manifest, model: Cid, tokenizer: Cid) -> None:
    from atoll.bits.layout import max_state_bytes  # noqa: PLC0415
    from atoll.train.tokenizer import MAX_TOKENIZER_BYTES  # noqa: PLC0415

    await fetcher.fetch(model, max_state_bytes(manifest))
    await fetcher.fetch(tokenizer, MAX_TOKENIZER_BYTES)


@dataclass(frozen=True, slots=True)
class Certified:
    """A global state that a committee signed, or that follows from what is on the chain."""

    cid: Cid
    digest: Digest


def _no_result(snapshot: JobSnapshot) -> ConfigError:
    job, done = snapshot.job, f"{snapshot.settled_rounds} of {snapshot.rounds} rounds"
    if snapshot.has_ended and not snapshot.settled_rounds:
        return ConfigError(f"job {job} has no result: no round was settled")
    return ConfigError(
        f"job {job} has no result yet: {done} are settled, {snapshot.final_rounds} are FINAL",
        next_step=f"atoll job watch {job}, or for the model so far: atoll job checkpoint {job} DIR",
    )


def _model_of(view: JobView, rounds: int) -> Certified:
    """The model after so many rounds. Raises ConfigError where nothing was merged by then."""
    cid = cid_of(view, rounds)
    if not cid:
        raise ConfigError(f"job {view.job_id} has no model: nothing was certified")
    return Certified(named(cid, "model"), model_of(view, rounds))


def _rounds_merged(view: JobView, round: int | None) -> int:
    """How many rounds the model after `round` has in it. Raises ConfigError if not settled."""
    settled = len(view.settled)
    if not settled or not 0 <= (settled - 1 if round is None else round) < settled:
        wanted = "a round" if round is None else f"round {round}"
        raise ConfigError(
            f"job {view.job_id} has no model of {wanted} yet: {settled} rounds are settled",
            next_step=f"atoll job watch {view.job_id}",
        )
    return settled if round is None else round + 1


def check_folder(folder: Path) -> None:
    """That a model which is written there replaces at most an earlier one that was.

    Raises:
        ConfigError: there are files, and no card of a job's model.
        StorageError: it cannot be read.
    """
    try:
        if not folder.exists() or not any(folder.iterdir()):
            return
        told = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        told = None
    except OSError as error:
        raise StorageError(f"cannot write a model to {folder}: {error}") from error
    if not (isinstance(told, dict) and {"rounds_contract", "model_digest"} <= told.keys()):
        raise ConfigError(
            f"{folder} has files, and no {FACTS} of a job's model",
            next_step="name a folder that is empty, or not there",
        )


def _write_card(origin: Origin, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CARD).write_text(card(origin), encoding="utf-8")
        (folder / FACTS).write_text(json.dumps(facts(origin), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write the model card to {folder}: {error}") from error


async def _fetch_base(fetcher: Fetcher, manifest: Manifest) -> None:
    from atoll.bits.layout import max_params_bytes  # noqa: PLC0415

    if manifest.init.cid is not None:
        limit = max_params_bytes(manifest.model)
        await fetcher.fetch(Cid.from_bytes(manifest.init.cid), limit)


@dataclass(frozen=True, slots=True)
class Dress:
    """What goes with a model: the card's labels, whether adapters are added to their base, and
    of a result how it came about.
    """

    labels: Labels
    merged: bool
    delivery: Delivery | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """How a model is written.

    Attributes:
        merged: adapters are added to their base, and the whole is written.
        like: the folder that the job started from, where it is on this machine: its family,
            special tokens and chat template are kept.
    """

    merged: bool
    like: Path | None


def _export(
    store: LocalStore,
    origin: Origin,
    model: Certified,
    folder: Path,
    form: Form,
) -> None:
    manifest = origin.manifest
    state = _open_model(store, manifest, model)
    from atoll.train.adapters import export_adapters, full_weights  # noqa: PLC0415
    from atoll.train.export import export_model  # noqa: PLC0415
    from atoll.train.tokenizer import open_tokenizer  # noqa: PLC0415

    # First, so that who was stopped amid the weights may write there again.
    _write_card(origin, folder)
    if manifest.lora is not None and not form.merged:
        export_adapters(state.params, manifest.lora, folder)
        return
    weights = full_weights(state.params, manifest, store)
    tokenizer = open_tokenizer(store, manifest.data.tokenizer_cid)
    export_model(weights, manifest.model, tokenizer, folder, like=form.like)


def _sample(
    store: LocalStore,
    manifest: Manifest,
    model: Certified,
    prompt: str,
    sampling: Sampling | None,
) -> str:
    state = _open_model(store, manifest, model)
    from atoll.train.adapters import full_weights  # noqa: PLC0415
    from atoll.train.generate import Sampling, generate  # noqa: PLC0415
    from atoll.train.tokenizer import open_tokenizer  # noqa: PLC0415

    tokenizer = open_tokenizer(store, manifest.data.tokenizer_cid)
    weights = full_weights(state.params, manifest, store)
    return generate(weights, manifest.model, tokenizer, prompt, sampling or Sampling())


def _open_model(store: LocalStore, manifest: Manifest, model: Certified) -> GlobalState:
    try:
        from atoll.train.round import read_global_state  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("reading the model") from error
    state = read_global_state(manifest, model.cid.to_bytes(), store)
    if state.digest() != model.digest:
        raise ProtocolError(f"the model {model.cid} is not the one that the committee signed")
    return state
