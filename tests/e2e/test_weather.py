"""What goes wrong without anyone cheating: processes die, a chain restarts or turns back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from atoll.law.words import Phase
from atoll_devnet.report.live import Display
from atoll_devnet.report.observer import Observer
from atoll_devnet.run.options import RunOptions
from atoll_devnet.run.runner import Running, finish, is_over, start

from .conftest import Runner, check_books

Options = Callable[..., RunOptions]
Act = Callable[[Running], Awaitable[None]]


def reached(round_: int, phase: Phase) -> Callable[[Observer], bool]:
    """Whether the job has come to that phase of that round, or further."""

    def is_there(observer: Observer) -> bool:
        if observer.view is None:
            return False
        state = observer.view.state
        return (state.round, state.phase) >= (round_, phase)

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


async def test_providers_die_and_come_back_or_do_not(options: Options, display: Display) -> None:
    async def restart(running: Running) -> None:
        running.cluster.providers[0].process.kill()
        running.cluster.providers[0].process.start()

    async def kill_for_good(running: Running) -> None:
        running.cluster.providers[3].process.kill()

    chosen = options(job={"rounds": 4}, providers=4, skip_windows=True)
    report = await interfere(
        chosen,
        display,
        [
            (reached(0, Phase.TRAIN), restart),
            (reached(1, Phase.TRAIN), kill_for_good),
        ],
    )
    assert report["job"]["status"] == "done"
    assert report["providers"][0]["accepted_rounds"] == 4
    assert report["providers"][0]["slashed_wei"] == "0"
    dead = report["providers"][3]
    assert 1 <= dead["accepted_rounds"] < 4
    assert int(dead["slashed_wei"]) > 0  # the small cut for two rounds without a commit
    escrow = {name: int(value) for name, value in report["escrow"].items()}
    assert escrow["funded_wei"] == sum(escrow.values()) - escrow["funded_wei"]


async def test_the_chain_restarts_and_turns_back(options: Options, display: Display) -> None:
    async def restart_chain(running: Running) -> None:
        running.cluster.chain.stop()
        await running.cluster.chain.start()

    async def reorg(running: Running) -> None:
        await running.cluster.chain.reorg(3)

    report = await interfere(
        options(job={"rounds": 3}, providers=3, verifiers=2),
        display,
        [(reached(0, Phase.REPORT), restart_chain), (reached(1, Phase.REVEAL), reorg)],
    )
    check_books(report)
    assert report["job"]["status"] == "done"
    assert all(item["accepted_rounds"] == 3 for item in report["providers"])


async def test_without_a_quorum_the_audit_runs_again_then_the_job_expires(
    options: Options, play: Runner
) -> None:
    report = await play(
        options(
            job={"members.attempts": 2},
            skip_windows=True,
            providers=2,
            verifiers=3,
            verifier_cheats={1: "offline", 2: "offline"},
        )
    )
    assert report["job"]["status"] == "expired"
    assert report["rounds"][0]["attempts"] == 2
    assert int(report["escrow"]["refunded_wei"]) > 0


async def test_diverging_training_slashes_nobody(options: Options, play: Runner) -> None:
    job = {"inner.lr": 1000, "inner.steps": 16, "inner.segment": 2}  # eight would not diverge
    report = await play(options(job=job, providers=3, verifiers=2))
    assert report["job"]["status"] == "expired"
    assert report["job"]["reason"] == "Diverged"
    parties = [*report["providers"], *report["verifiers"]]
    assert all(party["slashed_wei"] == "0" for party in parties)


async def test_the_same_run_on_ganache(options: Options, play: Runner) -> None:
    report = await play(options(providers=3, verifiers=2, cheats={2: "lazy"}, backend="ganache"))
    assert report["chain"]["backend"] == "ganache"
    assert report["job"]["status"] == "done"
    assert int(report["providers"][2]["slashed_wei"]) > 0
    assert [p["accepted_rounds"] for p in report["providers"]] == [2, 2, 0]


async def test_honest_networks_reject_nobody(options: Options, display: Display) -> None:
    """Five jobs with five seeds, one after another on one network."""
    chosen = options(job={"rounds": 1, "audit.coverage": "0.5"}, providers=3, verifiers=2)
    async with start(chosen, display) as running:
        await running.observer.run(is_over)
        views = [running.observer.view]
        for seed in range(1, 5):
            views.append(await _another_job(running, seed))
    for view in views:
        assert view is not None
        assert [settled.evidence.rejected for settled in view.settled] == [0]
        assert view.settled[0].evidence.accepted == 0b111
    assert not running.observer.history.slashed


async def _another_job(running: Running, seed: int) -> Any:
    from atoll.job.asking import asking
    from atoll.job.prepare import with_program
    from atoll.law.manifest import InitSpec, Manifest

    first = Manifest.from_bytes(running.observer.watched.manifest)
    other = first.model_copy(update={"init": InitSpec.drawn(seed)})
    async with asking(running.client.ask) as ask:
        manifest = await with_program(other, running.client.store, ask)
    handle = await running.client.submit(manifest, max_spend=10**24)
    await handle.wait()
    return await handle.view()
