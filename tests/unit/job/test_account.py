"""An account over all its jobs: what one of them brings about does not hide the others."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.unit.dashboard.jobs import items_of
from tests.unit.protocol.script import PROVIDERS, Script

from atoll.job.account import KnownOfAccount, free_folder
from atoll.protocol.events import Seated
from atoll.protocol.types import JobId
from atoll.service.private import exposed

ME = PROVIDERS[0]


def test_a_job_that_cannot_be_counted_is_told_beside_the_others() -> None:
    script = Script.ready()
    script.honest_round()
    net = script.net
    items = items_of(script)
    seated = next(i for i in items if isinstance(i.event, Seated) and i.event.account == ME)
    another = replace(seated, event=replace(seated.event, job_id=JobId(3)))  # type: ignore[type-var]
    known = KnownOfAccount(net.block, [*items, another], {net.job: net.view})
    told = {each.job: each for each in known.statements(ME)}
    broken, whole = told.pop(JobId(3)), told.pop(net.job)
    assert told == {}
    assert broken.faults == ("job 3 cannot be counted: KeyError(3)",)
    assert (broken.lines, whole.faults) == ((), ())
    assert [line.round for line in whole.lines] == [0, 1]


def test_a_command_before_the_first_start_leaves_a_folder_that_a_service_takes(
    tmp_path: Path,
) -> None:
    data = tmp_path / "node" / "data"
    with ExitStack() as stack:
        places = [free_folder(data, stack) for _ in range(2)]
    assert len(set(places)) == 2
    assert [exposed(folder) for folder in (data, *places)] == [None] * 3
