"""The dashboard: loopback only, the same document as the page's, and nothing ends it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import aiohttp
import pytest
from tests.unit.dashboard.jobs import document_of, finished
from tests.unit.dashboard.scripted import ScriptedClient, gas_of
from tests.unit.dashboard.test_changes import applied
from tests.unit.protocol.script import Script

from atoll.dashboard.network_document import network_document
from atoll.dashboard.page import LIVE, Links, as_json, page
from atoll.dashboard.server import CHANGES, Window, serving
from atoll.errors import ConfigError
from atoll.job.ledger.overview import Beside


@dataclass
class Served:
    client: ScriptedClient
    url: str
    http: aiohttp.ClientSession

    @property
    def script(self) -> Script:
        return self.client.script

    @property
    def job_path(self) -> str:
        return f"job/{self.script.net.job}"

    async def get(self, path: str, **headers: str) -> tuple[int, str, Mapping[str, str]]:
        async with self.http.get(self.url + path, headers=headers) as answer:
            return answer.status, await answer.text(), answer.headers


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    client = ScriptedClient(finished())
    async with serving(Window(client.as_client), 0) as url, aiohttp.ClientSession() as http:
        yield Served(client, url, http)


async def test_the_page_and_its_data_are_one_document(served: Served) -> None:
    beside = Beside(gas=gas_of(served.script))
    document, path = document_of(served.script, beside=beside), served.job_path
    assert (await served.get(f"{path}/document.json"))[:2] == (200, as_json(document))
    status, text, headers = await served.get(path)
    assert (status, text) == (200, page(document, Links(f"/{path}/document.json", LIVE)))
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    net = served.script.net
    network = network_document({net.job: net.view}, served.client.history(), net.now)
    network |= {"explorer": ""}
    assert json.loads((await served.get("document.json"))[1]) == network
    for at in ("", "network"):
        assert (await served.get(at))[1] == page(network, Links("/document.json", LIVE))


async def test_what_a_browser_has_is_not_sent_again(served: Served) -> None:
    path = f"{served.job_path}/document.json"
    _, _, headers = await served.get(path)
    known = {"If-None-Match": headers["ETag"]}
    assert (await served.get(path, **known))[:2] == (304, "")
    served.script.net.wait(1)
    assert (await served.get(path, **known))[0] == 200


async def test_whoever_has_the_document_is_told_what_is_another(served: Served) -> None:
    path = f"{served.job_path}/document.json"
    _, whole, headers = await served.get(path)
    tag = headers["ETag"].strip('"')
    _, same, _ = await served.get(f"{path}?since={tag}")
    assert json.loads(same) == {"set": {}}
    served.script.net.wait(1)
    status, text, newer = await served.get(f"{path}?since={tag}")
    assert (status, newer.get("Content-Type")) == (200, f"{CHANGES}; charset=utf-8")
    assert newer["ETag"] != headers["ETag"]
    assert len(text) < len(whole) / 2
    now = json.loads((await served.get(path))[1])
    assert applied(json.loads(whole), json.loads(text)) == now
    for unknown in ("", "x", tag[:-1]):
        assert json.loads((await served.get(f"{path}?since={unknown}"))[1]) == now


async def test_what_is_sent_is_compressed_for_whoever_takes_that(served: Served) -> None:
    _, _, headers = await served.get(served.job_path, **{"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"
    _, _, plain = await served.get(served.job_path, **{"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain


async def test_a_document_is_made_once_a_block(served: Served) -> None:
    for _ in range(3):
        await served.get(f"{served.job_path}/document.json")
        await served.get("document.json")
    assert served.client.read == 2
    served.script.net.wait(1)
    assert json.loads((await served.get("document.json"))[1])["now"] == served.script.net.now
    assert served.client.read == 3


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.1", "127.0.0.1.x.io"])
async def test_a_strangers_name_for_this_machine_is_refused(served: Served, host: str) -> None:
    status, text, _ = await served.get(f"{served.job_path}/document.json", Host=host)
    assert (status, "wei" in text) == (403, False)
    for ours in ("localhost:1", "127.0.0.1", "[::1]:9"):
        assert (await served.get("document.json", Host=ours))[0] == 200


@pytest.mark.parametrize("path", ["job/99", "job/99/document.json", "job/0", "job/x", "etc/passwd"])
async def test_what_is_not_there_is_not_found(served: Served, path: str) -> None:
    assert (await served.get(path))[0] == 404


async def test_a_silent_chain_is_said_and_waited_for(served: Served) -> None:
    served.client.is_silent = True
    status, text, _ = await served.get("document.json")
    assert (status, text) == (503, "no endpoint answers\n")
    served.client.is_silent = False
    assert (await served.get("document.json"))[0] == 200


async def test_the_policy_goes_with_every_page(served: Served) -> None:
    _, _, headers = await served.get("")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_it_begins_with_the_job_that_was_named() -> None:
    client = ScriptedClient(finished())
    job = client.script.net.job
    async with serving(Window(client.as_client, f"/job/{job}"), 0) as url:
        assert url.startswith("http://127.0.0.1:")
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            assert answer.url.path == f"/job/{job}"


async def test_a_port_in_use_is_one_clear_error(served: Served) -> None:
    port = int(served.url.rstrip("/").rsplit(":", 1)[1])
    with pytest.raises(ConfigError, match=f"port {port} cannot be listened on"):
        async with serving(Window(served.client.as_client), port):
            pass
