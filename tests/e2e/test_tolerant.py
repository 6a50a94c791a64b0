"""A tolerant job: work that is out of tolerance earns nothing and costs no bond."""

from __future__ import annotations

from collections.abc import Callable

from atoll_devnet.run.options import RunOptions

from .conftest import Runner, faults, provider

Options = Callable[..., RunOptions]
MEMBERS = {"members.min_verifiers": 2, "members.attempts": 2}
LAZY = 2


async def test_lazy_work_is_audited_twice_then_not_paid_and_not_slashed(
    options: Options, play: Runner
) -> None:
    job = {"audit.numerics": "tolerant", "rounds": 1, **MEMBERS}
    report = await play(options(job=job, providers=3, cheats={LAZY: "lazy"}))
    assert report["job"]["status"] == "done"
    (settled,) = report["rounds"]
    assert (settled["accepted"], settled["voids"]) == ([0, 1], ["Unresolved"])
    lazy = provider(report, LAZY)
    assert (lazy["paid_wei"], lazy["slashed_wei"]) == ("0", "0")
    assert (lazy["accepted_rounds"], faults(report, LAZY)) == (0, set())
    for seat in (0, 1):
        assert int(provider(report, seat)["paid_wei"]) > 0
        assert provider(report, seat)["slashed_wei"] == "0"
    assert all(int(v["paid_wei"]) > 0 and v["slashed_wei"] == "0" for v in report["verifiers"])
