"""Members that stop for a while, in two jobs one after another on one network.

A provider is killed in the middle of a round, and commits what it would have committed. Then one
provider drains, one pauses, and a verifier is out of its hours: all three do what they still owe,
lose nothing, are paid, and say why they are out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from typing import Any

from tests.network.members import (
    Network,
    Site,
    Who,
    another_job,
    everybody,
    is_settled_up,
    network,
)

from atoll.protocol.holders import Holder
from atoll.protocol.pay import round_pay
from atoll.protocol.types import Role, SeatIndex
from atoll.protocol.views import JobView
from atoll.storage.local import LocalStore
from atoll.storage.pins import Pin
from atoll.train.initial_model import open_initial_state
from atoll.train.probe import pin_torch
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import TrainTask
from atoll_devnet.processes.cluster import Member

SEAT = SeatIndex(1)
STEPS, SEGMENT = 160, 20
"""Some seconds of training, of which the first checkpoint comes after the eighth part."""
ROUNDS = 4
HALF_A_DAY = 12 * 60 * 60
DRAINS, PAUSES = 0, 1
OUT_OF_HOURS = 2


async def told(member: Member, *words: str) -> Any:
    """The one document that a command about a member prints."""
    group = "node" if member.kind == "provider" else "verifier"
    arguments = [group, *words, "--config", str(member.folder / "config.toml"), "--json"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "atoll.cli.main", *arguments, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    assert process.returncode == 0
    (line,) = told.splitlines()
    return json.loads(line)


async def set_hours(member: Member, now: int) -> None:
    """Its schedule begins half a day from now, and lasts an hour; it is started anew with that."""
    start, end = (
        datetime.fromtimestamp(now + HALF_A_DAY + more, UTC).strftime("%H:%M") for more in (0, 3600)
    )
    await asyncio.to_thread(member.process.stop)
    config = member.folder / "config.toml"
    config.write_text(f'{config.read_text()}\n[schedule]\nhours = ["{start}-{end}"]\n')
    member.process.start()


def is_seated(view: JobView, _: int) -> bool:
    """All have slots, and a round runs."""
    return view.open is not None and len(view.providers) == 4 and len(view.verifiers) == 3


def checkpoints(member: Member) -> list[Pin]:
    pins = LocalStore(member.folder / "data" / "store").pins()
    return [pin for pin in pins if pin.reason.endswith("/checkpoint")]


async def killed_at_a_checkpoint(running: Network) -> None:
    """kill -9 of the provider and its worker, as soon as there is something to go on from."""
    member = running.cluster.providers[SEAT]
    while not checkpoints(member):  # noqa: ASYNC110 (files are looked for)
        await asyncio.sleep(0.02)
    member.process.kill()
    assert "Trained" not in member.journal_file.read_bytes().decode(errors="ignore")
    member.process.start()


async def test_a_killed_provider_goes_on_and_who_sits_out_is_paid(site: Site) -> None:
    steps = {"steps": STEPS, "segment_steps": SEGMENT}
    async with network(site, Who(), **steps) as first:
        await check_killed(first)
        terms = {"rounds": ROUNDS, "min_providers": 3, "min_verifiers": 2}
        await check_sitting_out(await another_job(first, **terms))


async def check_killed(running: Network) -> None:
    """It goes on where it was."""
    await running.until(lambda view, _: bool(view.providers))
    await killed_at_a_checkpoint(running)
    view = await running.until(is_settled_up)
    member = running.cluster.providers[SEAT]
    log, left = (member.folder / "log").read_text(), checkpoints(member)
    settled_round, store = view.settled[0], running.session.store
    honest = trained(running, store)
    assert "goes on from a checkpoint" in log
    assert settled_round.reveals[SEAT].reveal.update_root == honest.update_root
    checkpoint_commitments = settled_round.reveals[SEAT].reveal.checkpoint_commitments
    assert [
        checkpoint_commitments[at : at + 32] for at in range(0, len(checkpoint_commitments), 64)
    ] == list(honest.states)
    assert not running.provider(SEAT).penalties
    assert left == []


def trained(running: Network, store: LocalStore) -> TrainedRound:
    """The seat's round 0, without any checkpoint."""
    pin_torch()
    assert running.view is not None
    settled_round, job = running.view.settled[0], running.manifest
    cid = store.add_pieces(open_initial_state(job, store).pieces()).to_bytes()
    task = TrainTask(job, settled_round.round_id, SEAT, settled_round.record.seed, cid)
    return train_round(task, store)


async def check_sitting_out(running: Network) -> None:
    """Of four seats three are enough: the job waits for the paused one until it is resumed."""
    await running.until(is_seated)
    drained, paused = (running.cluster.providers[i] for i in (DRAINS, PAUSES))
    scheduled = running.cluster.verifiers[OUT_OF_HOURS]
    assert (await told(drained, "drain"))["sits_out"] == "drains, as ordered"
    assert (await told(paused, "pause"))["sits_out"] == "is paused, as ordered"
    await set_hours(scheduled, running.now)
    await running.until(lambda _, __: all(h.is_released for h in left(running)))
    assert all(0 < holder.to - holder.start < ROUNDS for holder in left(running))
    await check_drained(running, drained)
    await check_sits_out(running, paused, "is paused, as ordered", "resume")
    await check_sits_out(running, scheduled, "is out of its schedule's hours", "[schedule]")
    assert (await told(scheduled, "schedule"))["is_in"] is False
    assert (await told(paused, "resume"))["sits_out"] == ""
    view = await running.until(is_settled_up)
    paid = {holder: running.paid(holder) for holder in everybody(view)}
    assert len(view.settled) == ROUNDS
    assert len(view.ids_of(paused.account, Role.PROVIDER)) == 2  # it took a seat again
    assert not any(holder.penalties or holder.is_slashed for holder in everybody(view))
    for holder, wei in paid.items():
        earned = sum(
            round_pay(running.manifest.terms, settled_round, holder)
            for settled_round in view.settled
        )
        assert wei >= earned
        assert earned or holder.role is Role.VERIFIER


def left(running: Network) -> list[Holder]:
    """The first parts in the job of those that are to sit out."""
    return [running.provider(DRAINS), running.provider(PAUSES), running.verifier(OUT_OF_HOURS)]


async def check_drained(running: Network, member: Member) -> None:
    """It ended by itself, once its bond was home and its pay was there."""
    await running.until(lambda _, __: not member.process.is_running)
    assert member.process.exit_code == 0
    assert running.paid(running.provider(DRAINS)) > 0
    blocking = (await told(member, "status"))["blocking"]
    assert (blocking["name"], blocking["text"]) == ("stopped", "not running")
    assert "atoll node run" in blocking["next_step"]


async def check_sits_out(running: Network, member: Member, why: str, step: str) -> None:
    """It says why it is out, that nothing is owed or locked, and what changes that."""
    found, job = await told(member, "status"), str(running.job)
    assert found["sits_out"].startswith(why)
    assert (found["bonded"], found["obligations"][job]) == ([], [])
    assert why in found["duties"][job]["membership"]
    assert (found["blocking"]["name"], found["blocking"]["is_fault"]) == ("sits out", False)
    assert step in found["blocking"]["next_step"]
