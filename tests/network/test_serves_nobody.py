"""A committee certifies what it merged, and serves nobody: no honest seat misses a duty."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.network.members import Site, Who, is_settled_up, network
from tests.network.test_applied_merges import everybody_applies, logs_of

COMMITTEE = Who(verifiers=dict.fromkeys(range(3), "serves-nobody"))
SHORT: Mapping[str, Any] = {"rounds": 2, "train_seconds": 300}
"""A quarter of TRAIN is waited for a merged update, which is not skipped."""


async def test_seats_merge_by_themselves_what_they_have_of_one_another(site: Site) -> None:
    async with network(site, COMMITTEE, before=everybody_applies, **SHORT) as running:
        view = await running.until(is_settled_up)
        logs = logs_of(running)
    assert [settled_round.verdict.merged for settled_round in view.settled] == [4, 4]
    assert not any(holder.penalties or holder.is_slashed for holder in view.providers.values())
    for log in logs:
        assert re.search(r'"merge\.v1:0[^}]*"finished"', log)
