"""A job that was really trained and merged, on the contracts written as one object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar, cast

from tests.support.identities import DOMAIN, digest
from tests.support.small_job import small_manifest
from tests.unit.protocol.script import Script

from atoll.chain.indexed import Indexed
from atoll.chain.structs import Escrow
from atoll.errors import NotFound
from atoll.job.handle import JobHandle
from atoll.job.ledger.ledger import Ledger
from atoll.protocol.checkpoint_commitments import CheckpointCommitments, key_hash
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeTerms, candidates
from atoll.protocol.reset_periods import earlier_rounds
from atoll.protocol.types import (
    Digest,
    HolderId,
    Reveal,
    Role,
    RoundId,
    RoundIndex,
    SeatIndex,
    Verdict,
)
from atoll.service import tasks
from atoll.service.duties.merge import DoMerge
from atoll.service.duties.updates import RevealedUpdate
from atoll.service.task import TaskCall
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.earlier import EarlierRound
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import TrainTask

R = TypeVar("R")
Change = Callable[[TrainedRound], TrainedRound]


class InProcess:
    """A worker without a process."""

    async def run(self, call: TaskCall[R]) -> R:
        return call()

    def kill(self) -> None:
        return


@dataclass
class Gateways:
    """Everything is in the store; what is gone, nobody serves."""

    gone: set[bytes] = field(default_factory=set)

    async def fetch(self, cid: Cid, most: int) -> None:
        if cid.to_bytes() in self.gone:
            raise NotFound("nobody has it")

    async def fetch_spans(self, cid: Cid, most: int, spans: Sequence[slice]) -> None:
        await self.fetch(cid, most)


@dataclass
class TrainedJob:
    """What an outsider sees of it: a chain's events, and what gateways still serve.

    Attributes:
        changes: what seats reveal instead of what they trained.
        verdicts: what committees certify instead of what they merged.
        models, merged: CIDs of each round's next model, as certified and as it is.
    openings: CIDs of what the rounds opened with.
    """

    store: LocalStore
    manifest: Manifest
    script: Script
    initial_state: bytes
    gateways: Gateways = field(default_factory=Gateways)
    changes: dict[int, Change] = field(default_factory=dict)
    verdicts: Callable[[Verdict], Verdict] = lambda verdict: verdict
    updates: dict[tuple[int, int], bytes] = field(default_factory=dict)
    models: list[bytes] = field(default_factory=list)
    merged: list[bytes] = field(default_factory=list)
    openings: list[bytes] = field(default_factory=list)

    @classmethod
    def begin(cls, folder: Path, rounds: int, reset_period: int = 1) -> TrainedJob:
        """Members are there, and nothing is open.

        Args:
            reset_period: of a streaming job; 1 of one that carries nothing.
        """
        store = LocalStore(folder / "store")
        manifest = small_manifest(store, rounds=rounds, seats=4)
        if reset_period > 1:
            codec = manifest.codec.model_copy(update={"fragments": 2, "overlap": 2})
            manifest = manifest.model_copy(update={"codec": codec, "reset_period": reset_period})
        initial_state = tasks.make_initial_state(manifest.to_bytes(), str(store.root)).cid
        return cls(store, manifest, Script.ready(manifest.terms), initial_state)

    def round(self) -> int:
        """Trains, merges, and settles."""
        script, net = self.script, self.script.net
        if not net.seated:
            net.advance()
        round = net.round
        self.openings.append(self.initial_state)
        for seat in sorted(net.waited):
            self._commit(seat)
        for seat in sorted(net.waited):
            script.reveal(seat)
        script.say()
        net.wait(1)
        own = self._merge()
        verdict = self.verdicts(own)
        net.verdict = lambda excluded, merged: verdict  # type: ignore[method-assign]
        net.settle(set(net.committee), set(), verdict.merged)
        self.initial_state = verdict.cid
        self.models.append(verdict.cid)
        self.merged.append(own.cid)
        return round

    def _round_id(self) -> RoundId:
        running = self.script.net.view.open
        assert running is not None
        return running.round_id

    def _commit(self, seat: int) -> None:
        script, net = self.script, self.script.net
        seed = SeatIndex(seat), Digest(net.seed)
        task = TrainTask(self.manifest, self._round_id(), *seed, self.initial_state)
        done = train_round(replace(task, earlier=self._earlier(SeatIndex(seat))), self.store)
        done = self.changes.get(seat, lambda it: it)(done)
        key, update = digest(f"key {net.round} {seat}"), self.store.add_bytes(done.update)
        self.updates[net.round, seat] = update.to_bytes()
        checkpoint_commitments = CheckpointCommitments.of(
            done.states, done.work_tags, key
        ).to_bytes()
        salt = digest(f"salt {net.round} {seat}")
        reveal = Reveal(
            done.update_root, key_hash(key), salt, checkpoint_commitments, update.to_bytes()
        )
        script.reveals[seat] = reveal
        script.secrets[net.round, seat] = (key, list(done.work_tags))
        who = script.account(seat)
        net.commit(who, net.commitment(who, seat, reveal))

    def _earlier(self, seat: SeatIndex) -> tuple[EarlierRound, ...]:
        view, held = self.script.net.view, self.script.net.at(Role.PROVIDER, seat, 0).id
        here = RoundIndex(self.script.net.round)
        rounds = earlier_rounds(view, self.manifest, here, seat, HolderId(held))
        seeds = (view.settled[round].record.seed for round in rounds)
        return tuple(map(EarlierRound, rounds, seeds, (self.openings[r] for r in rounds)))

    def _merge(self) -> Verdict:
        running = self.script.net.view.open
        assert running is not None
        record = running.merge_record
        told = [
            (s, running.reveals[s].reveal) for s in candidates(record, MergeTerms.of(self.manifest))
        ]
        updates = tuple(RevealedUpdate(s, item.update_cid, item.update_root) for s, item in told)
        args = (record, updates, self.manifest.to_bytes(), self.initial_state)
        return tasks.merge_round(
            DoMerge(running.round_id, running.seed, *args), str(self.store.root)
        )

    def handle(self) -> JobHandle:
        """The job as `audit` uses it."""
        net = self.script.net
        log = [Indexed(event, block, i) for i, (event, block) in enumerate(net.log)]
        balance = net.funded - net.claimed - net.burnt - net.refunded

        async def escrow(job: int, block: str) -> Escrow:
            assert block == hex(net.number)
            return Escrow(net.funded, net.claimed, net.refunded, net.burnt, balance)

        follower = SimpleNamespace(history=lambda *_: tuple(log), confirmed=net.number)
        client = SimpleNamespace(
            store=self.store,
            deployment=SimpleNamespace(domain=DOMAIN),
            session=SimpleNamespace(follower=follower),
            chain=SimpleNamespace(escrow=escrow),
            fetcher_of=lambda job: self.gateways,
        )

        async def view() -> object:
            return net.view

        async def ledger() -> Ledger:
            return Ledger.of(net.view, follower.history(), net.now)

        async def manifest() -> Manifest:
            return self.manifest

        told = {"view": view, "ledger": ledger, "manifest": manifest}
        handle = SimpleNamespace(client=client, id=net.job, **told)
        return cast(JobHandle, handle)


def lies_at(segment: int) -> Change:
    """A leaf that no step gave."""

    def change(done: TrainedRound) -> TrainedRound:
        states = list(done.states)
        states[segment] = digest("made up")
        return replace(done, states=tuple(states))

    return change
