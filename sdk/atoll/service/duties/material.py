"""Gets the manifest, tries the job's probe on this machine, and gets the data.

Nothing is staked on a job before its manifest was held against the chain, this machine reproduced
its probe, and every token is here, and the weights that it starts from.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import structlog

from atoll.chain.response_checks import text
from atoll.errors import ManifestError, NumericsMismatch, ProtocolError, TooLarge
from atoll.numerics.state_layout import max_params_bytes
from atoll.protocol.manifest import MAX_MANIFEST_BYTES, Manifest
from atoll.protocol.types import Digest, JobStatus, Phase, Role
from atoll.protocol.views import JobView
from atoll.service.commands import Work
from atoll.service.config import PolicySection
from atoll.service.doctor.machine_checks import memory
from atoll.service.duties.send_keeper_calls import is_over
from atoll.service.entries import Done, Entries, Entry
from atoll.service.machine import AnyCommand, Decision, State
from atoll.service.needs import Machine
from atoll.service.pace import Load, Pace, earned_per_hour, game_load, promised_per_hour
from atoll.service.policy import (
    games_refusal,
    least_move,
    lock_refusal,
    manifest_refusal,
    pace_refusal,
    room_refusal,
    terms_refusal,
)
from atoll.service.task import Task
from atoll.storage.cid import DAG_CBOR, Cid
from atoll.storage.errors import MalformedDag
from atoll.train.belongings import MAX_TOKENIZER_BYTES
from atoll.train.data import nodes_bytes

if TYPE_CHECKING:
    from atoll.service.effects import Effects

log = structlog.get_logger("atoll.service")
S = TypeVar("S")
MATERIAL: Final = "material"
PACE_TRIES: Final = 6
BUSY: Final = 0.25
"""What keeps a machine busy slows it to a part like this: what it is too slow for even when four
times as fast is not measured again, since anybody can announce any number of it."""
PACE_PAUSE_S: Final = 30.0
"""Between two measurements of a pace that is too slow."""
CHECK_MACHINE: Final[Task[[bytes], None]] = Task("check-machine.v1", "atoll.service.tasks")
MEASURE_PACE: Final[Task[[bytes], Pace]] = Task("measure-pace.v1", "atoll.service.tasks")
CHECK_DATA: Final[Task[[bytes, str], None]] = Task("check-data.v1", "atoll.service.tasks")
FIND_PROGRAM: Final[Task[[bytes, str], tuple[Digest, Digest]]] = Task(
    "find-program.v1", "atoll.service.tasks"
)


@dataclass(frozen=True, slots=True)
class SpecReady(Entry):
    """The manifest was fetched, has the chain's terms, and this machine reproduces its numerics.

    Attributes:
        hourly: wei that an hour in the job earns this machine by the pace measured, or at least by
            the terms; 0 of a job that is ours.
    """

    kind: ClassVar[str] = "manifest-ready.v1"
    outlives_start: ClassVar[bool] = False
    manifest: bytes
    hourly: int = 0


@dataclass(frozen=True, slots=True)
class JobRefused(Entry):
    """This job is not for this machine, and why; nothing is staked on it."""

    kind: ClassVar[str] = "job-refused.v1"
    outlives_start: ClassVar[bool] = False
    reason: str


@dataclass(frozen=True, slots=True)
class DataReady(Entry):
    """All tokens are in the store and the manifest's, and initial weights that are content.

    Attributes:
        initial: digest of round 0's model.
    """

    kind: ClassVar[str] = "data-ready.v1"
    cid: bytes
    initial: Digest


@dataclass(frozen=True, slots=True)
class DoFetchSpec(Work[SpecReady | JobRefused]):
    """Fetch the manifest, hold it against the chain, and try the job's probe.

    The policy is held against what nothing is staked on yet: whoever has a place owes its rounds.
    """

    kind: ClassVar[str] = "fetch-manifest.v1"
    spec_cid: bytes
    terms_hash: Digest

    @property
    def about(self) -> tuple[object, ...]:
        return ()  # a job has one

    async def perform(self, effects: Effects, view: JobView) -> Done[SpecReady | JobRefused]:
        vetted = await self._vetted(effects, view)
        if isinstance(vetted.entry, JobRefused):
            await _let_go(effects, view, vetted.entry)
        return vetted

    async def _vetted(self, effects: Effects, view: JobView) -> Done[SpecReady | JobRefused]:
        config, is_bound = effects.context.config, view.is_bound(effects.context.me)
        policy = PolicySection() if is_bound else config.policy
        role = None if is_bound else effects.role
        hourly = 0
        if role is not None:
            refused = await _terms_refused(effects, view, role)
            if refused:
                return Done(JobRefused(refused))
            hourly = promised_per_hour(role, view.require_terms())
        try:
            cid = Cid.from_bytes(self.spec_cid)
            if cid.codec != DAG_CBOR:
                return Done(JobRefused(f"{cid} is no manifest, which is a DAG-CBOR block"))
            await effects.fetch(view, None, cid, MAX_MANIFEST_BYTES)
            data = effects.context.store.read_bytes(cid, MAX_MANIFEST_BYTES)
            manifest = Manifest.from_bytes(data)
            manifest.check_terms(self.terms_hash)
            await _keep_data(effects, view, manifest)
            refused = manifest_refusal(policy, manifest)
            if role is not None and not refused:
                # Each rank may need what a part of the work does.
                room = memory()[0] // effects.context.ranks
                here = Machine(room, shutil.disk_usage(config.data_dir).free)
                refused = room_refusal(policy, role, manifest, here)
            if refused:
                return Done(JobRefused(refused))
            await effects.vet(view, CHECK_MACHINE(data))
            if role is not None and policy.is_measured:
                refused, hourly = await _paced(effects, view, role, manifest)
        except (ValueError, TooLarge, MalformedDag, ManifestError, NumericsMismatch) as error:
            return Done(JobRefused(text(str(error))))
        return Done(JobRefused(refused) if refused else SpecReady(data, hourly))


async def _terms_refused(effects: Effects, view: JobView, role: Role) -> str:
    """Why the operator's policy does not take what the chain has of the job; empty where it does.

    Nothing is fetched for it.
    """
    context, terms = effects.context, view.require_terms()
    policy, chain = context.config.policy, context.chain
    move = least_move(policy, chain.deployment.chain_id, context.config.rpc_urls)
    refused = terms_refusal(policy, terms, role, move)
    if refused:
        return refused
    return lock_refusal(policy, terms, (await chain.head()).timestamp)


async def _keep_data(effects: Effects, view: JobView, manifest: Manifest) -> None:
    """Pins the data that the journal knows to be here, where the store knows of no pin: it is
    another store than then, if the journal alone was moved, and its blocks come one by one.
    """
    if not isinstance(effects.context.journal.read(view.job_id).of(DoFetchData), DataReady):
        return
    kept = {pin.cid for pin in await effects.kept_for(view)}
    data = [cid for cid, _ in files_of(manifest)]
    lost = [cid for cid in data if Cid.from_bytes(cid).to_v1() not in kept]
    if lost:
        await effects.keep(view, None, *lost)


async def _let_go(effects: Effects, view: JobView, refused: JobRefused) -> None:
    """Nothing is kept of a job that is refused: anybody can make as many as they pay gas for.

    Raises:
        ProtocolError: we have a part in it. It is tried again: what a bit that flipped kept this
            machine from it may come to, and a refusal lasts as long as the process.
    """
    if view.is_bound(effects.context.me):
        raise ProtocolError(
            f"this machine does not come to what it owes job {view.job_id}: {refused.reason}",
            next_step="run the version and the machine that joined it; it is tried again",
        )
    for reason in {pin.reason for pin in await effects.kept_for(view)}:
        await effects.end(reason)


async def _paced(
    effects: Effects, view: JobView, role: Role, manifest: Manifest
) -> tuple[str, int]:
    """Why the job is too fast for this machine, or earns it too little, empty where it once did
    neither; and the wei that an hour of it earns.

    A refusal lasts as long as the process, so a few minutes in which something else keeps the
    machine busy are not to decide it.
    """
    data, policy = manifest.to_bytes(), effects.context.config.policy
    for tries_left in reversed(range(PACE_TRIES)):
        pace = await effects.vet(view, MEASURE_PACE(data))
        refused = pace_refusal(policy, role, manifest, pace)
        effects.games[view.job_id] = game_load(role, manifest, pace)
        if not refused and policy.most_of_window is not None:
            others = await _other_games(effects, view, role)
            refused = games_refusal(policy, effects.games[view.job_id], others)
        if not refused or tries_left == 0 or pace_refusal(policy, role, manifest, pace.by(BUSY)):
            break
        log.info("measures its pace again in a while", job=view.job_id, because=refused)
        await asyncio.sleep(PACE_PAUSE_S)
    return refused, earned_per_hour(role, manifest, pace)


async def _other_games(effects: Effects, view: JobView, role: Role) -> list[Load]:
    """What games in our other jobs take this machine, each of which is measured once: one that was
    joined before this process began has no pace yet.
    """
    loads = []
    for job in (other.job_id for other in effects.other_jobs(view)):
        spec = effects.context.journal.read(job).of(DoFetchSpec)
        if job not in effects.games and isinstance(spec, SpecReady):
            pace = await effects.vet(view, MEASURE_PACE(spec.manifest))
            effects.games[job] = game_load(role, Manifest.from_bytes(spec.manifest), pace)
        if job in effects.games:
            loads.append(effects.games[job])
    return loads


@dataclass(frozen=True, slots=True)
class DoFetchData(Work[DataReady | JobRefused]):
    """Fetch the training tokens, the held-out ones, the tokenizer and initial weights."""

    kind: ClassVar[str] = "fetch-data.v1"
    manifest: bytes

    @property
    def about(self) -> tuple[object, ...]:
        return ()

    async def perform(self, effects: Effects, view: JobView) -> Done[DataReady | JobRefused]:
        vetted = await self._vetted(effects, view)
        if isinstance(vetted.entry, JobRefused):
            await _let_go(effects, view, vetted.entry)
        return vetted

    async def _vetted(self, effects: Effects, view: JobView) -> Done[DataReady | JobRefused]:
        manifest = Manifest.from_bytes(self.manifest)
        data = manifest.data
        try:
            files = files_of(manifest)
            # All of them first: what others bring of one while another is fetched is kept, too.
            await effects.pin(view, None, *(Cid.from_bytes(cid) for cid, _ in files))
            for cid, most in files:
                await effects.fetch(view, None, Cid.from_bytes(cid), most)
            await effects.vet(view, CHECK_DATA(self.manifest, effects.store_dir))
            initial = await _check_program(effects, view, manifest)
        except (ProtocolError, MalformedDag, TooLarge, ManifestError) as error:
            return Done(JobRefused(text(str(error))))
        return Done(DataReady(data.cid, initial))


async def _check_program(effects: Effects, view: JobView, manifest: Manifest) -> Digest:
    """Digest of round 0's model. Raises ManifestError where the terms name another program."""
    call = FIND_PROGRAM(manifest.to_bytes(), effects.store_dir)
    root, initial = await effects.vet(view, call)
    if root != manifest.terms.program:
        raise ManifestError(
            "manifest: its terms name another program than its steps are",
            next_step="do not join this job",
        )
    return initial


def files_of(manifest: Manifest) -> list[tuple[bytes, int]]:
    """The files of a job's data, and how many bytes each may have."""
    data = manifest.data
    size = data.train_tokens * data.token_bytes
    # The small ones first: whoever serves only those costs nobody the large ones.
    files = [(data.tokenizer_cid, MAX_TOKENIZER_BYTES), (data.nodes_cid, nodes_bytes(size))]
    if data.eval_cid is not None:
        files.append((data.eval_cid, data.eval_tokens * data.token_bytes))
    files.append((data.cid, size))
    if manifest.init.cid is not None:
        files.append((manifest.init.cid, max_params_bytes(manifest.model)))
    return files


def wanted_files(command: AnyCommand) -> Iterator[tuple[Cid, int]]:
    """The files that a command of `decide_material` fetches, and how many bytes each may have."""
    if isinstance(command, DoFetchSpec):
        with suppress(ValueError):  # what a stranger calls a CID is its own trouble
            cid = Cid.from_bytes(command.spec_cid)
            if cid.codec == DAG_CBOR:
                yield cid, MAX_MANIFEST_BYTES
    elif isinstance(command, DoFetchData):
        for name, most in files_of(Manifest.from_bytes(command.manifest)):
            with suppress(ValueError):
                yield Cid.from_bytes(name), most


# --- decisions ---


def decide_material(state: State[S], *, looks_on: bool = False) -> Decision:
    """Gets the manifest, tries the probe, then gets the data.

    Args:
        looks_on: whether jobs are of interest that it has no part in and that take nobody more.
    """
    view, entries = state.view, state.entries
    refused = refusal(entries)
    if refused is not None:
        return Decision(MATERIAL, f"refused: {refused.reason}")
    is_closed = view.phase is Phase.CLOSED
    if view.status is JobStatus.NONE or (is_closed and not _is_needed_still(state, looks_on)):
        return Decision(MATERIAL, f"the job is {view.status.name}")
    spec = spec_of(entries)
    if spec is None:
        command = DoFetchSpec(view.spec_cid, view.terms_hash)
        return Decision(MATERIAL, "the manifest is not here", (command,))
    if entries.of(DoFetchData) is None and not state.may_take:
        return Decision(MATERIAL, "the manifest is here, and other jobs may be better")
    if entries.of(DoFetchData) is None:
        return Decision(MATERIAL, "the data is not here", (DoFetchData(spec),))
    return Decision(MATERIAL, "manifest and data are here")


def _is_needed_still(state: State[S], looks_on: bool) -> bool:
    """Behind a closed job come its last audit and games: whoever starts again has to play them."""
    view, me = state.view, state.me
    if is_over(view, state.now):
        return False
    holders = (*view.providers.values(), *view.verifiers.values())
    parties = {*(h.account for h in holders), *(g.challenger for g in view.games.values())}
    return looks_on or me in parties


def has_material(state: State[S]) -> bool:
    """Whether everything that a round needs, beside the model, is in the store."""
    return isinstance(state.entries.of(DoFetchData), DataReady) and refusal(state.entries) is None


def spec_of(entries: Entries) -> bytes | None:
    """The job's manifest in bytes, once it is here and fits this machine."""
    fetched = entries.of(DoFetchSpec)
    return fetched.manifest if isinstance(fetched, SpecReady) else None


def manifest_of(entries: Entries) -> Manifest | None:
    """The job's manifest, once it is here and fits this machine."""
    spec = spec_of(entries)
    return None if spec is None else _parse(spec)


def refusal(entries: Entries) -> JobRefused | None:
    """Why the job is not for this machine; None where it is, or is not known yet."""
    fetched = (entries.of(DoFetchSpec), entries.of(DoFetchData))
    return next((entry for entry in fetched if isinstance(entry, JobRefused)), None)


@lru_cache(maxsize=64)
def _parse(data: bytes) -> Manifest:
    return Manifest.from_bytes(data)
