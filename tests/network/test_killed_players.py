"""Both players of a game are killed at each of its moves: the chain is all the memory they need."""

from __future__ import annotations

from tests.network.members import Site, Who, is_settled_up, network, slashed

from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.views import JobView

Progress = list[tuple[int, int, int]]


def progress(view: JobView) -> Progress:
    return [(len(game.moves), game.decided, game.outcome) for game in view.games.values()]


async def test_players_are_killed_at_every_move(site: Site) -> None:
    """What comes next follows from the chain, so the game goes on and ends as it would have."""
    colluders = dict.fromkeys(range(2), "false-valid")
    who = Who({0: "poison-segment"}, colluders, watchers=("",), slots=2)
    seen: Progress = []
    kills = 0
    async with network(site, who) as running:
        players = (running.cluster.providers[0], running.cluster.watchers[0])

        def has_moved_on(view: JobView, now: int) -> bool:
            return progress(view) != seen or is_settled_up(view, now)

        view = await running.until(has_moved_on)
        while not is_settled_up(view, running.now):
            if progress(view) != seen:
                seen, kills = progress(view), kills + 1
                for member in players:
                    member.process.kill()
                    member.process.start()
            view = await running.until(has_moved_on)
        poisoner, watcher = running.provider(0), running.cluster.watchers[0].account

    assert slashed(view) == {poisoner.account}
    (game,) = view.games.values()
    assert (game.challenger, game.claim.segment) == (watcher, 0)
    assert game.decided is game.outcome is Outcome.HOLDER_LOST
    assert kills > 8
