"""Jobs one after another on one network, of members who are all honest.

Nobody is accused, whatever is trained; training that diverges costs nobody a bond; a job that gets
no better ends early; and the held-out curve is what committees certify, what the command shows and
what anybody computes, also where somebody joins late, who opens its round with what everybody has.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.e2e.test_chaos import reached

from atoll.job.asking import asking
from atoll.job.prepare_manifest import with_program
from atoll.protocol.losses import loss_bytes
from atoll.protocol.manifest import InitSpec, Manifest
from atoll.protocol.types import JobStatus, Phase, Role, SeatIndex, bits
from atoll.protocol.views import JobView
from atoll.storage.cid import Cid
from atoll_devnet.report.live import Display
from atoll_devnet.report.observer import INITIAL
from atoll_devnet.run.options import RunOptions
from atoll_devnet.run.runner import Result, Running, another_job, finish, is_over, start

from .conftest import check_ledger

Options = Callable[..., RunOptions]
LATE = SeatIndex(3)
ROUNDS = 3
DIVERGES = {"inner.lr": 1000, "inner.steps": 16, "inner.segment": 2, "rounds": 1}
"""One round, since a second one that is short would be a missed duty."""
GETS_NO_BETTER = {"evaluate.patience": 1, "evaluate.least_gain": 50, "rounds": 12}
CURVE = {"rounds": ROUNDS, "members.seats": 4, "members.min_providers": 3, "audit.rate": 1}


@dataclass(frozen=True)
class Jobs:
    """A network, by its first job, and what makes options of others."""

    first: Running
    options: Options

    @asynccontextmanager
    async def one_more(
        self, name: str, job: dict[str, Any]
    ) -> AsyncIterator[tuple[Running, RunOptions]]:
        """A job with these changes, and options whose folder is its own."""
        chosen = self.options(job=job, providers=3, verifiers=2)
        chosen = replace(chosen, folder=chosen.folder / name)
        chosen.folder.mkdir()
        async with another_job(self.first, chosen.job) as running:
            yield running, chosen


async def test_honest_members_lose_nothing_by_any_of_several_jobs(
    options: Options, display: Display
) -> None:
    async with start(options(job={"rounds": 1}, providers=3, verifiers=2), display) as first:
        await first.observer.run(is_over)
        check_nobody_is_accused(first.observer.view)
        jobs = Jobs(first, options)
        for seed in range(1, 3):
            check_nobody_is_accused(await view_of_seed(first, seed))
        await check_diverging(jobs)
        await check_early_end(jobs)
        await check_curve(jobs)


def check_nobody_is_accused(view: JobView | None) -> None:
    assert view is not None
    (settled_round,) = view.settled
    assert (settled_round.record.available, settled_round.verdict.merged) == (0b111, 3)
    entries = [entry for body in settled_round.opened_reports.values() for entry in body.entries]
    assert {entry.seat for entry in entries} == {0, 1, 2}
    assert all(entry.is_valid for entry in entries)
    assert not any(h.penalties for h in (*view.providers.values(), *view.verifiers.values()))


async def view_of_seed(first: Running, seed: int) -> JobView | None:
    """What becomes of the same job that begins with other weights."""
    manifest = Manifest.from_bytes(first.observer.watched.manifest)
    other = manifest.model_copy(update={"init": InitSpec.drawn(seed)})
    async with asking(first.client.ask) as ask:
        made = await with_program(other, first.client.store, ask)
    async with another_job(first, made) as running:
        await running.observer.run(is_over)
        return running.observer.view


async def check_diverging(jobs: Jobs) -> None:
    """It merges nothing and costs nobody a bond."""
    async with jobs.one_more("diverges", DIVERGES) as (running, chosen):
        await running.observer.run(is_over)
        report = (await finish(running, chosen)).report
    check_ledger(report)
    parties = [*report["providers"], *report["verifiers"]]
    assert all(party["slashed_wei"] == "0" for party in parties)
    (only,) = report["rounds"]
    assert (only["merged"], only["accusations"]) == (0, [])


async def check_early_end(jobs: Jobs) -> None:
    """A job that gets no better ends early and pays back."""
    async with jobs.one_more("early", GETS_NO_BETTER) as (running, chosen):
        observing = asyncio.create_task(running.observer.run(is_over))
        snapshot = await running.job.wait()
        await observing
        report = (await finish(running, chosen)).report
    check_ledger(report)
    assert snapshot.status is JobStatus.CANCELLED
    assert 1 <= snapshot.settled_rounds < 12
    assert int(report["money"]["refunded_wei"]) > snapshot.funded_wei // 3


async def check_curve(jobs: Jobs) -> None:
    """The curve is the same for everybody, and who joins late opens as everybody."""
    async with jobs.one_more("curve", CURVE) as (running, chosen):
        await running.observer.run(reached(0, Phase.TRAIN))
        running.cluster.add(Role.PROVIDER).process.start()
        await running.observer.run(is_over)
        view, curve = running.observer.view, (await _status(running))["curve"]
        losses = running.observer.losses
        result: Result = await finish(running, chosen)
    check_ledger(result.report)
    assert view is not None
    _check_late(view)
    _check_card(result.folder / "result", view)
    _check_curve(curve, losses, view)


def _check_late(view: JobView) -> None:
    """Its last round was drawn, replayed from public data alone, and found to be right."""
    first, last = view.settled[0], view.settled[-1]
    assert LATE not in first.reveals
    assert bits(last.drawn) == [0, 1, 2, 3]
    entries = [
        entry
        for body in last.opened_reports.values()
        for entry in body.entries
        if entry.seat == LATE
    ]
    assert entries
    assert all(entry.is_valid for entry in entries)


def _check_curve(curve: Any, losses: Any, view: JobView) -> None:
    """The model after r merges is certified with the loss that anybody computes."""
    *certified, last = curve
    assert [item["merged"] for item in curve] == list(range(ROUNDS + 1))
    for item in certified:
        computed = losses[item["merged"] - 1 if item["merged"] else INITIAL]
        assert item["held_out_loss"] == computed
        assert item["bits"] == loss_bytes(computed).hex()
        assert item["bits"] == view.settled[item["merged"]].verdict.loss.hex()
    assert last["held_out_loss"] is None  # no later round's committee has evaluated it
    for before, after in pairwise(certified):
        assert after["held_out_loss"] < before["held_out_loss"]


def _check_card(folder: Path, view: JobView) -> None:
    """Every number of the model card is the chain's."""
    told, text = json.loads((folder / "card.json").read_text()), (folder / "README.md").read_text()
    assert (told["chain_id"], told["job"]) == (view.domain.chain_id, view.job_id)
    assert told["rounds_contract"] == view.domain.rounds
    assert told["spec_digest"] == view.spec_digest.hex() in text
    for item, settled_round in zip(told["rounds"], view.settled, strict=True):
        assert item["model_digest"] == settled_round.verdict.state.hex() in text
        assert Cid.parse(item["model_cid"]).to_bytes() == settled_round.verdict.cid
    for holder in (*view.providers.values(), *view.verifiers.values()):
        assert str(holder.account) in text


async def _status(running: Running) -> Any:
    """What the command says, in a process of its own, of a home that others use."""
    options = {
        "--rpc": running.cluster.chain.rpc_url,
        "--deployment": running.cluster.submitter_folder / "deployment.json",
        "--home": running.client.home,
    }
    words = [str(word) for pair in options.items() for word in pair]
    program = [sys.executable, "-m", "atoll.cli.main", "job", "status", str(running.job.id)]
    done = await asyncio.to_thread(
        subprocess.run, [*program, *words, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
