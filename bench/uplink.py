"""A member's fetch from a gateway behind a slow line, alone and beside strangers who want it all.

    python bench/uplink.py [--json] [--rate 4mbit] [--bytes N] [--connections 64,384]

The line is this machine's own loopback in a network namespace, which `tc` makes as slow as a
home's uplink; that needs root, or a user namespace. Each case runs twice: with the share of the
line that strangers have by default (`…_of_alone`), and with all of it (`…_unlimited_of_alone`), as
a server has it that counts connections alone. Bar: less than 2 with the share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from atoll.storage import Cid, FetchConfig, Fetcher, Gateway, GatewayConfig, LocalStore
from atoll.storage.connection_limiter import Budget

MEMBER = "Atoll member"
INSIDE = "ATOLL_BENCH_NAMESPACE"
UNLIMITED = Budget(line_bytes_per_s=1e12, strangers_share=1.0)
ADDRESSES = 6
HEAD_START_S = 5.0
LONGEST_S = 300.0


async def serve(folder: Path, budget: Budget) -> None:
    """Serves until it is ended; says where."""
    gateway = Gateway(
        LocalStore(folder, sync=False),
        ("127.0.0.1", 0),
        config=GatewayConfig(budget=budget),
        recognise=lambda header: "m" if header == MEMBER else None,
    )
    await gateway.start()
    print(gateway.url, flush=True)
    await asyncio.Event().wait()


async def flood(url: str, cid: str, connections: int) -> None:
    """Strangers from some addresses, each of whom asks for a block again and again."""
    port = int(url.rpartition(":")[2])
    question = f"GET /ipfs/{cid}?format=raw HTTP/1.1\r\nHost: x\r\n\r\n".encode()

    async def stranger(number: int) -> None:
        address = f"127.0.0.{2 + number % ADDRESSES}"
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, local_addr=(address, 0)
                )
                while True:
                    writer.write(question)
                    head = (await reader.readuntil(b"\r\n\r\n")).lower()
                    size = int(head.partition(b"content-length:")[2].split()[0])
                    await reader.readexactly(size)
                    if b" 503 " in head:
                        await asyncio.sleep(0.05)  # sooner than it was told
            except (OSError, asyncio.IncompleteReadError, IndexError):
                await asyncio.sleep(0.2)

    await asyncio.gather(*map(stranger, range(connections)))


async def fetch(url: str, cid: Cid, folder: Path) -> float:
    """Seconds of a member's fetch; as many as it is waited for where it fails."""
    config = FetchConfig(greet=lambda _: MEMBER)
    began = time.monotonic()
    async with Fetcher(LocalStore(folder, sync=False), lambda: [url], config) as fetcher:
        try:
            await asyncio.wait_for(fetcher.fetch(cid, 1 << 32), LONGEST_S)
        except Exception as error:
            print(f"the fetch failed: {error}", file=sys.stderr)
            return LONGEST_S
    return time.monotonic() - began


def slow_line(rate: str) -> None:
    """Makes what leaves a gateway's ports slow, and what comes to it quick."""
    for words in (
        "ip link set lo up",
        "ip link set lo mtu 1500",
        "tc qdisc add dev lo root handle 1: htb default 1",
        f"tc class add dev lo parent 1: classid 1:1 htb rate {rate}",
        "tc qdisc add dev lo parent 1:1 handle 10: pfifo limit 300",
        "tc class add dev lo parent 1: classid 1:2 htb rate 10gbit",
    ):
        subprocess.run(words.split(), check=True)


def quick_requests(port: int) -> None:
    """What is sent to the port is not slowed down: only its answers are on the line."""
    rule = f"tc filter add dev lo parent 1: protocol ip u32 match ip dport {port} 0xffff flowid 1:2"
    subprocess.run(rule.split(), check=True)


def measure(folder: Path, size: int, connections: list[int]) -> dict[str, float]:
    """Seconds alone, and how many times as long each case took."""
    store = LocalStore(folder / "store", sync=False)
    cid, block = store.add_bytes(os.urandom(size)), store.add_block(os.urandom(1 << 20))
    figures: dict[str, float] = {}
    for name, budget in (("", "default"), ("_unlimited", "unlimited")):
        server = subprocess.Popen(
            [sys.executable, __file__, "serve", str(folder / "store"), budget],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        quick_requests(int(url.rpartition(":")[2]))
        try:
            alone = asyncio.run(fetch(url, cid, folder / f"alone{name}"))
            figures[f"alone{name}_s"] = round(alone, 2)
            for count in connections:
                strangers = subprocess.Popen(
                    [sys.executable, __file__, "flood", url, str(block), str(count)]
                )
                time.sleep(HEAD_START_S)
                try:
                    beside = asyncio.run(fetch(url, cid, folder / f"beside{count}{name}"))
                finally:
                    strangers.kill()
                    strangers.wait()
                figures[f"beside_{count}{name}_of_alone"] = round(beside / alone, 2)
        finally:
            server.kill()
            server.wait()
    return figures


def main() -> None:
    match sys.argv[1:]:
        case ["serve", folder, kind]:
            asyncio.run(serve(Path(folder), UNLIMITED if kind == "unlimited" else Budget()))
        case ["flood", url, cid, count]:
            asyncio.run(flood(url, cid, int(count)))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--rate", default="4mbit", help="of the line, as tc writes it")
    parser.add_argument("--bytes", type=int, default=4 << 20)
    parser.add_argument("--connections", default="64,384")
    arguments = parser.parse_args()
    if INSIDE not in os.environ:
        unshare = ["unshare", "--net", *(["--map-root-user"] if os.geteuid() else [])]
        os.environ[INSIDE] = "1"
        os.execvp("unshare", [*unshare, sys.executable, __file__, *sys.argv[1:]])
    slow_line(arguments.rate)
    with tempfile.TemporaryDirectory() as folder:
        connections = [int(count) for count in arguments.connections.split(",")]
        figures = measure(Path(folder), arguments.bytes, connections)
    if arguments.json:
        print(json.dumps({"bench": "uplink", "rate": arguments.rate, **figures}))
    else:
        for name, figure in figures.items():
            print(f"{name:32} {figure}")


if __name__ == "__main__":
    main()
