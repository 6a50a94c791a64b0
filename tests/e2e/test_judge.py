"""Every verifier colludes with a cheating provider, and one outsider with a bond has it slashed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atoll_devnet.report.live import Display
from atoll_devnet.report.observer import Observer
from atoll_devnet.run.options import RunOptions
from atoll_devnet.run.runner import finish, is_over, start

from .conftest import Runner, check_books, provider

Options = Callable[..., RunOptions]
CHEAT = 2
VERIFIERS = 3
WATCHED = {"windows.dispute": 75}
"""Long enough for an outsider to replay three seats on a busy machine; nobody skips it."""


def colluding(options: Options, cheat: str = "poison-segment") -> RunOptions:
    """A cheat, verifiers who attest everything unseen, and one outsider."""
    return options(
        job=WATCHED,
        providers=3,
        verifiers=VERIFIERS,
        watchers=1,
        cheats={CHEAT: cheat},
        verifier_cheats=dict.fromkeys(range(VERIFIERS), "rubber-stamp"),
    )


def check_outsider_won(report: dict[str, Any]) -> None:
    """The cheat lost its bond and a round's pay to the outsider; the honest were paid for all."""
    assert report["job"]["status"] == "done"
    assert all(not item["rejected"] for item in report["rounds"]), "the verifiers saw nothing"
    cheat = provider(report, CHEAT)
    (fall,) = report["falls"]
    assert (fall["seat"], fall["challenger"]) == (CHEAT, "watcher 0")
    assert int(fall["slashed_wei"]) == int(cheat["slashed_wei"]) > 0
    assert int(fall["withheld_wei"]) > 0
    assert report["watchers"][0]["won"] == 1
    for seat in range(CHEAT):
        honest = provider(report, seat)
        assert (honest["accepted_rounds"], honest["slashed_wei"]) == (2, "0")
        paid = int(cheat["paid_wei"]) + int(fall["withheld_wei"])
        assert int(honest["paid_wei"]) == paid * 2 // cheat["accepted_rounds"]
    assert report["escrow"]["balance_wei"] == "0"
    check_books(report)


async def test_every_verifier_colludes_and_one_outsider_wins(
    options: Options, play: Runner
) -> None:
    """Nobody votes against the planted text; the game ends in the tokens that were really read."""
    check_outsider_won(await play(colluding(options)))


async def test_players_are_killed_at_every_move(options: Options, display: Display) -> None:
    """What comes next follows from the chain, so the game goes on and ends as it would have."""

    def progress(observer: Observer) -> list[tuple[int, int, int]]:
        games = observer.view.games.values() if observer.view is not None else ()
        return [(len(game.moves), game.decided, game.outcome) for game in games]

    chosen, kills = colluding(options), 0
    async with start(chosen, display) as running:
        seen = progress(running.observer)
        while not is_over(running.observer):
            await running.observer.run(
                lambda observer, seen=seen: progress(observer) != seen or is_over(observer)
            )
            if progress(running.observer) != seen:
                seen, kills = progress(running.observer), kills + 1
                for member in (running.cluster.providers[CHEAT], running.cluster.watchers[0]):
                    member.process.kill()
                    member.process.start()
        report = (await finish(running, chosen)).report
    assert kills > 8
    check_outsider_won(report)


async def test_a_provider_defends_honest_work_and_who_disputes_it_loses(
    options: Options, play: Runner
) -> None:
    """The challenger's run differs in one bit; the contract computes what the provider showed."""
    chosen = options(job=WATCHED, providers=2, verifiers=2, watchers=1, watcher_cheats={0: "sham"})
    report = await play(chosen)
    assert report["job"]["status"] == "done"
    assert report["games"], "nothing was disputed"
    assert {game["outcome"] for game in report["games"]} == {"challenger-fell"}
    assert report["falls"] == []
    for seat in range(2):
        honest = provider(report, seat)
        assert (honest["accepted_rounds"], honest["slashed_wei"]) == (2, "0")
    check_books(report)
