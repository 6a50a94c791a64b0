"""All members are gone for three windows; they come back, take seats again, and end the job."""

from __future__ import annotations

from pathlib import Path

from tests.network.members import TERMS, Who, fallen, is_settled_up, kinds, network

from atoll.protocol.holders import Holder
from atoll.protocol.pay import round_pay
from atoll.protocol.views import JobView
from atoll.protocol.words import JobStatus, Miss, Phase

WINDOWS = ("train_seconds", "reveal_seconds", "merge_seconds")


async def test_everybody_offline_for_three_windows_and_back(tmp_path: Path) -> None:
    async with network(tmp_path, Who(), rounds=2, steps=64, segment_steps=16) as running:
        await running.until(_is_training)
        members = list(running.cluster.members)
        for member in members:
            member.process.kill()
        assert running.view is not None and running.view.open is not None
        assert not running.view.open.reveals
        await running.cluster.chain.rpc("evm_increaseTime", sum(TERMS[name] for name in WINDOWS))
        await running.cluster.chain.rpc("evm_mine")
        for member in members:
            member.process.start()
        view = await running.until(is_settled_up)
        terms, paid = running.manifest.terms, dict(view.paid)

    assert view.status is JobStatus.DONE and len(view.settled) == 2
    assert fallen(view) == set()
    assert all(past.verdict.merged for past in view.settled)
    earned: dict[str, int] = {}
    for holder in (*view.providers.values(), *view.verifiers.values()):
        # A miss of a seat costs its cut, once; verifiers owed nothing in a void round.
        assert kinds(holder) <= {Miss.SEAT}
        assert len(holder.cuts) <= 1
        pay = sum(round_pay(terms, past, holder) for past in view.settled)
        earned[holder.account] = earned.get(holder.account, 0) + pay
    assert {account: amount for account, amount in earned.items() if amount} == paid
    assert any(_has_missed(holder) for holder in view.providers.values())


def _is_training(view: JobView, now: int) -> bool:
    return view.phase is Phase.TRAIN and view.open is not None and bool(view.open.block.timestamp)


def _has_missed(holder: Holder) -> bool:
    return Miss.SEAT in kinds(holder)
