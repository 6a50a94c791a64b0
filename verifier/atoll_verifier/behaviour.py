"""Where a verifier decides for itself. Honest by default; a subclass departs from that on purpose.

Rule of this file: every hook is a pure function of the view, so that a restarted verifier departs
in the same way. Overriding one can cost the fee and the bond: see VERIFIER.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from atoll.protocol.audit_reports import AuditReport
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Bitmap, Digest, Verdict
from atoll.protocol.views import JobView
from atoll.service.duties.game import PLAY, Play
from atoll.service.duties.merge import MERGE_AGAIN, Merge
from atoll.service.duties.replay_seat import REPLAY, Replay
from atoll.service.gateway_process import Serves
from atoll.service.machine import Setup, State


class VerifierBehaviour:
    """An honest verifier.

    Attributes:
        replay_function: the worker's function that replays a seat.
        judge_function: the worker's function that makes our moves in games.
        merge_function: the worker's function that merges what we certify.
        serve_function: the gateway's function that says of a CID whether others get the block;
            None serves all.
    """

    replay_function: Replay = REPLAY
    judge_function: Play = PLAY
    merge_function: Merge = MERGE_AGAIN
    serve_function: Serves | None = None

    def may_join(self, view: JobView) -> bool:
        """Whether to join now, everything else being ready."""
        return True

    def pick_index(self, view: JobView, free: Sequence[int]) -> int | None:
        """Which free slot to take; None leaves it to chance, so that two do not want one."""
        return None

    def may_say_ready(self, view: JobView) -> bool:
        """Whether to say now that the data is here, which helps to open the job."""
        return True

    def is_offline(self, view: JobView) -> bool:
        """Whether the rounds' work is left undone."""
        return False

    def vote_override(self, view: JobView, has: Bitmap) -> Bitmap:
        """What is said to be available instead of what is."""
        return has

    def verdict_override(self, view: JobView, verdict: Verdict) -> Verdict:
        """What is signed of a round instead of what our merge gave."""
        return verdict

    def signs_without(self, view: JobView) -> bool:
        """Whether a merge is signed that lacks an update which most members say to have."""
        return False

    def skips_signing(self, view: JobView) -> bool:
        """Whether no verdict is signed."""
        return False

    def audit_report_override(self, view: JobView, body: AuditReport) -> AuditReport:
        """What is reported instead of what was found."""
        return body

    def sent_audit_report(self, settled_round: SettledRound, audit_report: Digest) -> Digest | None:
        """What is sent as our sealed audit report of a settled round; None while nothing is."""
        return audit_report

    def may_accuse(self, view: JobView) -> bool:
        """Whether what we found wrong is brought before the judge."""
        return True

    def skips_opening(self, view: JobView) -> bool:
        """Whether audit reports are not opened."""
        return False


VerifierState: TypeAlias = State[Setup[VerifierBehaviour]]
