"""One provider drains, one pauses and a verifier is out of its hours, while a job goes on.

All three do what they still owe, lose nothing, are paid, and say at every moment why they are out.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.network.members import Network, Who, everybody, is_settled_up, network
from typer.testing import CliRunner

from atoll.cli.main import app
from atoll.law.pay import round_pay
from atoll.law.views import Holder, JobView
from atoll.law.words import Role
from atoll_devnet.processes.cluster import Member

ROUNDS, PATIENCE = 4, 600.0
HALF_A_DAY = 12 * 60 * 60
DRAINS, PAUSES = 0, 1
OUT_OF_HOURS = 2


async def told(member: Member, *words: str) -> Any:
    """The one document that a command about a member prints."""
    group = "node" if member.kind == "provider" else "verifier"
    arguments = [group, *words, "--config", str(member.folder / "config.toml"), "--json"]
    done = await asyncio.to_thread(CliRunner().invoke, app, arguments, catch_exceptions=False)
    (line,) = done.stdout.splitlines()
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
    """All have places, and a round runs."""
    return view.open is not None and len(view.providers) == 4 and len(view.verifiers) == 3


def has_left(running: Network, role: Role, index: int) -> bool:
    holder = running.provider(index) if role is Role.PROVIDER else running.verifier(index)
    return holder.to <= ROUNDS


async def test_who_sits_out_leaves_at_a_settlement_and_is_paid(tmp_path: Path) -> None:
    terms = {"rounds": ROUNDS, "min_providers": 2, "min_verifiers": 2}
    async with network(tmp_path, Who(), **terms) as running:
        await running.until(is_seated, PATIENCE)
        drained, paused = (running.cluster.providers[i] for i in (DRAINS, PAUSES))
        scheduled = running.cluster.verifiers[OUT_OF_HOURS]
        assert (await told(drained, "drain"))["sits_out"] == "drains, as ordered"
        assert (await told(paused, "pause"))["sits_out"] == "is paused, as ordered"
        await set_hours(scheduled, running.now)
        view = await running.until(
            lambda view, _: (
                has_left(running, Role.PROVIDER, DRAINS)
                and has_left(running, Role.PROVIDER, PAUSES)
                and has_left(running, Role.VERIFIER, OUT_OF_HOURS)
            ),
            PATIENCE,
        )
        await check_what_they_say(running, paused, scheduled)
        view = await running.until(is_settled_up, PATIENCE)
        await running.until(lambda _, __: not drained.process.is_running, PATIENCE)
        assert drained.process.exit_code == 0
        over = await told(drained, "status")
        assert over["blocking"]["name"] == "stopped"
        assert "atoll node run" in over["blocking"]["next_step"]
        left = [running.provider(DRAINS), running.provider(PAUSES), running.verifier(OUT_OF_HOURS)]
        paid = {holder: running.paid(holder) for holder in everybody(view)}
        resumed = await told(paused, "resume")
        assert (resumed["sits_out"], resumed["bonded"]) == ("", [])
    assert not any(holder.cuts or holder.has_fallen for holder in everybody(view))
    assert all(0 < rounds_of(holder) < ROUNDS for holder in left)
    for holder, wei in paid.items():
        earned = sum(round_pay(running.manifest.terms, past, holder) for past in view.settled)
        assert wei >= earned
    assert all(paid[holder] > 0 for holder in left[:2])


def rounds_of(holder: Holder) -> int:
    return holder.to - holder.start


async def check_what_they_say(running: Network, paused: Member, scheduled: Member) -> None:
    """Why each is out, how far it is, and what to do to change that."""
    for member, why in ((paused, "is paused, as ordered"), (scheduled, "out of its schedule")):
        found = await told(member, "status")
        assert why in found["sits_out"]
        assert why in found["duties"]["1"]["membership"] or "schedule" in why
        blocking = found["blocking"]
        if not found["owes"]["1"]:
            assert (blocking["name"], blocking["is_fault"]) == ("sits out", False)
            assert "resume" in blocking["next_step"]
    hours = await told(scheduled, "schedule")
    assert (hours["is_in"], len(hours["hours"])) == (False, 1)
    assert running.view is not None
