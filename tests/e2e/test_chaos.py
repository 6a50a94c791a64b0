"""What goes wrong without anyone cheating: processes die, a chain restarts or turns back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from atoll.protocol.types import Phase
from atoll_devnet.report.live import Display
from atoll_devnet.report.observer import Observer
from atoll_devnet.run.options import RunOptions
from atoll_devnet.run.runner import Running, finish, is_over, start

from .conftest import Runner, check_ledger, provider

Options = Callable[..., RunOptions]
Act = Callable[[Running], Awaitable[None]]
COPIES = 3
"""A seat that sends what another one sent a round ago."""


def reached(round_: int, phase: Phase) -> Callable[[Observer], bool]:
    """Whether the job has come to that phase of that round, or further."""

    def is_there(observer: Observer) -> bool:
        view = observer.view
        return view is not None and (view.round, view.phase) >= (round_, phase)

    return is_there


async def interfere(
    options: RunOptions, display: Display, acts: list[tuple[Callable[[Observer], bool], Act]]
) -> dict[str, Any]:
    """Runs a network, doing each thing when its moment has come."""
    async with start(options, display) as running:
        for moment, act in acts:
            await running.observer.run(moment)
            await act(running)
        await running.observer.run(is_over)
        return (await finish(running, options)).report


async def test_a_provider_comes_back_and_another_dies_and_an_auditor_is_restarted(
    options: Options, display: Display
) -> None:
    async def restart(running: Running) -> None:
        running.cluster.providers[0].process.kill()
        running.cluster.providers[0].process.start()

    async def kill_for_good(running: Running) -> None:
        running.cluster.providers[3].process.kill()
        running.cluster.verifiers[0].process.kill()
        running.cluster.verifiers[0].process.start()

    chosen = options(job={"rounds": 4}, providers=4, verifiers=2)
    acts = [(reached(0, Phase.TRAIN), restart), (reached(1, Phase.TRAIN), kill_for_good)]
    report = await interfere(chosen, display, acts)
    assert report["job"]["status"] == "done"
    assert report["money"]["faults"] == []
    back, dead = report["providers"][0], report["providers"][3]
    assert (back["paid_rounds"], back["slashed_wei"]) == (4, "0")
    assert dead["paid_rounds"] <= 1
    assert int(dead["slashed_wei"]) > 0  # the small penalty for a round without a commit
    assert all(verifier["slashed_wei"] == "0" for verifier in report["verifiers"])


async def test_the_chain_restarts_and_turns_back(options: Options, display: Display) -> None:
    async def restart_chain(running: Running) -> None:
        running.cluster.chain.stop()
        await running.cluster.chain.start()

    async def reorg(running: Running) -> None:
        await running.cluster.chain.reorg(3)

    report = await interfere(
        options(job={"rounds": 3}, providers=4, verifiers=2, cheats={COPIES: "copy"}),
        display,
        [(reached(0, Phase.MERGE), restart_chain), (reached(1, Phase.REVEAL), reorg)],
    )
    check_ledger(report)
    assert report["job"]["status"] == "done"
    assert int(provider(report, COPIES)["slashed_wei"]) > 0
    assert [provider(report, seat)["paid_rounds"] for seat in range(4)] == [3, 3, 3, 0]


async def test_the_same_run_on_ganache(options: Options, play: Runner) -> None:
    chosen = options(providers=3, verifiers=1, cheats={2: "stale-model"}, backend="ganache")
    report = await play(chosen)
    assert report["chain"]["backend"] == "ganache"
    assert report["job"]["status"] == "done"
    assert int(report["providers"][2]["slashed_wei"]) > 0
    assert [p["paid_rounds"] for p in report["providers"][:2]] == [2, 2]
    assert report["providers"][2]["paid_rounds"] <= 1  # in round 0 no model is stale
