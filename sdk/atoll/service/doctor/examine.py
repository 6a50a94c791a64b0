"""All checks, one after another; what one of them brings about ends there and is its finding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from atoll.errors import AtollError
from atoll.service.doctor.chain_checks import check_chain
from atoll.service.doctor.file_checks import check_disk, check_key, check_modes, check_running
from atoll.service.doctor.findings import Finding, failure
from atoll.service.doctor.gateway_checks import check_gateway
from atoll.service.doctor.machine_checks import (
    check_bls,
    check_memory,
    check_open_files,
    check_python,
    check_torch,
)
from atoll.service.doctor.subject import Subject

Check = Callable[[], Awaitable[list[Finding]]]


async def examine(subject: Subject, *, numerics: bool = True) -> AsyncIterator[Finding]:
    """Every finding, as soon as it is there.

    Args:
        numerics: whether torch is loaded and its arithmetic tried, and what signs in BLS12-381,
            which takes some seconds.
    """
    tried: list[tuple[str, Check]] = [
        ("torch", _apart(lambda: check_torch(subject))),
        ("bls", _apart(check_bls)),
    ]
    checks: list[tuple[str, Check]] = [
        ("python", _apart(check_python)),
        *(tried if numerics else []),
        ("memory", _apart(check_memory)),
        ("open files", _apart(check_open_files)),
        ("key", _apart(lambda: check_key(subject))),
        ("modes", _apart(lambda: check_modes(subject))),
        ("disk", _apart(lambda: check_disk(subject))),
        ("service", _apart(lambda: check_running(subject))),
        ("chain", lambda: check_chain(subject)),
        ("gateway", lambda: check_gateway(subject)),
    ]
    for name, check in checks:
        for finding in await _contained(name, check):
            yield finding


async def _contained(name: str, check: Check) -> list[Finding]:
    try:
        return await check()
    except AtollError as error:
        return [failure(name, str(error), error.next_step or "see the message")]
    except Exception as error:  # whatever is odd about a machine, the other checks are still told
        return [failure(name, f"the check itself failed: {error!r}", "please report this")]


def _apart(check: Callable[[], list[Finding]]) -> Check:
    """In a thread, for it may wait for a disk."""
    return lambda: asyncio.to_thread(check)
