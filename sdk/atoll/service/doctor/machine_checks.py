"""Python, torch and the kernels; memory and open files."""

from __future__ import annotations

import os
import platform
import resource
import sys
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from atoll.errors import AtollError
from atoll.numerics.kernels.devices import CPU_NAME, told_devices
from atoll.service.doctor.findings import Finding, failure, ok, warning
from atoll.service.doctor.subject import Subject
from atoll.train import memory_limit

LEAST_PYTHON: Final = (3, 11)
LEAST_MEMORY: Final = 1 << 30
USUAL_MEMORY: Final = 4 << 30
"""The least model that is worth a round takes about so much; `atoll job check` has a job's own."""
USUAL_FILES: Final = 4096
"""A store, its journals, and a gateway with as many connections as it admits."""
MEMINFO: Final = Path("/proc/meminfo")


def check_python() -> list[Finding]:
    """The interpreter."""
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < LEAST_PYTHON:
        wanted = ".".join(map(str, LEAST_PYTHON))
        return [failure("python", text, f"install Python {wanted} or newer")]
    return [ok("python", text)]


def check_torch(subject: Subject) -> list[Finding]:
    """Whether torch is here, and whether this machine's arithmetic gives everybody's bits."""
    try:
        installed = version("torch")
    except PackageNotFoundError:
        text = "torch is not installed: this machine can neither train nor replay"
        return [failure("torch", text, "pip install 'atoll[train]'")]
    return [ok("torch", installed), *_check_devices(subject)]


def _check_devices(subject: Subject) -> list[Finding]:
    """That each is there, and computes rightly; processors of one machine are all alike."""
    # torch takes a second to load: only who asks for this check pays it.
    from atoll.train.devices_here import there  # noqa: PLC0415

    try:
        devices = told_devices() if subject.devices is None else subject.devices
        names = (CPU_NAME,) if devices is None else there(devices)
    except AtollError as error:
        return [failure("devices", str(error), error.next_step or "atoll numerics verify")]
    ranks = "a rank" if len(names) == 1 else f"{len(names)} ranks"
    kernels = [each for name in dict.fromkeys(names) for each in _check_kernels(name)]
    return [ok("devices", f"{ranks} on {', '.join(names)}"), *kernels]


def _check_kernels(device: str) -> list[Finding]:
    import torch  # noqa: PLC0415 (as above)

    from atoll.numerics.kernels.engine import make_engine  # noqa: PLC0415 (as above)

    kind = torch.device(device).type
    try:
        # What computes on a GPU takes CUDA's current one.
        with nullcontext() if kind == "cpu" else torch.cuda.device(device):
            engine = make_engine(device=kind)
    except AtollError as error:
        return [failure("kernels", str(error), error.next_step or "atoll numerics verify")]
    how = f"{engine.route.name} products and {engine.kernels.name} kernels"
    text = f"on the device {device}, {how} give the known bits"
    if engine.kernels.name == "eager":
        also = "" if kind == "cpu" else " and PyTorch 2.10 or newer, built for CUDA"
        step = f"install a C compiler (gcc or clang){also}, then run this again"
        return [warning("kernels", f"{text}, and are the slow ones", step)]
    return [ok("kernels", text)]


def check_bls() -> list[Finding]:
    """What signs and checks certificates in BLS12-381, tried against the reference."""
    from atoll.protocol.bls_library import in_use  # noqa: PLC0415

    used = in_use()
    if used.reason is not None:
        text = f"certificates in BLS12-381 by {used.library.name}, the slow one: {used.reason}"
        return [warning("bls", text, "pip install --force-reinstall py-arkworks-bls12381")]
    return [ok("bls", f"{used.library.name} gives what the reference gives")]


def check_memory() -> list[Finding]:
    """What is free of the memory that this process may use."""
    total, free = memory()
    text = f"{_gib(free)} free of {_gib(total)}"
    if total < LEAST_MEMORY:
        return [failure("memory", text, f"use a machine with at least {_gib(LEAST_MEMORY)}")]
    if total < USUAL_MEMORY:
        step = "look at what a job needs before you join it: `atoll job check`"
        return [warning("memory", text, step)]
    return [ok("memory", text)]


def memory() -> tuple[int, int]:
    """Bytes that this process may use, and those of them that nobody needs now: all, where the
    system does not say.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    total = free = os.sysconf("SC_PHYS_PAGES") * page
    if "SC_AVPHYS_PAGES" in os.sysconf_names:  # macOS has none
        free = max(os.sysconf("SC_AVPHYS_PAGES") * page, _available() or 0)
    limit = memory_limit.cgroup_limit()
    return (total, free) if limit is None or limit >= total else (limit, min(free, limit))


def _available() -> int | None:
    """With what the system would give back at once, as Linux counts it."""
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    words = next((line.split() for line in lines if line.startswith("MemAvailable:")), [])
    return int(words[1]) << 10 if len(words) > 1 and words[1].isdigit() else None


def check_open_files() -> list[Finding]:
    """How many files and connections a process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = soft == resource.RLIM_INFINITY
    text = "no limit" if unlimited else f"{soft} at once"
    if not unlimited and soft < USUAL_FILES:
        may = "" if hard == resource.RLIM_INFINITY or hard >= USUAL_FILES else " as root"
        return [warning("open files", text, f"ulimit -n {USUAL_FILES}{may}")]
    return [ok("open files", text)]


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
