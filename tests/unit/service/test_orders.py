"""Sitting out costs nothing: who drains, pauses or is out of hours leaves at a settlement."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.manifests import make_terms
from tests.unit.protocol.models import MODEL, PROGRAM
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script
from tests.unit.service.held import state_of
from tests.unit.service.running import Running, start, training_job
from tests.unit.service.test_power import DISCHARGING, plugged

from atoll.errors import ConfigError
from atoll.files import write_beside
from atoll.protocol import events as ev
from atoll.protocol.claims import SeatStatements
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.types import Address, JobId, Role, SeatIndex
from atoll.service import draining as draining_module
from atoll.service import occupied, power
from atoll.service import participation as participation_module
from atoll.service import service as service_module
from atoll.service.config import ScheduleSection, ServiceConfig, read_config
from atoll.service.duties.game import SendCollect
from atoll.service.duties.join_and_leave import SendJoin, SendLeave
from atoll.service.duties.material import DoFetchSpec
from atoll.service.duties.send_keeper_calls import SendKeeperCall
from atoll.service.duties.unpin import DoUnpin
from atoll.service.entries import Entries
from atoll.service.machine import Ordered, State
from atoll.service.occupied import Occupied
from atoll.service.orders import DAY, Orders, off_hours, why_out
from atoll.service.outside import answers_of
from atoll.service.power import Mains
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.duties.train import DoTrain
from atoll_node.machine import decide as decide_provider
from atoll_node.machine import step
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.machine import decide as decide_verifier

ME, MY_JOB = PROVIDERS[0], JobId(7)
NIGHT = ScheduleSection(hours=("22:00-06:30",))
NOON, MIDNIGHT = DAY // 2, 0


def provider(net: Network, sits_out: str = "") -> State[Any]:
    return replace(state_of(net, ME, ProviderBehaviour()), sits_out=sits_out)


def scheduled(state: State[Any], second_of_day: int) -> State[Any]:
    now = state.now - state.now % DAY + second_of_day
    head = replace(state.head, time=now)
    return replace(state, head=head, setup=replace(state.setup, schedule=NIGHT))


def wanted(decisions: list[Any], kind: type[Any]) -> list[Any]:
    return [c for d in decisions for c in d.commands if isinstance(c, kind)]


@pytest.fixture
def net() -> Network:
    """In the first round."""
    made = Script.ready().net
    made.advance()
    return made


# --- orders ---


def test_who_sits_out_leaves_and_finishes_its_round(net: Network) -> None:
    decisions = decide_provider(provider(net, "is paused, as ordered"))
    (leave,) = wanted(decisions, SendLeave)
    assert leave.role is Role.PROVIDER
    assert len(wanted(decisions, DoTrain)) == 1


def test_who_has_left_owes_the_running_round_and_nothing_more(net: Network) -> None:
    net.leave_seat(ME)
    decisions = decide_provider(provider(net, "is paused, as ordered"))
    assert wanted(decisions, SendLeave) == wanted(decisions, SendJoin) == []
    assert len(wanted(decisions, DoTrain)) == 1
    script = Script(net)
    script.honest_round()
    assert not any(m.penalties for m in net.members.values())
    assert not net.view.open or 0 not in net.view.open.seats


def test_who_takes_part_again_joins_once_its_bond_is_home(net: Network) -> None:
    net.leave_seat(ME)
    Script(net).honest_round()
    assert wanted(decide_provider(provider(net)), SendJoin) == []
    net.wait_until(net.settled[0].ends["window"])
    net.release(Role.PROVIDER, 1)
    assert len(wanted(decide_provider(provider(net)), SendJoin)) == 1
    assert wanted(decide_provider(provider(net, "is paused, as ordered")), SendJoin) == []


def test_a_verifier_that_sits_out_leaves_the_pool(net: Network) -> None:
    state = state_of(net, VERIFIERS[0], VerifierBehaviour())
    assert wanted(decide_verifier(state), SendLeave) == []
    (leave,) = wanted(decide_verifier(replace(state, sits_out="drains, as ordered")), SendLeave)
    assert leave.role is Role.VERIFIER


def test_one_job_is_left_and_the_others_stay() -> None:
    orders = Orders().leaving(3).leaving(7).leaving(3)
    assert orders.left == (3, 7)
    assert orders.why_out(MY_JOB) == "leaves job 7, as ordered"
    assert orders.why_out(JobId(8)) == ""
    assert "paused" in replace(orders, pauses=True).why_out(JobId(8))


# --- the schedule ---


@pytest.mark.parametrize(
    ("hours", "second", "is_in"),
    [
        ("22:00-06:30", 22 * 3600, True),
        ("22:00-06:30", 22 * 3600 - 1, False),
        ("22:00-06:30", 0, True),
        ("22:00-06:30", 6 * 3600 + 1799, True),
        ("22:00-06:30", 6 * 3600 + 1800, False),
        ("9:00-17:00", 12 * 3600, True),
        ("9:00-17:00", 18 * 3600, False),
    ],
)
def test_hours_go_from_the_first_to_but_not_at_the_last(
    hours: str, second: int, is_in: bool
) -> None:
    section = ScheduleSection(hours=(hours,))
    assert (off_hours(section, 20_000 * DAY + second) == "") == is_in


def test_no_hours_are_always_and_several_are_any_of_them() -> None:
    assert off_hours(ScheduleSection(), NOON) == ""
    both = ScheduleSection(hours=("01:00-02:00", "11:00-13:00"))
    assert off_hours(both, NOON) == ""
    assert off_hours(both, 10 * 3600) == "is out of its schedule's hours for 60 min more"


def test_out_of_hours_it_leaves_and_finishes_its_round(net: Network) -> None:
    at_noon = scheduled(provider(net), NOON)
    assert "schedule" in why_out(at_noon)
    decisions = decide_provider(at_noon)
    assert len(wanted(decisions, SendLeave)) == 1
    at_night = decide_provider(scheduled(provider(net), MIDNIGHT))
    assert wanted(at_night, SendLeave) == []


def test_out_of_hours_it_joins_nothing() -> None:
    net = Network()
    assert wanted(decide_provider(scheduled(provider(net), NOON)), SendJoin) == []
    assert len(wanted(decide_provider(scheduled(provider(net), MIDNIGHT)), SendJoin)) == 1


@pytest.mark.parametrize("text", ["22-6", "25:00-06:00", "08:00-08:00", "08:60-09:00"])
def test_hours_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[schedule]\nhours = ["{text}"]\n')
    with pytest.raises(ConfigError, match=r"schedule\.hours"):
        read_config(ServiceConfig, config)


# --- the service ---


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(draining_module, "LOOK_SECONDS", 0.01)


async def asked(running: Running, question: str, **arguments: int) -> dict[str, Any]:
    found = await answers_of(running.service)[question](arguments)
    assert isinstance(found, dict)
    return found


async def test_an_order_outlives_a_restart(tmp_path: Path) -> None:
    job = training_job()
    first = start(tmp_path, job)
    told = await asked(first, "pause")
    assert told["orders"] == {"pauses": True, "drains": False, "left": []}
    assert (await asked(first, "leave", job=7))["orders"]["left"] == [7]
    await first.stop()
    second = start(tmp_path, job)
    await second.effects.committed.wait()  # it finishes the round that runs
    assert any(isinstance(c, SendLeave) for c in second.effects.started)
    assert second.service.status()["sits_out"] == "is paused, as ordered"
    assert (second.service.status()["bonded"], second.service.status()["over"]) == ([7], [])
    assert (await asked(second, "resume"))["orders"]["pauses"] is False
    await second.stop()


async def test_a_drained_service_ends_once_and_stays_out(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = training_job()
    running = start(tmp_path, job)
    await asked(running, "drain")
    await running.effects.committed.wait()
    assert not running.task.done()
    job.leave_seat(ME)
    Script(job).honest_round()
    job.wait_until(job.settled[0].ends["window"])
    job.release(Role.PROVIDER, 1)
    running.index.tell_everything()
    await running.effects.did[SendKeeperCall].wait()
    assert not running.task.done()  # its pay is not there yet
    job.claim(Role.PROVIDER, 1, 1)
    running.index.tell_everything()
    await running.task
    running.journal.close()
    again = start(tmp_path, job)
    looks = asyncio.Semaphore(0)
    is_bound = again.service.draining.is_bound

    def looked() -> bool:
        looks.release()
        return is_bound()

    monkeypatch.setattr(again.service.draining, "is_bound", looked)
    for _ in range(3):
        await looks.acquire()
    assert not again.task.done()  # what restarts it would do so for ever
    assert again.service.status()["sits_out"] == "drains, as ordered"
    assert not any(isinstance(c, SendJoin) for c in again.effects.started)
    await again.stop()


async def test_on_battery_it_leaves_and_on_mains_it_comes_back(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    supplies = plugged(tmp_path / "supplies", BAT0=DISCHARGING)
    monkeypatch.setattr(power, "AWHILE_SECONDS", 0.0)
    monkeypatch.setattr(participation_module, "Mains", partial(Mains, supplies=supplies))
    running = start(tmp_path, training_job())
    running.service.effects.context.config.schedule = ScheduleSection(on_battery=False)
    await running.effects.committed.wait()  # it finishes the round that runs
    await running.effects.did[SendLeave].wait()
    told = running.service.status()
    assert "on battery" in told["sits_out"]
    found = running.service.health_status()
    assert found is not None
    assert (found.name, found.is_fault, "[schedule]" in found.next_step) == (
        "sits out", False, True
    )  # fmt: skip
    plugged(supplies, BAT0={"status": "Charging"})
    while running.service.status()["sits_out"]:  # noqa: ASYNC110 (a file is looked at)
        await asyncio.sleep(0.01)
    await running.stop()


async def test_while_others_use_the_machine_it_is_out(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(occupied, "AWHILE_SECONDS", 0.05)
    monkeypatch.setattr(participation_module, "Occupied", partial(Occupied, stat=stat))
    running = start(tmp_path, training_job())
    running.service.effects.context.config.schedule = ScheduleSection(most_by_others=0.25)

    async def until(is_out: bool) -> None:
        """They take all of the machine, or nothing of it, from look to look."""
        usual, idle = 10**9, 10**9
        while bool(running.service.status()["sits_out"]) is not is_out:
            usual, idle = (usual + 10**6, idle) if is_out else (usual, idle + 10**6)
            write_beside(stat, f"cpu {usual} 0 0 {idle} 0 0 0 0 0 0\ncpu0\n".encode()).replace(stat)
            await asyncio.sleep(0.01)

    await running.effects.committed.wait()
    await until(True)
    await running.effects.did[SendLeave].wait()
    assert "in use by others" in running.service.status()["sits_out"]
    await until(False)
    await running.stop()


def test_an_order_is_folded_into_the_state(net: Network) -> None:
    state, commands = step(provider(net), Ordered("drains, as ordered"))
    assert state.sits_out == "drains, as ordered"
    assert any(isinstance(c, SendLeave) for c in commands)


# --- challenges outlast a part ---


def challenged(net: Network, challenger: Address) -> None:
    """The account disputes what a seat did in round 0."""
    said = SeatStatements(net.view, net.view.settled[0], SeatIndex(1), MODEL, PROGRAM).claim(1)
    net.emit(ev.Challenged(1, said.holder, challenger, 10**20, said, b"evidence"))


@pytest.fixture
def left() -> Network:
    """A verifier has left after a round; its bond is home, and a challenge of its own runs."""
    script = Script.ready(make_terms(program=PROGRAM.root, min_verifiers=3))
    net = script.net
    net.leave_pool(VERIFIERS[3])
    script.honest_round()
    net.wait_until(net.settled[0].ends["window"])
    net.release(Role.VERIFIER, 4)
    challenged(net, VERIFIERS[3])
    return net


def test_who_sits_out_still_plays_what_it_began(left: Network) -> None:
    """After a restart nothing is here: the manifest, without which no move is made, comes first."""
    bare = replace(state_of(left, VERIFIERS[3], VerifierBehaviour()), entries=Entries())
    (fetch,) = wanted(decide_verifier(replace(bare, sits_out="is paused")), DoFetchSpec)
    assert fetch.spec_cid == left.view.spec_cid
    other = replace(state_of(left, WATCHER, VerifierBehaviour()), entries=Entries())
    assert wanted(decide_verifier(replace(other, sits_out="is paused")), DoFetchSpec) == []


def test_who_sits_out_lets_go_of_rounds_whose_manifest_it_does_not_read() -> None:
    """As after a restart with a bond in another job: its disk would keep them until the claim
    deadline.
    """
    script = Script.ready(make_terms(min_verifiers=3))
    net = script.net
    net.leave_pool(VERIFIERS[3])
    script.honest_round()
    script.honest_round()
    net.wait_until(max(settled_round.ends["window"] for settled_round in net.settled))
    bare = replace(state_of(net, VERIFIERS[3], VerifierBehaviour()), entries=Entries())
    full = "looks at no further one"
    (fetch,) = wanted(decide_verifier(replace(bare, sits_out=full)), DoFetchSpec)
    assert wanted(decide_verifier(replace(bare, sits_out=full)), DoUnpin) == []
    net.release(Role.VERIFIER, 4)
    home = replace(bare, view=net.view)
    assert wanted(decide_verifier(replace(home, sits_out=full)), DoFetchSpec) == []
    assert wanted(decide_verifier(replace(home, sits_out=full)), DoUnpin) == [DoUnpin(0, 1)]
    assert wanted(decide_verifier(home), DoUnpin) == []  # it reads the manifest first
    assert wanted(decide_verifier(home), DoFetchSpec) == [fetch]


async def test_a_drained_service_plays_its_challenges_to_their_end(
    tmp_path: Path, quick: None
) -> None:
    net = Script.ready(make_terms(program=PROGRAM.root)).net
    net.advance()
    net.leave_seat(ME)
    Script(net).honest_round()
    net.wait_until(net.settled[0].ends["window"])
    net.release(Role.PROVIDER, 1)
    net.claim(Role.PROVIDER, 1, 1)
    challenged(net, ME)
    running = start(tmp_path, net)
    await asked(running, "drain")
    await running.effects.did[DoFetchSpec].wait()
    assert running.service.draining.is_bound()
    net.emit(ev.Ended(1, Outcome.SENT_HOME))
    running.index.tell_everything()
    await running.effects.did[SendCollect].wait()
    await running.task
    running.journal.close()


async def test_a_service_that_is_told_to_stop_says_what_it_owes_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    running = start(tmp_path, training_job())
    await running.index.read.wait()
    found = await answers_of(running.service)["stop"]({})
    assert {"obligations", "under_way"} <= found.keys()
    assert found["is_supervised"] is False
    await running.task  # no error: its exit code is 0
    assert running.service.under_way == 0
    running.journal.close()
