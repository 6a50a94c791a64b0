"""Storage under fuzzing: CARs, DAG-PB, and HTTP in both directions, for a given time.

    python bench/fuzz_store.py [--json] [--seconds S]

atheris (`pip install 'atoll[fuzz]'`) mutates bytes by the branches that they reach; where no wheel
of it fits this Python, Hypothesis draws them blindly, and `engine` says so. Each target runs in a
process of its own. Whatever arrives ends in a value or in one of our errors: anything else is a
crash, as are an input that takes over ten seconds and memory over 512 MB. Bar: no crash.
"""

# ruff: noqa: E402 (what is to be instrumented is imported after the instruments)

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HAVE_ATHERIS = find_spec("atheris") is not None
if HAVE_ATHERIS and "--target" in sys.argv:  # its instruments go in when a module is imported
    import atheris

    with atheris.instrument_imports(include=["atoll.storage"]):
        importlib.import_module("atoll.storage")

from aiohttp.test_utils import make_mocked_request

from atoll.errors import CorruptBlock, NotFound, TooLarge
from atoll.storage import (
    DAG_CBOR,
    DAG_PB,
    Cid,
    FetchConfig,
    Fetcher,
    LocalStore,
    MalformedDag,
    negotiation,
)
from atoll.storage.block_links import links_of
from atoll.storage.car import CarReader, encode_car
from atoll.storage.dagpb import Link, Node, encode_field, encode_node
from atoll.storage.directory import list_directory
from atoll.storage.scope import SCOPES, blocks_in_scope
from atoll.storage.unixfs import encode_file_header, iter_file

MAX_INPUT = 4096
MAX_CAR = 2048
LEAF = b"wanted"
QUICK = FetchConfig(
    block_timeout_s=0.3, connect_timeout_s=1.0, passes=1, pass_pause_s=0.0, max_block_bytes=2048
)
Target = Callable[[bytes], None]


def fuzz_car(data: bytes) -> None:
    """Two halves of a CAR: what it yields matches its CIDs, within the cap."""
    reader = CarReader(MAX_CAR)
    total = 0
    with contextlib.suppress(CorruptBlock, TooLarge):
        for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
            for cid, block in reader.feed(piece):
                assert cid.matches(block)
                total += len(block)
        reader.finish()
    assert total <= MAX_CAR


def fuzz_dag(data: bytes) -> None:
    """A block under every reading of it: as links, file, folder, scope of a request."""
    for codec in (DAG_PB, DAG_CBOR):
        cid = Cid.of(data, codec)

        def block(_: Cid) -> bytes:
            return data

        readings: list[Callable[[], object]] = [
            lambda cid=cid: links_of(cid, data),
            lambda cid=cid: list(list_directory(block, cid)),
            lambda cid=cid: sum(map(len, iter_file(block, cid, 10_000))),
        ]
        readings += [
            lambda cid=cid, scope=scope: list(blocks_in_scope(block, cid, scope, None))
            for scope in SCOPES
        ]
        for read in readings:
            with contextlib.suppress(MalformedDag, TooLarge):
                read()


def fuzz_request(data: bytes) -> None:
    """A request's query and Accept header."""
    text = data.decode("latin-1")
    query, _, accept = text.partition("\n")
    with contextlib.suppress(ValueError):  # aiohttp refuses such a request line or header itself
        request = make_mocked_request("GET", f"/ipfs/x?{query}", {"Accept": accept})
        with contextlib.suppress(negotiation.NotAcceptable):
            assert negotiation.negotiate(request).kind in {"raw", "car"}
            negotiation.requested_scope(request)


class ResponseFuzzer:
    """A server that answers with the bytes given, and a fetcher that has to cope with them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._folder = tempfile.TemporaryDirectory()
        self._store = LocalStore(Path(self._folder.name), sync=False)
        self._answer = b""
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def __call__(self, data: bytes) -> None:
        self._answer = data
        self._loop.run_until_complete(self._fetch())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self._answer)
        writer.close()

    async def _fetch(self) -> None:
        cid = Cid.of(LEAF)
        async with Fetcher(self._store, lambda: [self._url], QUICK) as fetcher:
            async with asyncio.timeout(10):
                try:
                    assert await fetcher.get(cid, 100) == LEAF
                except NotFound:
                    assert not self._store.has(cid)
            assert fetcher.bytes_down < 1 << 20
        (self._store.root / "blocks" / cid.digest.hex()[:2] / cid.digest.hex()).unlink(
            missing_ok=True
        )


TARGETS: dict[str, Callable[[], Target]] = {
    "car": lambda: fuzz_car,
    "dag": lambda: fuzz_dag,
    "http_request": lambda: fuzz_request,
    "http_response": ResponseFuzzer,
}


def seeds(target: str) -> list[bytes]:
    """Well-formed inputs to start from."""
    leaf = Cid.of(LEAF)
    header = encode_file_header(b"", len(LEAF), [len(LEAF)])
    file = encode_node(Node([Link(leaf, b"", len(LEAF))], header))
    folder = encode_node(Node([Link(leaf, b"name", len(LEAF))], encode_field(1, 1)))
    shard = encode_node(Node([Link(leaf, b"00name", len(LEAF))], encode_field(1, 5)))
    root = Cid.of(file, DAG_PB)
    ok = b"HTTP/1.1 200 OK\r\n"
    return {
        "car": [b"".join(encode_car([root], [(root, file), (leaf, LEAF)]))],
        "dag": [file, folder, shard, b"\x82\x01\xd8\x2a\x58\x25\0" + leaf.to_bytes()],
        "http_request": [
            b"format=car&dag-scope=entity&entity-bytes=0:*\n",
            b"\napplication/vnd.ipld.car;version=1;order=dfs;dups=y, application/vnd.ipld.raw;q=0",
        ],
        "http_response": [
            ok + b"Content-Length: 6\r\n\r\nwanted",
            ok + b"Transfer-Encoding: chunked\r\n\r\n6\r\nwanted\r\n0\r\n\r\n",
            b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
        ],
    }[target]


def run_atheris(name: str, seconds: int, corpus: Path) -> None:
    """Fuzzes; ends the process. libFuzzer's figures go to stderr."""
    for i, seed in enumerate(seeds(name)):
        (corpus / f"seed-{i}").write_bytes(seed)
    limits = [f"-max_total_time={seconds}", "-rss_limit_mb=512", "-timeout=10"]
    flags = [f"-max_len={MAX_INPUT}", "-print_final_stats=1", f"-artifact_prefix={corpus}/"]
    atheris.Setup([sys.argv[0], *limits, *flags, str(corpus)], TARGETS[name]())
    atheris.Fuzz()


def run_hypothesis(name: str, seconds: int) -> None:
    """Draws bytes until the time is over; prints libFuzzer's figure, counted here."""
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    target, until, executions = TARGETS[name](), time.monotonic() + seconds, 0
    cut = st.builds(
        lambda seed, i, new: seed[:i] + new + seed[i + len(new) :],
        st.sampled_from(seeds(name)),
        st.integers(0, 200),
        st.binary(max_size=20),
    )

    @settings(
        max_examples=500, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.binary(max_size=MAX_INPUT) | cut)
    def draw(data: bytes) -> None:
        nonlocal executions
        if time.monotonic() < until:
            executions += 1
            target(data)

    while time.monotonic() < until:
        draw()
    print(f"stat::number_of_executed_units: {executions}", file=sys.stderr)


def run_target(name: str, seconds: int) -> dict[str, Any]:
    """Fuzzes one target in a process of its own; its figures."""
    with tempfile.TemporaryDirectory() as corpus:
        command = [sys.executable, __file__, "--target", name, "--seconds", str(seconds)]
        done = subprocess.run(
            [*command, "--corpus", corpus],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
    counted = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    if done.returncode:
        print(done.stderr[-4000:], file=sys.stderr)
    return {"execs": int(counted[1]) if counted else 0, "crashes": int(done.returncode != 0)}


def main() -> int:
    """Prints the figures; exits with 1 where something crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=int, default=600, help="for all targets together")
    parser.add_argument("--target", choices=sorted(TARGETS), help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.target:
        if HAVE_ATHERIS:
            run_atheris(options.target, options.seconds, options.corpus)
        else:
            run_hypothesis(options.target, options.seconds)
        return 0
    figures: dict[str, Any] = {"engine": "atheris" if HAVE_ATHERIS else "hypothesis"}
    figures["seconds"] = options.seconds
    for name in TARGETS:
        found = run_target(name, max(1, options.seconds // len(TARGETS)))
        figures |= {f"{name}_{what}": value for what, value in found.items()}
    figures["crashes"] = sum(value for name, value in figures.items() if name.endswith("_crashes"))
    figures["peak_mb"] = round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, 1)
    if options.json:
        print(json.dumps({"bench": "fuzz_store", **figures}))
    else:
        print("\n".join(f"{name:40} {value}" for name, value in figures.items()))
    return int(figures["crashes"] > 0)


if __name__ == "__main__":
    sys.exit(main())
