"""Every cheat by name, replayed in full: what the law says of it is what happens to it.

Several cheats share a network where they can be told apart; at most half of the revealed seats
cheat, since more would break the circuit.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from atoll_devnet.cheats import PROVIDER_CHEATS, VERIFIER_CHEATS
from atoll_devnet.run.options import RunOptions

from .conftest import Runner, faults, provider

Options = Callable[..., RunOptions]
HONEST = 3
LONGER = {"inner.steps": 16, "inner.segment": 2}
"""So that the model has moved on to another grid by round 1, where `stale-model` starts."""
BRISK = {"windows.report": 60, "windows.confirm": 40}
"""A challenge that is not answered is waited for until its audit ends, and then voted on."""
CAUGHT = {
    "lazy": "wrong-replay",
    "wrong-data": "wrong-replay",
    "poison-segment": "wrong-replay",
    "sign-flip": "wrong-link",
    "scale": "wrong-link",
    "forge-moments": "wrong-link",
    "stale-model": "malformed",  # its update is on another model's grid, which anyone sees
    "garbage": "malformed",
    "garbage-nan": "wrong-link",  # NaN's bytes are grid integers like any others, of no training
    "garbage-shapes": "malformed",
}
CUT = {"copy", "no-reveal", "withhold"}
UNPUNISHED = {"late-serve"}
STAGED_VERIFIERS = {"rubber-stamp", "false-accuse", "false-challenge", "false-loss", "offline"}
"""`false-loss` is staged in test_evaluation.py."""


def test_every_cheat_is_staged() -> None:
    assert set(CAUGHT) | CUT | UNPUNISHED == set(PROVIDER_CHEATS)
    assert set(VERIFIER_CHEATS) == STAGED_VERIFIERS


@pytest.mark.parametrize(
    "names",
    [
        ("lazy", "wrong-data", "poison-segment"),
        ("sign-flip", "scale", "garbage"),
        ("garbage-nan", "garbage-shapes", "stale-model"),
        ("forge-moments",),
    ],
    ids="+".join,
)
async def test_wrong_work_is_slashed(
    names: tuple[str, ...], options: Options, play: Runner
) -> None:
    cheats = {HONEST + i: name for i, name in enumerate(names)}
    job = LONGER if "stale-model" in names else None
    report = await play(options(job=job, providers=HONEST + 3, cheats=cheats))
    assert report["job"]["status"] == "done"
    for seat, name in cheats.items():
        assert CAUGHT[name] in faults(report, seat), name
        assert int(provider(report, seat)["slashed_wei"]) > 0, name
        # There is no older model in round 0: that round's work is honest, and paid.
        assert provider(report, seat)["accepted_rounds"] == (name == "stale-model"), name
    assert all(provider(report, seat)["accepted_rounds"] == 2 for seat in range(HONEST))


async def test_what_is_not_shown_is_cut(options: Options, play: Runner) -> None:
    cheats = {3: "copy", 4: "no-reveal"}
    report = await play(options(providers=5, cheats=cheats, skip_windows=True))
    assert report["job"]["status"] == "done"
    assert faults(report, 3) & {"no-reveal", "wrong-replay", "wrong-link", "malformed"}
    assert "no-reveal" in faults(report, 4)
    for seat, name in cheats.items():
        assert int(provider(report, seat)["slashed_wei"]) > 0, name
        assert provider(report, seat)["paid_wei"] == "0", name


async def test_challenges_are_answered_confirmed_or_refuted(options: Options, play: Runner) -> None:
    """One provider serves nothing, one only what it is challenged for; one challenge is a lie."""
    chosen = options(
        job=BRISK,
        providers=5,
        verifiers=4,
        cheats={3: "withhold", 4: "late-serve"},
        verifier_cheats={3: "false-challenge"},
    )
    report = await play(chosen)  # no honest verifier lost a bond by its own challenges
    assert report["job"]["status"] == "done"
    assert faults(report, 3) == {"withheld"}
    assert int(provider(report, 3)["slashed_wei"]) > 0
    assert provider(report, 3)["paid_wei"] == "0"
    assert faults(report, 4) == set()
    assert provider(report, 4)["accepted_rounds"] == 2
    assert provider(report, 4)["slashed_wei"] == "0"
    assert all(provider(report, seat)["accepted_rounds"] == 2 for seat in range(3))
    liar = report["verifiers"][3]
    assert int(liar["slashed_wei"]) > 0
    assert int(liar["paid_wei"]) < int(report["verifiers"][0]["paid_wei"])


async def test_verifiers_that_lie_lose_fee_and_bond(options: Options, play: Runner) -> None:
    report = await play(
        options(
            providers=4,
            verifiers=7,
            cheats={3: "lazy"},
            verifier_cheats={5: "rubber-stamp", 6: "false-accuse"},
        )
    )
    assert report["job"]["status"] == "done"
    assert "wrong-replay" in faults(report, 3)
    honest_pay = int(report["verifiers"][0]["paid_wei"])
    accuser, stamp = report["verifiers"][6], report["verifiers"][5]
    assert int(accuser["slashed_wei"]) > 0
    assert int(accuser["paid_wei"]) < honest_pay  # unpaid where its report was refuted
    assert int(stamp["paid_wei"]) < honest_pay
    assert stamp["segments_replayed"] == 0


async def test_a_job_goes_on_while_two_of_seven_verifiers_are_offline(
    options: Options, play: Runner
) -> None:
    report = await play(
        options(
            skip_windows=True,
            providers=3,
            verifiers=7,
            verifier_cheats={5: "offline", 6: "offline"},
        )
    )
    assert report["job"]["status"] == "done"
    for verifier in report["verifiers"][5:]:
        assert verifier["paid_wei"] == "0"
        assert int(verifier["slashed_wei"]) > 0
    assert all(item["accepted_rounds"] == 2 for item in report["providers"])
