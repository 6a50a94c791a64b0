"""Where a job stands and what happens in it: for programs, and as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atoll.cli.output import moment

if TYPE_CHECKING:
    from atoll.job.figures import RoundFigures
    from atoll.job.job_snapshot import JobSnapshot
    from atoll.job.job_update import JobUpdate
    from atoll.job.signs import Signs


def snapshot_text(snapshot: JobSnapshot) -> str:
    """Lines for a person; of a job that has ended, or waits for members, with what can be done."""
    from atoll.job.event_text import tokens

    data = snapshot.to_json_value()
    out = snapshot.paid_wei + snapshot.burnt_wei + snapshot.refunded_wei
    until = f", until {moment(snapshot.deadline)} at the latest" if snapshot.deadline else ""
    lines = {
        "job": snapshot.job,
        "status": data["status"],
        "phase": f"{data['phase']}{until}",
        "rounds": f"{snapshot.settled_rounds} of {snapshot.rounds} settled, "
        f"{snapshot.final_rounds} final",
        "members": f"{snapshot.providers} providers; {snapshot.verifiers} verifiers, "
        f"{snapshot.ready} of them ready",
        "funded": f"{tokens(snapshot.funded_wei)} tokens",
        "paid": f"{tokens(snapshot.paid_wei)} tokens",
        "burnt": f"{tokens(snapshot.burnt_wei)} tokens",
        "refunded": f"{tokens(snapshot.refunded_wei)} tokens",
        "left": f"{tokens(snapshot.funded_wei - out)} tokens",
        "model": data["model_digest"] or "none is certified",
    }
    if data["model_cid"] is not None:
        lines["model CID"] = data["model_cid"]
    if snapshot.lacking:
        lines["waits"] = f"for members: {snapshot.lacking}; without them it ends at "
        lines["waits"] += moment(snapshot.expiry)
    if snapshot.has_ended or snapshot.lacking:
        lines["next"] = _next(snapshot)
    return "\n".join(f"{name:<10} {value}" for name, value in lines.items())


def sign_lines(signs: Signs) -> list[str]:
    """What speaks against a job's models, a line each."""
    return [f"warning    {line}" for line in signs.lines()]


def after_the_end(snapshot: JobSnapshot) -> str:
    """That a job has ended, and what its submitter does then."""
    return f"job {snapshot.job} has ended: {_next(snapshot)}"


def while_it_waits(snapshot: JobSnapshot) -> str:
    """What a job that waits for members lacks, and what its submitter can do; else empty."""
    if not snapshot.lacking:
        return ""
    return f"job {snapshot.job} waits for members: {snapshot.lacking}. {_next(snapshot)}"


def cancelled_text(snapshot: JobSnapshot, refunded: int, *, already: bool) -> str:
    """What a cancelled job comes to, and where its money is; `refunded` is in wei."""
    from atoll.job.event_text import tokens

    what = f"job {snapshot.job} is cancelled{' already' if already else ''}"
    if not snapshot.has_ended:
        what += ", and ends with the running round"
    back = f"{tokens(refunded)} tokens of it came back to its submitter"
    rest = f"`atoll job refund {snapshot.job}` brings back what nobody can earn"
    return f"{what}; {back}, and {rest}"


def _next(snapshot: JobSnapshot) -> str:
    back = f"`atoll job refund {snapshot.job}` takes back what nobody earned"
    if snapshot.lacking:
        serves = f"`atoll job serve {snapshot.job}` serves the data, which verifiers need"
        return f"{serves}; `atoll job cancel {snapshot.job}` ends the job at once, then {back}"
    if not snapshot.settled_rounds:
        return back
    when = "" if snapshot.is_final else ", once its last round is final"
    return f"`atoll job result {snapshot.job} DIR` fetches the model{when}; {back}"


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
    told = {"kind": update.kind, "text": update.text}
    return told | {"block": block.number, "time": block.timestamp}
