"""A whole job in a token as USDC is: six decimals, and a hundredth of one for a million tokens."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.conftest import Runner

from atoll.chain.deployment import Deployment
from atoll_devnet.run.options import RunOptions


async def test_a_whole_job_is_paid_a_hundredth_of_a_token_for_a_million(
    options: Callable[..., RunOptions], play: Runner
) -> None:
    job = {"inner.segment": 4, "money.price_per_million": "0.01"}
    chosen = options(job, beginning=None)
    report = await play(chosen)
    made = Deployment.load(chosen.folder / "submitter" / "deployment.json")
    assert made.decimals == 6
    tokens = 4 * report["job"]["tokens_per_step"]
    pay = int(report["job"]["segment_pay_wei"])
    assert pay == -(-tokens * 10_000 // 10**6)
    assert report["job"]["status"] == "done"
    trained = int(report["money"]["paid_for_wei"]["training"])
    assert trained == 2 * 4 * 2 * pay  # rounds, seats, segments
    # Fees are rounded up to a unit, and are no less than one.
    assert int(report["money"]["paid_wei"]) > trained
    assert int(report["money"]["refunded_wei"]) > 0
