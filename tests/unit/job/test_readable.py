"""Jobs as a notebook shows them, where nothing can be waited for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from tests.unit.dashboard.jobs import finished

from atoll.job.client import Client
from atoll.job.event_text import tokens
from atoll.job.handle import JobHandle
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.readable import table_html
from atoll.protocol.types import JobId


@dataclass
class Looked:
    """A client, open or not, that has looked at a job, or has not."""

    last: JobSnapshot | None
    is_open: bool = True

    @property
    def follower(self) -> Looked:
        assert self.is_open
        return self

    def snapshot(self, job: JobId) -> JobSnapshot | None:
        assert job == 7
        return self.last


def shown(client: Looked) -> str:
    return JobHandle(cast(Client, client), JobId(7))._repr_html_()


def test_a_status_prints_words_and_tokens() -> None:
    snapshot = JobSnapshot.of(finished().net.view)
    text = str(snapshot)
    assert f"funded     {tokens(snapshot.funded_wei)} tokens" in text.splitlines()
    assert str(snapshot.funded_wei) not in text
    assert "JobStatus" not in text and "Phase" not in text
    assert text.splitlines()[-1] == f"next       {snapshot.next_command}"


def test_a_status_displays_the_same_lines_as_a_table() -> None:
    snapshot = JobSnapshot.of(finished().net.view)
    html = snapshot._repr_html_()
    assert html.count("<tr>") == len(snapshot.lines()) == len(str(snapshot).splitlines())
    assert f"{tokens(snapshot.paid_wei)} tokens</td>" in html


def test_a_job_displays_where_it_stood_at_the_last_look() -> None:
    snapshot = replace(JobSnapshot.of(finished().net.view), paid_wei=5 * 10**17)
    assert shown(Looked(snapshot)) == snapshot._repr_html_()
    assert "0.5 tokens" in shown(Looked(snapshot))


def test_a_job_that_was_not_looked_at_says_how_to() -> None:
    for client in (Looked(None), Looked(None, is_open=False)):
        assert "await job.status()" in shown(client)


def test_what_strangers_wrote_stays_text() -> None:
    html = table_html("job <1>", {"name & all": "<script>alert(1)</script>"})
    assert "<script>" not in html
    assert "job &lt;1&gt;" in html and "name &amp; all" in html
