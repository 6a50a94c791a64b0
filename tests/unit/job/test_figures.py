"""What a submitter takes from verifiers' reports, and from whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from eth_account import Account
from tests.unit.law.factories import ScriptedJob, digest, make_manifest

from atoll.chain.keys import sign_digest
from atoll.content.fetch import Fetcher
from atoll.errors import NotFound
from atoll.job.figures import Figures, gather, known
from atoll.law.held_out import HeldOut, loss_bytes, note_name
from atoll.law.views import JobView
from atoll.law.words import Address, JobId

KEY = Account.from_key(b"\x07" * 32)
WHO = Address(KEY.address)
URL = "http://127.0.0.1:4101"


class Gateways:
    """Answers as gateways do: notes by URL and name, and no blocks."""

    def __init__(self, notes: dict[str, bytes] | None) -> None:
        self.notes, self.asked = notes, 0

    async def note(self, gateway: str, name: str, max_bytes: int) -> bytes | None:
        self.asked += 1
        if self.notes is None:
            raise NotFound("does not answer")
        return self.notes.get(name)

    async def get(self, cid: object, max_bytes: int) -> bytes:
        raise NotFound("nobody has it")


@pytest.fixture
def view() -> JobView:
    """A job of one settled round, whose verifier 0 is an account that can sign."""
    job = ScriptedJob(make_manifest())
    job.honest_round()
    (past,) = job.view.settled
    settled = replace(past, verifiers={min(past.verifiers): WHO})
    return replace(job.view, settled=(settled,), verifiers={}, gateways={WHO: URL})


def report_on(view: JobView) -> HeldOut:
    model = view.settled[0].verdict.merged_digest
    assert model is not None
    return HeldOut(view.domain, view.job_id, 1, model, loss_bytes(2.5))


async def asked(view: JobView, folder: Path, notes: dict[str, bytes] | None) -> tuple[object, int]:
    """What is known of the merged model after asking, and how often was asked."""
    figures, gateways = Figures(folder / "figures.sqlite"), Gateways(notes)
    await gather(figures, view, cast(Fetcher, gateways))
    said = known(figures, view)[1].said
    figures.close()
    return said, gateways.asked


async def test_a_signed_report_is_kept_and_not_asked_for_again(
    view: JobView, tmp_path: Path
) -> None:
    report = report_on(view)
    notes = {report.name: report.to_bytes(sign_digest(KEY, report.digest))}
    assert await asked(view, tmp_path, notes) == ({WHO: loss_bytes(2.5)}, 2)
    assert await asked(view, tmp_path, {}) == ({WHO: loss_bytes(2.5)}, 1)


Change = Callable[[HeldOut], HeldOut]


@pytest.mark.parametrize(
    "change",
    [
        lambda report: replace(report, job=JobId(report.job + 1)),
        lambda report: replace(report, merged=2),
        lambda report: replace(report, model=digest("another")),
        lambda report: replace(report, domain=replace(report.domain, chain_id=1)),
    ],
)
async def test_a_report_of_something_else_is_not_believed(
    change: Change, view: JobView, tmp_path: Path
) -> None:
    other = change(report_on(view))
    name = note_name(view.job_id, 1)
    notes = {name: other.to_bytes(sign_digest(KEY, other.digest))}
    assert await asked(view, tmp_path, notes) == ({}, 2)


async def test_a_report_that_another_signed_is_not_believed(view: JobView, tmp_path: Path) -> None:
    report, other = report_on(view), Account.from_key(b"\x08" * 32)
    notes = {report.name: report.to_bytes(sign_digest(other, report.digest))}
    assert await asked(view, tmp_path, notes) == ({}, 2)


async def test_bytes_that_are_no_report_are_left_out(view: JobView, tmp_path: Path) -> None:
    assert await asked(view, tmp_path, {report_on(view).name: b"\xff"}) == ({}, 2)


async def test_a_gateway_that_does_not_answer_is_asked_once(view: JobView, tmp_path: Path) -> None:
    assert await asked(view, tmp_path, None) == ({}, 1)
