"""The held-out curve: what verifiers say, what the command shows, what anybody computes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from atoll.content.cid import Cid
from atoll.law.held_out import loss_bytes, loss_of
from atoll.law.views import JobView
from atoll.law.words import JobStatus
from atoll_devnet.report.live import Display
from atoll_devnet.report.observer import INITIAL
from atoll_devnet.run.options import RunOptions
from atoll_devnet.run.runner import Running, finish, is_over, start

from .conftest import check_books


async def test_the_curve_is_the_same_for_everybody(
    tmp_path: Path, options: Callable[..., RunOptions], display: Display
) -> None:
    chosen = options(
        job={"audit.coverage": "0.1"},
        providers=3,
        verifiers=3,
        verifier_cheats={1: "false-loss"},
    )
    async with start(chosen, display) as running:
        await running.observer.run(is_over)
        async for _ in running.job.follow():
            continue
        curve = (await _status(running))["curve"]
        losses = running.observer.losses
        honest, liar = _verifiers(running, {0, 2}), _verifiers(running, {1})
        result = await finish(running, chosen)
        view = running.observer.view
    check_books(result.report)
    _check_card(result.folder / "result", view, curve)
    assert [item["merged"] for item in curve] == [0, 1, 2]
    for item in curve:
        computed = losses[item["merged"] - 1 if item["merged"] else INITIAL]
        assert item["bits"] == loss_bytes(computed).hex()
        assert item["held_out_loss"] == computed
        assert {item["verifiers"][who] for who in honest} == {item["bits"]}
        assert item["differing"] == liar
        assert loss_of(bytes.fromhex(item["verifiers"][liar[0]])) == computed - 0.125
    for before, after in pairwise(curve):
        assert after["change"] == after["held_out_loss"] - before["held_out_loss"] < 0
        assert [seat["seat"] for seat in after["seats"]] == [0, 1, 2]
        assert all(seat["steps"] == 8 and 0 < seat["loss"] < 6 for seat in after["seats"])


async def test_a_job_that_gets_no_better_ends_early_and_pays_back(
    options: Callable[..., RunOptions], display: Display
) -> None:
    stale = {"evaluate.patience": 1, "evaluate.least_gain": 50, "rounds": 12}
    chosen = options(job={"audit.coverage": "0.1"} | stale, providers=3, verifiers=3)
    async with start(chosen, display) as running:
        observing = asyncio.create_task(running.observer.run(is_over))
        snapshot = await running.job.wait()
        await observing
        refunded = await running.job.refund_when_due()
        report = (await finish(running, chosen)).report
    check_books(report)
    assert snapshot.status is JobStatus.CANCELLED
    assert 1 <= snapshot.settled_rounds < 12
    assert refunded > snapshot.funded_wei // 12
    assert report["escrow"]["balance_wei"] == "0"


def _check_card(folder: Path, view: JobView | None, curve: Any) -> None:
    """Every number of the model card is the chain's, or one that `status` told."""
    assert view is not None
    told, text = json.loads((folder / "card.json").read_text()), (folder / "README.md").read_text()
    assert told["curve"] == curve
    assert (told["chain_id"], told["job"]) == (view.domain.chain_id, view.job_id)
    assert told["rounds_contract"] == view.domain.rounds
    assert told["spec_digest"] == view.spec_digest.hex() in text
    assert told["slashes"] == []
    for item, past in zip(told["rounds"], view.settled, strict=True):
        assert item["model_digest"] == past.verdict.merged_digest.hex() in text
        assert Cid.parse(item["model_cid"]).to_bytes() == past.verdict.merged_cid
        assert item["tokens"] == past.verdict.tokens_total == sum(past.tokens)
        assert (item["accepted"], item["rejected"]) == ([0, 1, 2], [])
        assert item["verifiers"] == list(past.verifiers.values())
    trained = {m["account"]: m["tokens"] for m in told["members"] if m["role"] == "provider"}
    terms = view.require_terms()
    for account, tokens in trained.items():
        assert tokens * terms.price_per_token == view.claims[account]
        assert str(account) in text


async def _status(running: Running) -> Any:
    """What the command says, in a process of its own, of a home that others use."""
    options = {
        "--rpc": running.cluster.chain.rpc_url,
        "--deployment": running.cluster.submitter_folder / "deployment.json",
        "--home": running.client.config.home,
    }
    words = [str(word) for pair in options.items() for word in pair]
    program = [sys.executable, "-m", "atoll.cli.main", "job", "status", str(running.job.id)]
    done = await asyncio.to_thread(
        subprocess.run, [*program, *words, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _verifiers(running: Running, chosen: set[int]) -> list[str]:
    """The accounts of these verifiers of the network."""
    return [str(running.cluster.verifiers[index].account) for index in sorted(chosen)]
