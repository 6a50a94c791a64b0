"""A network of real processes on Anvil, with a small job: a submitter that serves, and members.

Nothing of the job room is needed: the manifest is written down in `tests.support.small_job`. Member
i has seat or slot i. Windows in which everybody only waits are skipped. A hostile stranger comes
with the first job, and each of its deeds has to have happened (`atoll_devnet.run.stranger`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.merging import all_standing
from tests.support.small_job import numerics_of_members, small_manifest, with_program

from atoll.aggregation.merge_round import merge_updates
from atoll.chain.deploy import DeployConfig
from atoll.numerics.state import GlobalState
from atoll.numerics.state_layout import max_state_bytes
from atoll.protocol.canonical import dag_cbor_cid
from atoll.protocol.certificates import CertificateKind
from atoll.protocol.holders import Holder
from atoll.protocol.keeper_calls import KeeperCallKind, keeper_calls
from atoll.protocol.manifest import Manifest, NumericsSpec
from atoll.protocol.pay import budget
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Address, Digest, JobId, MissedDuty, Phase, Role
from atoll.protocol.views import JobView
from atoll.service.background_tasks import background_tasks
from atoll.service.duties.send_keeper_calls import is_over
from atoll.service.session import Session, SessionConfig, open_session
from atoll.storage.cid import DAG_CBOR, Cid
from atoll.storage.local import LocalStore
from atoll.storage.storage import StoreConfig
from atoll.train.evaluate import evaluate
from atoll.train.initial_model import open_initial_state
from atoll.train.probe import pin_torch
from atoll.train.round import train_round
from atoll.train.seat_task import TrainTask
from atoll.train.stored_states import read_global_state
from atoll_devnet.processes.cluster import Cluster, ClusterConfig, Member
from atoll_devnet.run.skipping import skipping
from atoll_devnet.run.stranger import Before, hostile_network

POLL_SECONDS = 0.3
LATE = {KeeperCallKind.SETTLE_CONTEST, KeeperCallKind.PENALISE_SEAT, KeeperCallKind.PENALISE_MEMBER}
"""What may still be due when a job is over, and moves money."""
A_DAY = 86_400
TERMS: Mapping[str, Any] = {
    "rounds": 1,
    "min_providers": 4,
    "min_verifiers": 2,
    "train_seconds": 900,
    "reveal_seconds": 240,
    "merge_seconds": 360,
    "audit_seconds": 360,
    "open_seconds": 160,
    "key_seconds": 160,
    "window_seconds": 1600,
    "ready_seconds": 1800,
    "game_seconds": 480,
}
"""Long enough for a machine that has forty things to do: what is left of a window is skipped."""


@dataclass(frozen=True)
class Site:
    """Where a network is made, and the folder whose first blocks, contracts and keys it takes."""

    folder: Path
    beginning: Path


@dataclass(frozen=True)
class Who:
    """How many take part, and who of them cheats how; of outsiders all, "" is an honest one.

    Attributes:
        owned: providers whose stake and pay are the submitter's, once it accepts.
        ranks: of members that have several, by name.
        deployment: contracts of their own; None: those of the site's beginning.
    """

    providers: Mapping[int, str] = field(default_factory=dict)
    verifiers: Mapping[int, str] = field(default_factory=dict)
    watchers: tuple[str, ...] = ()
    owned: tuple[int, ...] = ()
    ranks: Mapping[str, int] = field(default_factory=dict)
    seats: int = 4
    slots: int = 3
    deployment: DeployConfig | None = None

    def config(self, site: Site) -> ClusterConfig:
        return ClusterConfig(
            folder=site.folder / "net",
            beginning=site.beginning if self.deployment is None else None,
            deployment=self.deployment,
            providers=self.seats,
            verifiers=self.slots,
            watchers=len(self.watchers),
            provider_cheats=self.providers,
            verifier_cheats=self.verifiers,
            watcher_cheats={i: cheat for i, cheat in enumerate(self.watchers) if cheat},
            confirmations=0,
            owned=self.owned,
            ranks=self.ranks,
        )


@dataclass(frozen=True)
class Asked:
    """What a job asks for that is another thing than usual.

    Attributes:
        numerics: None for this release's.
        inner: fields of its inner optimisation.
    """

    numerics: NumericsSpec | None = None
    inner: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Network:
    """What runs.

    Attributes:
        view, now: the job and the clock, as of the last look.
    """

    cluster: Cluster
    session: Session
    job: JobId
    manifest: Manifest
    view: JobView | None = None
    now: int = 0

    def provider(self, seat: int) -> Holder:
        """Who held a seat first."""
        return self._held(Role.PROVIDER, self.cluster.providers[seat])

    def verifier(self, slot: int) -> Holder:
        """Who held a slot first."""
        return self._held(Role.VERIFIER, self.cluster.verifiers[slot])

    def _held(self, role: Role, member: Member) -> Holder:
        assert self.view is not None
        holders = self.view.holders(role).values()
        return next(h for h in holders if h.account == member.account)

    def paid(self, holder: Holder) -> int:
        """Wei that its account was sent, credits included."""
        assert self.view is not None
        return self.view.paid.get(holder.account, 0)

    async def losses(self) -> tuple[float, float]:
        """Held-out losses of round 0's merge: as certified, and had every seat been honest."""
        assert self.view is not None
        settled_round, job, store = self.view.settled[0], self.manifest, self.session.store
        cid = Cid.from_bytes(settled_round.verdict.cid)
        await self.session.fetcher_of(self.job).fetch(cid, max_state_bytes(job), [])
        certified = read_global_state(job, settled_round.verdict.cid, store)
        honest = honest_merge(job, settled_round, store)
        return evaluate(certified.params, job, store), evaluate(honest.params, job, store)

    async def until(self, reached: Callable[[JobView, int], bool]) -> JobView:
        """Follows the job until something is so."""
        try:
            while True:
                self.cluster.check()
                await self.session.follower.poll()
                self.view = self.session.follower.views.get(self.job)
                self.now = (await self.session.chain.head()).timestamp
                if self.view is not None and reached(self.view, self.now):
                    return self.view
                await asyncio.sleep(POLL_SECONDS)
        except BaseException as error:  # pytest's end of a test that hangs among them
            phase = None if self.view is None else (self.view.phase, self.view.round)
            error.add_note(f"the job is in {phase}")
            raise


@asynccontextmanager
async def network(
    site: Site,
    who: Who,
    kind: CertificateKind = CertificateKind.ECDSA,
    *,
    lasts: int = A_DAY,
    before: Before = lambda _: nullcontext(),
    asked: Asked = Asked(),
    **terms: Any,
) -> AsyncIterator[Network]:
    """Everything started and a job created, of `TERMS` with these changes.

    Args:
        kind: of its certificates.
        lasts: seconds of the chain's clock until the job's expiry.
        before: what is entered before any member starts.
        asked: of the job's manifest, beside terms.
    """
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(hostile_network(who.config(site), before))
        session = await stack.enter_async_context(open_session(submitter_of(cluster)))
        job, manifest = await _create(
            session, {**TERMS, **terms}, kind=kind, asked=asked, lasts=lasts
        )
        await stack.enter_async_context(skipping(cluster, print))
        yield Network(cluster, session, job, manifest)


def submitter_of(cluster: Cluster) -> SessionConfig:
    """Whose session creates jobs."""
    folder = cluster.submitter_folder
    return SessionConfig(
        rpc_urls=(cluster.chain.rpc_url,),
        deployment=cluster.deployment,
        folder=folder,
        store=StoreConfig(folder / "store"),
        account=cluster.submitter,
        confirmations=0,
    )


async def _create(
    session: Session,
    terms: Mapping[str, Any],
    *,
    kind: CertificateKind,
    asked: Asked,
    lasts: int,
) -> tuple[JobId, Manifest]:
    """A small job of these terms, whose submitter serves its content."""
    store = session.store
    now = (await session.chain.head()).timestamp
    numerics = asked.numerics or numerics_of_members()
    manifest = small_manifest(store, numerics, asked.inner, **{"expiry": now + lasts, **terms})
    manifest = with_program(manifest, store)
    await submit(session, manifest, kind)
    return JobId(1), manifest


async def another_job(running: Network, **terms: Any) -> Network:
    """One more job on the same network, of `TERMS` with these changes, by the same submitter.

    What members compute and keep of the earlier one may go on beside it.
    """
    session = running.session
    now = (await session.chain.head()).timestamp
    changed = {**TERMS, "expiry": now + A_DAY, **terms}
    manifest = small_manifest(session.store, numerics_of_members(), **changed)
    manifest = with_program(manifest, session.store)
    await submit(session, manifest)
    await session.follower.poll()
    cid = dag_cbor_cid(manifest.digest())
    jobs = session.follower.views  # a stranger's among them
    (job,) = (job for job, view in jobs.items() if view.spec_cid == cid)
    return replace(running, job=job, manifest=manifest, view=None)


async def submit(
    session: Session, manifest: Manifest, kind: CertificateKind = CertificateKind.ECDSA
) -> None:
    """Creates a job; its content lies in the session's store."""
    chain, gateway = session.chain, await session.serve()
    cid = session.store.add_block(manifest.to_bytes(), DAG_CBOR).to_bytes()
    calls, addresses, funding = chain.calls, chain.deployment.addresses, budget(manifest.terms)
    spec = (Digest(manifest.digest()), cid)
    made = {
        "announce": calls.announce_gateway(gateway.url),
        "approve": calls.approve(addresses["Jobs"], funding),
        "create": calls.create(*spec, manifest.terms, addresses[kind.policy], funding),
    }
    async with background_tasks([session.queue.run()]):
        for key, call in made.items():
            await session.queue.execute(f"{key} {spec[0].hex()}", call)


def honest_merge(job: Manifest, settled_round: SettledRound, store: LocalStore) -> GlobalState:
    """What round 0 would have come to with every seat honest and everything there."""
    pin_torch()
    model = open_initial_state(job, store)
    cid = store.add_pieces(model.pieces()).to_bytes()
    tasks = [
        TrainTask(job, settled_round.round_id, seat, settled_round.record.seed, cid)
        for seat in settled_round.seats
    ]
    updates = {task.seat: train_round(task, store).update for task in tasks}
    record = all_standing(updates, job)
    merged = merge_updates(
        model, updates, record=record, data_seed=settled_round.record.seed, manifest=job
    )
    return merged.moves(read_global_state(job, cid, store), job)


def is_decided(view: JobView, now: int) -> bool:
    """The job is closed and nothing can change what anybody is owed."""
    return view.phase is Phase.CLOSED and is_over(view, now)


def is_settled_up(view: JobView, now: int) -> bool:
    """Everybody who was not slashed is paid, too, and has its bond back."""
    standing = {(h.role, h.id): h for h in everybody(view) if not h.is_slashed}
    is_paid = not any(view.credits.values()) and not any(
        (item.role, item.holder) in standing
        if item.call is KeeperCallKind.CLAIM
        else item.call in LATE
        for item in keeper_calls(view, now)
    )
    return is_decided(view, now) and is_paid and all(h.is_released for h in standing.values())


def everybody(view: JobView) -> list[Holder]:
    return [*view.providers.values(), *view.verifiers.values()]


def kinds(holder: Holder) -> set[MissedDuty]:
    """What it was penalised for."""
    return {kind for _, kind in holder.penalties}


def slashed(view: JobView) -> set[Address]:
    return {h.account for h in everybody(view) if h.is_slashed}
