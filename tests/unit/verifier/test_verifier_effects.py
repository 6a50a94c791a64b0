"""What a verifier makes of what it can and cannot fetch: missing is not malformed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.law.factories import (
    SEAT,
    SLOT,
    ScriptedJob,
    address,
    digest,
    make_manifest,
    make_trace,
)

from atoll.content.cid import DAG_CBOR, DAG_PB, Cid
from atoll.content.errors import MalformedDag
from atoll.content.local import LocalStore
from atoll.content.storage import Storage
from atoll.errors import NotFound, ProtocolError, TooLarge
from atoll.law.held_out import HeldOut, loss_bytes, note_name
from atoll.law.merge_inputs import MergeFacts
from atoll.law.words import ZERO_DIGEST, Bitmap, Digest
from atoll.service.context import Context
from atoll.service.duties.opening import OpeningReady
from atoll.service.effects import Effects
from atoll.service.journal import AlreadySigned, Journal
from atoll_verifier.duties.ballot import Audited, BallotSigned, SignBallot
from atoll_verifier.duties.check import DoCheck
from atoll_verifier.duties.evaluate import DoEvaluate, Evaluated
from atoll_verifier.duties.merge import DoMerge, RoundMerged
from atoll_verifier.duties.replay import DoLink, DoReplay, SegmentReplayed
from atoll_verifier.duties.score import RevealedUpdate
from atoll_verifier.duties.take import BlockTaken, DoTake
from atoll_verifier.seatwork import SeatWork

MANIFEST = make_manifest()
VIEW = ScriptedJob(MANIFEST).view
DOCUMENT, REVEAL = make_trace(MANIFEST)


@dataclass
class Fetcher:
    """Fetches nothing; fails as the test says."""

    error: Exception | None = None
    asked: list[tuple[Cid, list[str]]] = field(default_factory=list)

    async def fetch(self, cid: Cid, max_bytes: int, prefer: list[str]) -> None:
        self.asked.append((cid, prefer))
        if self.error is not None:
            raise self.error


@dataclass
class Worker:
    result: Any = ""

    async def run(self, function: str, *args: object) -> Any:
        return self.result


@pytest.fixture
def context(tmp_path: Path) -> Any:
    store = LocalStore(tmp_path / "store")
    store.add_block(DOCUMENT.to_bytes(), DAG_CBOR)
    return SimpleNamespace(
        config=SimpleNamespace(store_dir=tmp_path / "store"),
        chain=SimpleNamespace(calls=None),
        store=store,
        storage=Storage(store, cast(Any, None), None, read_only=False),
        fetcher=(fetcher := Fetcher()),
        fetcher_of=lambda job: fetcher,
        worker=Worker(),
        journal=Journal(tmp_path / "journal.sqlite"),
    )


def effects(context: Any) -> Effects:
    return Effects(cast(Context, context))


def work() -> SeatWork:
    trace_cid = Cid.of(DOCUMENT.to_bytes(), DAG_CBOR).to_bytes()
    return SeatWork(
        slot=SLOT,
        seat=SEAT,
        reveal=replace(REVEAL, trace_cid=trace_cid),
        account=address("provider"),
        gateway="http://provider:1",
        data_seed=ZERO_DIGEST,
        manifest=MANIFEST.to_bytes(),
        opening=Cid.of(b"model").to_bytes(),
        params_root=digest("params"),
        optimiser_root=ZERO_DIGEST,
    )


@pytest.mark.parametrize("command", [DoCheck(work()), DoReplay(work(), 1), DoLink(work())])
async def test_what_nobody_serves_is_not_found(context: Any, command: Any) -> None:
    context.fetcher.error = NotFound("nobody")
    with pytest.raises(NotFound):
        await effects(context).run(VIEW, command)
    assert len(context.journal.read(VIEW.job_id)) == 0


@pytest.mark.parametrize("error", [TooLarge("too many bytes"), MalformedDag("not a file")])
async def test_what_cannot_be_what_it_claims_is_a_fault(context: Any, error: Exception) -> None:
    context.fetcher.error = error
    carrier = effects(context)
    checked = (await carrier.run(VIEW, DoCheck(work()))).fact
    replayed = (await carrier.run(VIEW, DoReplay(work(), 1))).fact
    linked = (await carrier.run(VIEW, DoLink(work()))).fact
    assert checked is not None and checked.fault == str(error)
    assert replayed is not None and replayed.differs == str(error)
    assert linked is not None and linked.fault == str(error)


async def test_a_reveal_whose_cid_is_none_is_a_fault(context: Any) -> None:
    broken = replace(work(), reveal=replace(work().reveal, update_cid=b"garbage"))
    checked = (await effects(context).run(VIEW, DoCheck(broken))).fact
    assert checked is not None and checked.fault


async def test_a_replay_asks_the_provider_first_and_is_measured(context: Any) -> None:
    account = work().account
    found = SegmentReplayed(account, "", digest("state"), digest("steps"), 5, 0.25)
    context.worker.result = found
    assert (await effects(context).run(VIEW, DoReplay(work(), 2))).fact == found
    assert context.journal.read(VIEW.job_id).of(DoReplay, *work().about, 2) == found
    ((cid, prefer),) = context.fetcher.asked
    assert cid.to_bytes() == DOCUMENT.states[2]
    assert prefer == ["http://provider:1"]
    measures = context.journal.measures()[VIEW.job_id][0]
    assert measures == {"replayed_steps": 5.0, "replayed_segments": 1.0, "replay_seconds": 0.25}


async def test_nobody_is_asked_for_the_state_that_every_seat_opens_with(context: Any) -> None:
    context.worker.result = SegmentReplayed(work().account, "", digest("s"), digest("w"), 5, 0.25)
    await effects(context).run(VIEW, DoReplay(work(), 0))
    assert context.fetcher.asked == []


async def test_the_update_of_a_diverged_seat_is_not_asked_for(context: Any) -> None:
    diverged = replace(work(), reveal=replace(work().reveal, steps=7))
    await effects(context).run(VIEW, DoCheck(diverged))
    asked = [cid.to_bytes() for cid, _ in context.fetcher.asked]
    assert asked == [diverged.reveal.trace_cid]


async def test_an_answer_is_stored_and_it_is_known_who_needed_it(context: Any) -> None:
    block = b"a node of a state"
    take = DoTake(Digest(sha256(block).digest()), block)
    for was_here in (False, True):
        assert (await effects(context).run(VIEW, take)).fact == BlockTaken(was_here)
    assert context.store.get_block(Cid(DAG_PB, take.digest)) == block


async def test_another_ballot_for_the_same_audit_is_never_signed(context: Any) -> None:
    carrier = effects(context)
    audited = Audited(SLOT, digest("seed"), "main")
    sign = SignBallot(audited, BallotSigned((), (), ZERO_DIGEST))
    await carrier.run(VIEW, sign)
    await carrier.run(VIEW, sign)
    other = replace(sign.said, replay_root=digest("other"))
    with pytest.raises(AlreadySigned):
        await carrier.run(VIEW, replace(sign, said=other))
    assert context.journal.read(VIEW.job_id).of(SignBallot, audited) == sign.said


class Together(Fetcher):
    """Ends no fetch before as many are under way as should be; of `failing`, one fails."""

    def __init__(self, at_once: int, failing: dict[Cid, Exception]) -> None:
        super().__init__()
        self.barrier, self.failing = asyncio.Barrier(at_once), failing
        self.running = self.most = 0
        self.ended: list[Cid] = []

    async def fetch(self, cid: Cid, max_bytes: int, prefer: list[str]) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.barrier.wait()
        self.running -= 1
        self.ended.append(cid)
        if cid in self.failing:
            raise self.failing[cid]


def merging_of(cids: list[Cid]) -> DoMerge:
    updates = [
        RevealedUpdate(seat, cid.to_bytes(), digest(f"{seat}")) for seat, cid in enumerate(cids)
    ]
    facts = MergeFacts(Bitmap(0xFF), Bitmap(0), Bitmap(0), 0, {})
    opening = Cid.of(b"model").to_bytes()
    return DoMerge(SLOT, MANIFEST.to_bytes(), opening, facts, ZERO_DIGEST, tuple(updates))


UPDATES = [Cid.of(b"update %d" % seat) for seat in range(8)]


async def test_a_merges_updates_are_fetched_four_at_a_time(context: Any) -> None:
    context.fetcher_of = lambda job: fetcher
    context.worker.result = merged = RoundMerged(Cid.of(b"next").to_bytes(), digest("next"))
    fetcher = Together(4, {UPDATES[1]: TooLarge("too many bytes"), UPDATES[6]: MalformedDag("no")})
    async with asyncio.timeout(20):
        done = await effects(context).run(VIEW, merging_of(UPDATES))
    assert done.fact == merged
    assert sorted(fetcher.ended, key=UPDATES.index) == UPDATES
    assert fetcher.most == 4


async def test_an_update_that_nobody_serves_stops_the_merge(context: Any) -> None:
    context.fetcher_of = lambda job: fetcher
    fetcher = Together(4, {UPDATES[2]: NotFound("nobody")})
    async with asyncio.timeout(20):
        with pytest.raises(NotFound, match="nobody"):
            await effects(context).run(VIEW, merging_of(UPDATES[:4]))
    assert sorted(fetcher.ended, key=UPDATES.index) == UPDATES[:4]
    assert len(context.journal.read(VIEW.job_id)) == 0


@dataclass
class Evaluator:
    """A worker that knows one model, and the losses of its batches."""

    model: Digest
    batches: list[tuple[list[float], list[int]]]

    async def run(self, function: str, *args: Any) -> Any:
        if function.endswith("inspect_state"):
            return OpeningReady(args[1], self.model, digest("params"), digest("moments"))
        return self.batches[args[2]]


HELD_OUT = {"eval_cid": Cid.of(b"held out").to_bytes(), "eval_tokens": 100, "eval_batches": 3}
EVALUATED = MANIFEST.model_copy(update={"data": MANIFEST.data.model_copy(update=HELD_OUT)})


def evaluating(context: Any, model: Digest) -> DoEvaluate:
    """The command; the model that is here has the digest."""
    context.worker = Evaluator(model, [([1.0, float(n)], [2, 1]) for n in range(3)])
    context.sign = lambda found: found + bytes(33)
    return DoEvaluate(3, digest("merged"), Cid.of(b"model").to_bytes(), EVALUATED.to_bytes(), 0.5)


async def test_a_model_is_evaluated_batch_after_batch_and_said_so(context: Any) -> None:
    done = await effects(context).run(VIEW, evaluating(context, digest("merged")))
    # In each of three batches two targets of 1 and one of n, and the half that a liar adds.
    assert done.fact == Evaluated(loss_bytes(1.0 + 0.5))
    note = context.journal.note(note_name(VIEW.job_id, 3))
    report, signature = HeldOut.from_bytes(note)
    assert (report.merged, report.model, report.loss) == (3, digest("merged"), loss_bytes(1.5))
    assert signature == report.digest + bytes(33)


async def test_a_model_that_is_not_the_verdicts_is_not_spoken_of(context: Any) -> None:
    command = evaluating(context, digest("another"))
    with pytest.raises(ProtocolError, match="another than its verdict's"):
        await effects(context).run(VIEW, command)
    assert context.journal.note(note_name(VIEW.job_id, 3)) is None
