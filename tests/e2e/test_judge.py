"""Every verifier colludes with a cheating provider, and one outsider with a bond has it slashed."""

from __future__ import annotations

from collections.abc import Callable

from atoll_devnet.run.options import RunOptions

from .conftest import Runner, provider

Options = Callable[..., RunOptions]
CHEAT = 2
VERIFIERS = 3
WATCHED = {"windows.dispute": 90}
"""Long enough for an outsider to replay three seats on a busy machine."""


async def test_every_verifier_colludes_and_one_outsider_wins(
    options: Options, play: Runner
) -> None:
    """Nobody votes against the planted text; the game ends in the tokens that were really read."""
    report = await play(
        options(
            job=WATCHED,
            providers=3,
            verifiers=VERIFIERS,
            watchers=1,
            cheats={CHEAT: "poison-segment"},
            verifier_cheats=dict.fromkeys(range(VERIFIERS), "rubber-stamp"),
            skip_windows=True,
        )
    )
    assert report["job"]["status"] == "done"
    assert all(not item["rejected"] for item in report["rounds"]), "the verifiers saw nothing"
    cheat = provider(report, CHEAT)
    (fall,) = report["falls"]
    assert (fall["seat"], fall["challenger"]) == (CHEAT, "watcher 0")
    assert int(fall["slashed_wei"]) == int(cheat["slashed_wei"]) > 0
    assert int(fall["withheld_wei"]) > 0
    for seat in range(CHEAT):
        honest = provider(report, seat)
        assert honest["accepted_rounds"] == 2
        assert int(honest["paid_wei"]) > int(cheat["paid_wei"])
        assert honest["slashed_wei"] == "0"
    assert report["watchers"][0]["won"] == 1
