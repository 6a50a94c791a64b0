"""What cheating verifiers decide. What they compute is in `replays`, which the worker runs.

Rule of this file: a class decides one thing, and only that, so that cheats combine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Final

from atoll.protocol.audit_reports import VALID, AuditEntry, AuditReport
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Bitmap, Digest, Verdict
from atoll.protocol.views import JobView
from atoll.service.duties.game import Play
from atoll.service.duties.merge import Merge
from atoll.service.duties.replay_seat import Replay
from atoll.service.gateway_process import Serves
from atoll.service.task import Task
from atoll_devnet.cheats import serving
from atoll_verifier.behaviour import VerifierBehaviour

_REPLAYS: Final = "atoll_devnet.cheats.replays"
_MERGES: Final = "atoll_devnet.cheats.merges"
_PLAYERS: Final = "atoll_devnet.cheats.players"
GUESSED: Final[Replay] = Task("cheat-guessed-replay.v1", _REPLAYS)
UNCHECKED: Final[Replay] = Task("cheat-unchecked-replay.v1", _REPLAYS)
ALWAYS_VALID: Final[Replay] = Task("cheat-always-valid.v1", _REPLAYS)
SHAM_MOVE: Final[Play] = Task("cheat-sham-move.v1", _PLAYERS)
WRONG_COORDINATE: Final[Merge] = Task("cheat-wrong-coordinate.v1", _MERGES)
WRONG_EXPONENT: Final[Merge] = Task("cheat-wrong-exponent.v1", _MERGES)
WRONG_GRAM: Final[Merge] = Task("cheat-wrong-gram.v1", _MERGES)
WRONG_LEAF: Final[Merge] = Task("cheat-wrong-leaf.v1", _MERGES)
DROPPED: Final[Merge] = Task("cheat-dropped.v1", _MERGES)
SHAM_REPLAY: Final[Replay] = Task("cheat-sham-replay.v1", _PLAYERS)


class Null(VerifierBehaviour):
    """Would be paid for duties without the work."""

    replay_function: Replay = GUESSED


class LazyCheck(VerifierBehaviour):
    """Would be paid for a replay without the forward passes that its ids ask for."""

    replay_function: Replay = UNCHECKED


class Copier(VerifierBehaviour):
    """Waits for somebody who did the work; what it repeats has that one's address in it."""

    replay_function: Replay = GUESSED

    def sent_audit_report(self, settled_round: SettledRound, audit_report: Digest) -> Digest | None:
        return next(iter(settled_round.audit_reports.values()), None)

    def skips_opening(self, view: JobView) -> bool:
        return True


class NoOpen(VerifierBehaviour):
    """Keeps what it found to itself."""

    def skips_opening(self, view: JobView) -> bool:
        return True


class NoSign(VerifierBehaviour):
    """Would hold up the job."""

    def skips_signing(self, view: JobView) -> bool:
        return True


class WrongMerge(VerifierBehaviour):
    """Names a model that does not follow from the round; two thirds of them make it the job's."""

    def verdict_override(self, view: JobView, verdict: Verdict) -> Verdict:
        other = sha256(b"elsewhere" + verdict.state).digest()
        return replace(verdict, state=Digest(other))


class WrongCoordinate(VerifierBehaviour):
    """Certifies a merge that is another at one number, and a model that follows from it."""

    merge_function: Merge = WRONG_COORDINATE


class WrongExponent(VerifierBehaviour):
    """Certifies another next exponent than votes make, and a model that follows from it."""

    merge_function: Merge = WRONG_EXPONENT


class WrongGram(VerifierBehaviour):
    """Certifies an inner product that no updates have, and all that follows from it."""

    merge_function: Merge = WRONG_GRAM


class WrongLeaf(VerifierBehaviour):
    """Certifies a right merge, and a model that its outer step does not give."""

    merge_function: Merge = WRONG_LEAF


class Dropped(VerifierBehaviour):
    """Certifies a merge without an update that its own vote has."""

    merge_function: Merge = DROPPED

    def signs_without(self, view: JobView) -> bool:
        return True


class ServesNobody(VerifierBehaviour):
    """Takes what is brought and certifies it; what follows from it, nobody gets."""

    serve_function: Serves | None = serving.NOTHING


class FalseHave(VerifierBehaviour):
    """Would take pay from who served and give it to who did not."""

    def vote_override(self, view: JobView, has: Bitmap) -> Bitmap:
        return Bitmap(view.open.revealed & ~has) if view.open else has


class FalseMismatch(VerifierBehaviour):
    """Accuses somebody honest, says nothing of anybody else's faults, and plays what it said."""

    judge_function: Play = SHAM_MOVE

    def audit_report_override(self, view: JobView, body: AuditReport) -> AuditReport:
        honest = next((entry.seat for entry in body.entries if entry.is_valid), None)
        return AuditReport(tuple(_accusing(entry, entry.seat == honest) for entry in body.entries))


def _accusing(entry: AuditEntry, is_accused: bool) -> AuditEntry:
    if is_accused:
        return AuditEntry(entry.seat, 0, Digest(sha256(b"elsewhere" + entry.digest).digest()))
    return entry if entry.is_valid else AuditEntry(entry.seat, VALID, entry.digest)


class NoChallenge(VerifierBehaviour):
    """Has a seat excluded from the next merges for nothing, and dares no bond for it."""

    def may_accuse(self, view: JobView) -> bool:
        return False


class FalseValid(VerifierBehaviour):
    """Lets everybody pass, and says the digests of an honest run."""

    replay_function: Replay = ALWAYS_VALID

    def may_accuse(self, view: JobView) -> bool:
        return False


class Offline(VerifierBehaviour):
    """Joins, says it is ready, and is never heard of again."""

    def is_offline(self, view: JobView) -> bool:
        return view.open is not None or bool(view.settled)


BEHAVIOURS: Mapping[str, type[VerifierBehaviour]] = {
    "null": Null,
    "copier": Copier,
    "no-open": NoOpen,
    "no-sign": NoSign,
    "wrong-merge": WrongMerge,
    "wrong-coordinate": WrongCoordinate,
    "wrong-exponent": WrongExponent,
    "wrong-gram": WrongGram,
    "wrong-leaf": WrongLeaf,
    "dropped": Dropped,
    "serves-nobody": ServesNobody,
    "false-have": FalseHave,
    "false-mismatch": FalseMismatch,
    "no-challenge": NoChallenge,
    "false-valid": FalseValid,
    "lazy-check": LazyCheck,
    "offline": Offline,
}
