"""report.html: a run as a page, with what its members measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from atoll.dashboard.document import Seen, job_document
from atoll.job.figures import known
from atoll.protocol.held_out import loss_bytes
from atoll_devnet.report.document import RunResult

MEASURED: Final = (
    "utilisation",
    "bytes",
    "uplink_bytes_per_parameter",
    "downlink_bytes_per_parameter",
    "audit_overhead",
    "gas",
)
"""What report.json has, and no chain."""


def run_document(result: RunResult, report: Mapping[str, Any], now: int) -> dict[str, Any]:
    """The document of a run's job.

    Args:
        report: as written to report.json.
        now: the chain's clock, unix seconds.
    """
    figures = [
        replace(item, own=loss_bytes(result.losses[item.merged - 1]))
        if item.certified is None and item.merged - 1 in result.losses
        else item
        for item in known(None, result.view)
    ]
    names = {member.account: member.name for member in result.cluster.members}
    measured = {name: report[name] for name in MEASURED}
    seen = Seen(result.view, result.history.items, now, figures, names, measured)
    return job_document(seen)
