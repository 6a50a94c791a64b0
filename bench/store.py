"""Storage: how fast content is added, read back and fetched, against this machine's SHA-256.

    python bench/store.py [--json] [--bytes N] [--folder PATH]

Every measured step runs in a process of its own, whose peak memory is reported with it. Bars: add
and verified get at 60 % of the single-core SHA-256 rate or more (`…_cpu_of_sha256` says the same
of CPU seconds, which other programs on the machine disturb less), under 100 MB; fetching from four
gateways of which one is malicious within 1.5 times the time of four honest ones.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MIB = 1 << 20
GATEWAYS = 4


def step_add(folder: Path) -> str:
    """Adds the file; returns its CID."""
    from atoll.store.local import LocalStore

    return str(LocalStore(folder / "theirs").add_file(folder / "file"))


def step_add_unsynced(folder: Path) -> str:
    """As `step_add`, but leaves the last bytes to the operating system's cache."""
    from atoll.store.local import LocalStore

    return str(LocalStore(folder / "unsynced", sync=False).add_file(folder / "file"))


def step_get(folder: Path, cid: str) -> str:
    """Reads the file back from the store, checking every block."""
    from atoll.store.cid import Cid
    from atoll.store.local import LocalStore

    store = LocalStore(folder / "theirs")
    return str(store.read_file_to(Cid.parse(cid), folder / "out", 1 << 40))


def step_fetch(folder: Path, cid: str, *urls: str) -> str:
    """Fetches the file from gateways into an empty store."""
    from atoll.store import Cid, Fetcher, LocalStore

    async def fetch() -> str:
        store = LocalStore(folder / "ours")
        async with Fetcher(store, lambda: urls) as fetcher:
            await fetcher.fetch(Cid.parse(cid), 1 << 40)
            return json.dumps({source.url: source.bytes_down for source in fetcher.sources.all()})

    return asyncio.run(fetch())


def serve(folder: Path, behaviour: str) -> None:
    """A gateway that is `honest`, `lying` or `stalling`; prints its URL, ends with its input."""
    from aiohttp import web

    from atoll.store import Gateway, LocalStore

    async def lie(_: web.Request) -> web.Response:
        return web.Response(body=os.urandom(MIB))

    async def stall(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise web.HTTPOk

    async def run() -> None:
        if behaviour == "honest":
            gateway = Gateway(LocalStore(folder / "theirs"))
            await gateway.start()
            url = gateway.url
        else:
            app = web.Application()
            app.router.add_get("/{path:.*}", lie if behaviour == "lying" else stall)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.read)

    asyncio.run(run())


STEPS: dict[str, Callable[..., str]] = {
    "add": step_add,
    "add_unsynced": step_add_unsynced,
    "get": step_get,
    "fetch": step_fetch,
}


def run_step(name: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """Runs a step in a process of its own: its result, seconds, CPU seconds, peak MB."""
    command = [sys.executable, __file__, "--folder", str(folder), "--step", name, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def run_fetch(folder: Path, cid: str, behaviours: list[str]) -> dict[str, Any]:
    """Fetches from one gateway process for each behaviour; answers as `run_step`."""
    command = [sys.executable, __file__, "--folder", str(folder), "--serve"]
    servers = [
        subprocess.Popen(
            [*command, behaviour], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for behaviour in behaviours
    ]
    try:
        urls = [server.stdout.readline().strip() for server in servers if server.stdout]
        shutil.rmtree(folder / "ours", ignore_errors=True)
        return run_step("fetch", folder, cid, *urls)
    finally:
        for server in servers:
            server.kill()
            server.communicate()


def measure_sha256(size: int) -> tuple[float, float]:
    """Seconds and CPU seconds that hashlib takes for so many bytes, in blocks of 1 MiB."""
    block = os.urandom(MIB)
    started, cpu_started = time.perf_counter(), time.process_time()
    for _ in range(size // MIB):
        hashlib.sha256(block)
    return time.perf_counter() - started, time.process_time() - cpu_started


def write_file(path: Path, size: int) -> None:
    """Random bytes, so that no file system can be clever."""
    with path.open("wb") as out:
        for _ in range(size // MIB):
            out.write(os.urandom(MIB))


def measure(folder: Path, size: int) -> dict[str, float | int]:
    """Every figure."""
    write_file(folder / "file", size)
    sha_s, sha_cpu_s = measure_sha256(size)
    figures: dict[str, float | int] = {"bytes": size, "sha256_mb_per_s": size / sha_s / 1e6}
    cid = run_step("add", folder)["result"]
    shutil.rmtree(folder / "theirs")
    for name in ("add_unsynced", "add", "get", "fetch"):
        if name == "fetch":
            done = run_fetch(folder, cid, ["honest"] * GATEWAYS)
        else:
            done = run_step(name, folder, *([cid] if name == "get" else []))
        figures[f"{name}_mb_per_s"] = size / done["seconds"] / 1e6
        figures[f"{name}_of_sha256"] = sha_s / done["seconds"]
        figures[f"{name}_cpu_of_sha256"] = sha_cpu_s / done["cpu_seconds"]
        figures[f"{name}_peak_mb"] = done["peak_mb"]
    honest = done["seconds"]
    for behaviour in ("lying", "stalling"):
        done = run_fetch(folder, cid, ["honest"] * (GATEWAYS - 1) + [behaviour])
        figures[f"fetch_with_one_{behaviour}_of_honest"] = done["seconds"] / honest
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    """Prints the figures, or runs one step for the process that measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--step", nargs="+")
    parser.add_argument("--serve")
    options = parser.parse_args()
    if options.serve:
        serve(options.folder, options.serve)
    elif options.step:
        started, cpu_started = time.perf_counter(), time.process_time()
        result = STEPS[options.step[0]](options.folder, *options.step[1:])
        seconds = time.perf_counter() - started
        measured = {
            "result": result,
            "seconds": seconds,
            "cpu_seconds": time.process_time() - cpu_started,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        print(json.dumps(measured))
    else:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            figures = measure(Path(folder), options.bytes)
        lines = [json.dumps({"bench": "store", **figures})]
        if not options.json:
            lines = [f"{name:40} {value}" for name, value in figures.items()]
        print("\n".join(lines))


if __name__ == "__main__":
    main()
