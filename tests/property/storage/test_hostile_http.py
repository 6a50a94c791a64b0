"""Any bytes as an HTTP response: the fetch ends soon, unharmed, and the store stays clean."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.errors import NotFound
from atoll.storage import Cid, FetchConfig, Fetcher, LocalStore

CONFIG = FetchConfig(block_timeout_s=0.3, passes=1, connect_timeout_s=1.0, max_block_bytes=4096)
LINES = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 302 Found\r\nLocation: /\r\n", b"HTTP/1.0 200\r\n",
     b"Content-Length: 6\r\n", b"Content-Length: 99999999999\r\n", b"Content-Length: -1\r\n",
     b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n", b"\r\n", b"6\r\nwanted\r\n",
     b"ffffffffffffffff\r\n", b"0\r\n\r\n", b"wrongs", b"X" * 9000, b"\x00", b"Set-Cookie: a=b\r\n"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES | st.binary(max_size=30), max_size=8))
def test_any_response(parts: list[bytes]) -> None:
    asyncio.run(_fetch_from(b"HTTP/1.1 200 OK\r\n" * (len(parts) % 2) + b"".join(parts)))


async def _fetch_from(response: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(Path(folder), sync=False)
        async with server, Fetcher(store, lambda: [url], CONFIG) as fetcher:
            try:
                found = await fetcher.get(Cid.of(b"wanted"), 100)
            except NotFound:
                assert store.usage().blocks == 0
            else:
                assert found == b"wanted"
            assert fetcher.bytes_down < 1 << 20
