"""Which files of a job's beginning our gateway takes from whoever brings them: what we asked for
and nobody had.

Rule of this file: nothing is taken that we would not fetch. Of a job that its terms, our policy,
this machine or a better job keep us from, that is nothing; and of a file no more than we would
fetch.
"""

from __future__ import annotations

from typing import TypeVar

from atoll.service.accepted_files import longest
from atoll.service.duties.material import MATERIAL, decide_material, wanted_files
from atoll.service.machine import State
from atoll.storage.cid import Cid

S = TypeVar("S")


def asked_files(state: State[S]) -> dict[Cid, int]:
    """The files of a job's manifest or data, with the bytes that each may have."""
    if MATERIAL not in state.reasons:  # it does not look at the job
        return {}
    commands = decide_material(state).commands
    # What was not tried yet may be served by somebody, or not be for us.
    failed = (command for command in commands if command.key in state.holds)
    return longest({cid: most} for command in failed for cid, most in wanted_files(command))
