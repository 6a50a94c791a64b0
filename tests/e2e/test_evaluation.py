"""The held-out curve: what committees certify, what the command shows, what anybody computes.

On a network that somebody joins late, who opens its round with what everybody has.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.e2e.test_chaos import reached

from atoll.protocol.losses import loss_bytes
from atoll.protocol.types import JobStatus, Phase, Role, SeatIndex, bits
from atoll.protocol.views import JobView
from atoll.storage.cid import Cid
from atoll_devnet.report.live import Display
from atoll_devnet.report.observer import INITIAL
from atoll_devnet.run.options import RunOptions
from atoll_devnet.run.runner import Running, finish, is_over, start

from .conftest import check_ledger

LATE = SeatIndex(3)
ROUNDS = 3


async def test_the_curve_is_the_same_for_everybody_and_who_joins_late_opens_as_everybody(
    tmp_path: Path, options: Callable[..., RunOptions], display: Display
) -> None:
    chosen = options(
        job={"rounds": ROUNDS, "members.seats": 4, "members.min_providers": 3, "audit.rate": 1},
        providers=3,
        verifiers=2,
    )
    async with start(chosen, display) as running:
        await running.observer.run(reached(0, Phase.TRAIN))
        running.cluster.add(Role.PROVIDER).process.start()
        await running.observer.run(is_over)
        view, curve = running.observer.view, (await _status(running))["curve"]
        losses = running.observer.losses
        result = await finish(running, chosen)
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
    said = [
        entry
        for body in last.opened_reports.values()
        for entry in body.entries
        if entry.seat == LATE
    ]
    assert said
    assert all(entry.is_valid for entry in said)


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


async def test_a_job_that_gets_no_better_ends_early_and_pays_back(
    options: Callable[..., RunOptions], display: Display
) -> None:
    stale = {"evaluate.patience": 1, "evaluate.least_gain": 50, "rounds": 12}
    chosen = options(job=stale, providers=3, verifiers=1)
    async with start(chosen, display) as running:
        observing = asyncio.create_task(running.observer.run(is_over))
        snapshot = await running.job.wait()
        await observing
        report = (await finish(running, chosen)).report
    check_ledger(report)
    assert snapshot.status is JobStatus.CANCELLED
    assert 1 <= snapshot.settled_rounds < 12
    assert int(report["money"]["refunded_wei"]) > snapshot.funded_wei // 3


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
