"""What happens in a job: for programs, and as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atoll.job.figures import RoundFigures
    from atoll.job.job_snapshot import JobSnapshot
    from atoll.job.job_update import JobUpdate
    from atoll.job.signs import Signs


def sign_lines(signs: Signs) -> list[str]:
    """What speaks against a job's models, a line each."""
    return [f"warning    {line}" for line in signs.lines()]


def after_the_end(snapshot: JobSnapshot) -> str:
    """That a job has ended, and what its submitter does then."""
    return f"job {snapshot.job} has ended: {snapshot.next_command}"


def while_it_waits(snapshot: JobSnapshot) -> str:
    """What a job that waits for members lacks, and what its submitter can do; else empty."""
    if not snapshot.lacking:
        return ""
    return f"job {snapshot.job} waits for members: {snapshot.lacking}. {snapshot.next_command}"


def cancelled_text(snapshot: JobSnapshot, refunded: int, *, already: bool) -> str:
    """What a cancelled job comes to, and where its money is; `refunded` is in wei."""
    from atoll.job.event_text import tokens

    what = f"job {snapshot.job} is cancelled{' already' if already else ''}"
    if not snapshot.has_ended:
        what += ", and ends with the running round"
    back = f"{tokens(refunded)} tokens of it came back to its submitter"
    rest = f"`atoll job refund {snapshot.job}` brings back what nobody can earn"
    return f"{what}; {back}, and {rest}"


def item_to_json_value(item: JobUpdate | RoundFigures) -> dict[str, Any]:
    """What happened, or what a round came to, as JSON has it."""
    from atoll.job.figures import RoundFigures

    if isinstance(item, RoundFigures):
        return {"kind": "Evaluated", "text": item.text(), **item.to_json_value()}
    return update_to_json_value(item)


def text_of(item: JobUpdate | RoundFigures) -> str:
    """The same in a sentence; imported late, since `--help` waits for it."""
    from atoll.job.followed import sentence

    return sentence(item)


def update_to_json_value(update: JobUpdate) -> dict[str, Any]:
    """An event of a job, with its block's number and unix seconds."""
    block = update.block
    what = {"kind": update.kind, "text": update.text}
    return what | {"block": block.number, "time": block.timestamp}
