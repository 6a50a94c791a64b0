"""An account over all its jobs: what one of them brings about does not hide the others."""

from __future__ import annotations

from tests.unit.law.script import PROVIDERS, Script

from atoll.job.account import Known
from atoll.law.words import JobId

ME = PROVIDERS[0]


def test_a_job_that_cannot_be_counted_is_told_beside_the_others() -> None:
    script = Script.ready()
    script.honest_round()
    net = script.net
    events = [event for event, _ in net.log]
    own = {JobId(3): events, net.job: events}
    known = Known(net.block, events, own, {net.job: net.view})
    broken, whole = known.statements(ME)
    assert broken.faults == ("job 3 cannot be counted: KeyError(3)",)
    assert (broken.lines, whole.faults) == ((), ())
    assert [line.round for line in whole.lines] == [0, 1]
