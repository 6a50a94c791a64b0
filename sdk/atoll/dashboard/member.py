"""What a page shows of one account, as one JSON document: its stake, its parts in jobs, and what
became of every amount.

Rule of this file: pure; counted from the deployment's events, with the statements that
`atoll earnings --explain` prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from atoll.chain.indexed import Indexed
from atoll.dashboard.network_document import Stakes, bonds_of
from atoll.job.account import statements
from atoll.job.event_text import Names, describe, words
from atoll.job.ledger.entries import State, log_line
from atoll.job.ledger.json_document import LOG_LINES, holder_document, name_of
from atoll.job.ledger.statements import Statement
from atoll.protocol.types import Address, JobId, Role
from atoll.protocol.views import JobView

LINES: Final = 400
"""Lines of a job's statement that a page has at most, the newest."""


def member_document(
    account: Address,
    views: Mapping[JobId, JobView],
    items: Sequence[Indexed],
    now: int,
    names: Mapping[Address, str] | None = None,
) -> dict[str, Any]:
    """The document of an account; an empty one where nobody ever heard of it.

    Args:
        views: every job that exists; items: every event, oldest first.
        now: the chain's clock, unix seconds.
    """
    stakes, by_job = Stakes.of(items), statements(views, items, account, now)
    return stakes.of_account(account, bonds_of(views)) | {
        "kind": "member",
        "name": name_of(names or {})(account),
        "now": now,
        "block": stakes.block,
        "sums": _sums(by_job),
        "jobs": [_job(each, views[each.job], account) for each in by_job],
        "log": _log(account, items, name_of(names or {})),
    }


def _sums(by_job: Sequence[Statement]) -> dict[str, str]:
    states = {f"{s.name.lower()}_wei": str(sum(each.total(s) for each in by_job)) for s in State}
    held = sum(part.wei for each in by_job for part in each.retained)
    penalty = str(sum(each.penalty for each in by_job))
    return states | {"penalty_wei": penalty, "retained_wei": str(held)}


def _job(statement: Statement, view: JobView, account: Address) -> dict[str, Any]:
    everyone = (holder for role in Role for holder in view.holders(role).values())
    plain = statement.to_json_value()
    return {
        **plain,
        "lines": plain["lines"][-LINES:],
        "excluded": max(0, len(statement.lines) - LINES),
        "status": words(view.status),
        "holdings": [holder_document(held) for held in everyone if held.account == account],
    }


def _log(account: Address, items: Sequence[Indexed], name: Names) -> dict[str, Any]:
    """What was said by it or about it."""
    concerned = (item for item in items if getattr(item.event, "account", None) == account)
    described = [(item, describe(item.event, name)) for item in concerned]
    lines = [
        log_line(text, i) | {"time": i.block.timestamp} for i, text in described if text is not None
    ]
    return {"count": len(lines), "lines": lines[-LOG_LINES:]}
