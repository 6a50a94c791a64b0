"""Storage: how fast content is added, read back and fetched, against this machine's SHA-256.

    python bench/store.py [--json] [--bytes N] [--fetch-bytes N] [--rounds N] [--folder PATH]
                          [--daemon URL]

Every step runs in a process of its own, whose peak memory is reported with it. The machine's other
load comes and goes, so each round measures hashlib right before and after every step, the step is
held against the mean of the two, and medians over the rounds are reported; `…_cpu_of_sha256` says
the same of CPU seconds. Bars: `add_of_sha256` and `get_of_sha256` at 0.6 or more, peaks under
100 MB, and fetching from four gateways of which one is malicious within 1.5 times the time of four
honest ones (`fetch_with_…_of_honest`). A fetch shares the processors with the gateways that serve
it, which also hash every block: `fetch_of_sha256` is of that whole.

Adding writes the file to the disk once. `read` is getting it for a reader, `get` into another file:
that reads the disk and writes it again, and ends when the disk has it. `copy` moves as much in the
same way and hashes nothing: what the disk leaves room for. `dd` does the same in its way
(`dd_write_…`, `dd_copy_…`), after all of ours, since a disk in the cloud slows down with what it
was given before.

Where an IPFS daemon's RPC answers at `--daemon` (http://127.0.0.1:5001), the fetched file is also
added and got through it by ipfshttpclient, in chunks as ours: `daemon_…`.

Every step has a folder of its own until the end (about 15 GB with the defaults): a file system that
has just removed thousands of files is slower, as ext4 without a journal, which keeps their inodes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import Request, urlopen

from aiohttp import web

from atoll.storage import Cid, Fetcher, Gateway, LocalStore
from atoll.storage.direct import Buffers, OutFile
from atoll.storage.kubo import kubo_multiaddr

MIB = 1 << 20
GATEWAYS = 4
THREADS = 5
SHA_BYTES = 256 * MIB
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def step_add(folder: Path) -> str:
    """Adds the file; returns its CID."""
    return str(LocalStore(folder / "theirs").add_file(folder / "file"))


def step_get(folder: Path, cid: str) -> str:
    """Reads the file back from the store, checking every block."""
    return str(LocalStore(folder / "theirs").read_file_to(Cid.parse(cid), folder / "out", 1 << 40))


def step_read(folder: Path, cid: str) -> str:
    """Reads the file from the store for whoever wants its bytes, checking every block."""
    pieces = LocalStore(folder / "theirs").iter_bytes(Cid.parse(cid), 1 << 40)
    return str(sum(map(len, pieces)))


def step_copy(folder: Path) -> str:
    """Moves the bytes that getting moves, and hashes nothing: what the disk would allow."""
    source, out = os.open(folder / "file", os.O_RDONLY | os.O_DIRECT), OutFile(folder / "copy")
    size, buffers = os.fstat(source).st_size, Buffers(THREADS, MIB)
    out.reserve(size)

    def copy(offset: int) -> None:
        with buffers.borrowed() as buffer:
            out.write(memoryview(buffer)[: os.preadv(source, [buffer], offset)], offset)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(copy, range(0, size, MIB)))
    out.sync()
    out.close()
    return str(size)


def step_fetch(folder: Path, cid: str, *urls: str) -> str:
    """Fetches the file from gateways into an empty store."""

    async def fetch() -> str:
        async with Fetcher(LocalStore(folder / "ours"), lambda: urls) as fetcher:
            await fetcher.fetch(Cid.parse(cid), 1 << 40)
            return json.dumps({source.url: source.bytes_down for source in fetcher.sources.all()})

    return asyncio.run(fetch())


def step_daemon_add(folder: Path, url: str) -> str:
    """Adds the file through a daemon."""
    with daemon_client(url) as client:
        options = {"chunker": "size-1048576", "raw_leaves": True, "cid_version": 1, "pin": False}
        return str(client.add(folder / "file", **options)["Hash"])


def step_daemon_get(folder: Path, url: str, cid: str) -> str:
    """Gets the file back through a daemon."""
    with daemon_client(url) as client:
        client.get(cid, target=folder / "from-daemon")
    [file] = (folder / "from-daemon").iterdir()  # daemons spell its name in one base or another
    return str(file.stat().st_size)


STEPS: dict[str, Callable[..., str]] = {
    "add": step_add,
    "get": step_get,
    "read": step_read,
    "copy": step_copy,
    "fetch": step_fetch,
    "daemon_add": step_daemon_add,
    "daemon_get": step_daemon_get,
}


def daemon_client(url: str) -> Any:
    """ipfshttpclient on a daemon's RPC; a context manager."""
    warnings.filterwarnings("ignore", module="ipfshttpclient|urllib3")
    client = importlib.import_module("ipfshttpclient").Client
    return client(kubo_multiaddr(url), timeout=600)


def daemon_version(url: str) -> str | None:
    """What answers at the RPC's address; None where nothing does, or its client is missing."""
    if importlib.util.find_spec("ipfshttpclient") is None:
        return None
    try:
        with urlopen(Request(f"{url}/api/v0/version", method="POST"), timeout=5) as answer:
            return str(json.load(answer)["Version"])
    except OSError:
        return None


async def lie(_: web.Request) -> web.StreamResponse:
    """Other bytes of the right length."""
    return web.Response(body=os.urandom(MIB))


async def stall(_: web.Request) -> web.StreamResponse:
    """Nothing, for ever."""
    await asyncio.Event().wait()
    raise web.HTTPOk


async def drip(request: web.Request) -> web.StreamResponse:
    """A byte now and then."""
    response = web.StreamResponse(headers={"Content-Length": str(MIB)})
    await response.prepare(request)
    while True:
        await response.write(b"x")
        await asyncio.sleep(0.2)


async def flood(request: web.Request) -> web.StreamResponse:
    """Bytes without end."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(bytes(MIB))


async def cut(request: web.Request) -> web.StreamResponse:
    """Half of what was promised."""
    response = web.StreamResponse(headers={"Content-Length": str(MIB)})
    await response.prepare(request)
    await response.write(bytes(MIB // 2))
    assert request.transport is not None
    request.transport.abort()
    return response


MALICIOUS: dict[str, Handler] = {
    "lying": lie,
    "stalling": stall,
    "dripping": drip,
    "flooding": flood,
    "truncating": cut,
}


def serve(folder: Path, behaviour: str) -> None:
    """A gateway, honest or not; prints its URL, ends with its input."""

    async def run() -> None:
        if behaviour == "honest":
            gateway = Gateway(LocalStore(folder / "theirs"))
            await gateway.start()
            url = gateway.url
        else:
            app = web.Application()
            app.router.add_get("/{path:.*}", MALICIOUS[behaviour])
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.read)

    asyncio.run(run())


@contextmanager
def gateways(folder: Path, behaviours: list[str]) -> Iterator[list[str]]:
    """The URLs of one gateway process for each behaviour."""
    command = [sys.executable, __file__, "--folder", str(folder), "--serve"]
    servers = [
        subprocess.Popen(
            [*command, behaviour],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Malicious ones are cut off all the time, and would say so.
            stderr=None if behaviour == "honest" else subprocess.DEVNULL,
            text=True,
        )
        for behaviour in behaviours
    ]
    try:
        yield [server.stdout.readline().strip() for server in servers if server.stdout]
    finally:
        for server in servers:
            server.kill()
            server.communicate()


def run_step(name: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """Runs a step in a process of its own: its result, seconds, CPU seconds, peak MB."""
    command = [sys.executable, __file__, "--folder", str(folder), "--step", name, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def sha256_rates() -> tuple[float, float]:
    """Bytes a second and a CPU second that hashlib hashes in one thread, in blocks of 1 MiB."""
    block = os.urandom(MIB)
    started, cpu_started = time.perf_counter(), time.process_time()
    for _ in range(SHA_BYTES // MIB):
        hashlib.sha256(block)
    cpu_s, seconds = time.process_time() - cpu_started, time.perf_counter() - started
    return SHA_BYTES / seconds, SHA_BYTES / cpu_s


def write_file(path: Path, size: int) -> None:
    """Random bytes, so that no file system can be clever; on the disk when this returns."""
    with path.open("wb") as out:
        for start in range(0, size, MIB):
            out.write(os.urandom(min(MIB, size - start)))
        out.flush()
        os.fsync(out.fileno())


class Figures:
    """Samples by name, and their medians."""

    def __init__(self) -> None:
        self._samples: defaultdict[str, list[float]] = defaultdict(list)

    def measure(self, name: str, size: int, folder: Path, *arguments: str) -> dict[str, Any]:
        """Runs a step between two looks at hashlib."""
        before = sha256_rates()
        done = run_step(name, folder, *arguments)
        after = sha256_rates()
        rate, cpu_rate = ((b + a) / 2 for b, a in zip(before, after, strict=True))
        self._samples["sha256_mb_per_s"].append(rate / 1e6)
        self._samples[f"{name}_mb_per_s"].append(size / done["seconds"] / 1e6)
        self._samples[f"{name}_of_sha256"].append(size / done["seconds"] / rate)
        self._samples[f"{name}_cpu_of_sha256"].append(size / done["cpu_seconds"] / cpu_rate)
        self._samples[f"{name}_peak_mb"].append(done["peak_mb"])
        return done

    def add(self, name: str, value: float) -> None:
        """One more sample."""
        self._samples[name].append(value)

    def medians(self) -> dict[str, float]:
        """The figures, in the order in which they were first taken."""
        return {name: round(median(values), 3) for name, values in self._samples.items()}


def dd(source: Path, target: Path, *flags: str) -> float:
    """Seconds that dd takes to copy a file to the disk, past the page cache."""
    command = ["dd", f"if={source}", f"of={target}", "bs=4M", "oflag=direct", "conv=fsync", *flags]
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def measure_local(figures: Figures, folder: Path, size: int) -> tuple[float, float]:
    """One round of adding and reading back; their seconds."""
    added = figures.measure("add", size, folder)
    got = figures.measure("get", size, folder, added["result"])
    figures.measure("read", size, folder, added["result"])
    figures.measure("copy", size, folder)
    (folder / "out").unlink()
    return added["seconds"], got["seconds"]


def measure_dd(figures: Figures, folder: Path, size: int, ours: tuple[float, float]) -> None:
    """dd's round beside one of ours: the file to the disk, and from the disk to the disk."""
    written = dd(folder / "file", folder / "written")
    copied = dd(folder / "written", folder / "copied", "iflag=direct")
    for name, seconds, own in (("write", written, ours[0]), ("copy", copied, ours[1])):
        figures.add(f"dd_{name}_mb_per_s", size / seconds / 1e6)
        figures.add(f"{'add' if name == 'write' else 'get'}_of_dd", seconds / own)


def measure_daemon(figures: Figures, folder: Path, size: int, url: str) -> None:
    """One round of the same through a daemon."""
    cid = figures.measure("daemon_add", size, folder, url)["result"]
    figures.measure("daemon_get", size, folder, url, cid)
    shutil.rmtree(folder / "from-daemon")


def measure_fetches(figures: Figures, folder: Path, size: int, rounds: int) -> None:
    """Fetching from four honest gateways, and from three with one of each malicious kind."""
    cid = run_step("add", folder)["result"]
    with gateways(folder, ["honest"] * GATEWAYS + list(MALICIOUS)) as urls:
        honest, bad = urls[:GATEWAYS], dict(zip(MALICIOUS, urls[GATEWAYS:], strict=True))

        def timed(*chosen: str) -> float:
            return float(run_step("fetch", empty(), cid, *chosen)["seconds"])

        def empty() -> Path:
            return Path(tempfile.mkdtemp(dir=folder))

        for _ in range(rounds):
            first = figures.measure("fetch", size, empty(), cid, *honest)["seconds"]
            times = {name: timed(*honest[1:], url) for name, url in bad.items()}
            baseline = (first + timed(*honest)) / 2
            for name, seconds in times.items():
                figures.add(f"fetch_with_one_{name}_of_honest", seconds / baseline)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Every figure."""
    figures = Figures()
    write_file(folder / "file", options.bytes)
    ours: list[tuple[float, float]] = []
    for turn in range(options.rounds):
        (folder / f"local-{turn}").mkdir()
        (folder / f"local-{turn}" / "file").hardlink_to(folder / "file")
        ours.append(measure_local(figures, folder / f"local-{turn}", options.bytes))
    for turn, seconds in enumerate(ours):
        measure_dd(figures, folder / f"local-{turn}", options.bytes, seconds)
    (folder / "fetched").mkdir()
    write_file(folder / "fetched" / "file", options.fetch_bytes)
    measure_fetches(figures, folder / "fetched", options.fetch_bytes, options.rounds)
    sizes = {"bytes": options.bytes, "fetch_bytes": options.fetch_bytes, "rounds": options.rounds}
    daemon = daemon_version(options.daemon)
    if daemon is not None:
        for _ in range(options.rounds):
            measure_daemon(figures, folder / "fetched", options.fetch_bytes, options.daemon)
    return {**sizes, "daemon": daemon, **figures.medians()}


def take_step(name: str, folder: Path, *arguments: str) -> None:
    """Runs one step and prints its measures; what it imports was imported before."""
    started, cpu_started = time.perf_counter(), time.process_time()
    result = STEPS[name](folder, *arguments)
    measured = {
        "result": result,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu_started,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(measured))


def main() -> None:
    """Prints the figures, or runs one step for the process that measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--fetch-bytes", type=int, default=1 << 28)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--daemon", default="http://127.0.0.1:5001")
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.folder, options.serve)
    elif options.step:
        take_step(options.step[0], options.folder, *options.step[1:])
    else:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            figures = measure(options, Path(folder))
        lines = [json.dumps({"bench": "store", **figures})]
        if not options.json:
            lines = [f"{name:40} {value}" for name, value in figures.items()]
        print("\n".join(lines))


if __name__ == "__main__":
    main()
