"""The dashboard in a browser: it follows what happens, and says where it cannot."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from tests.integration.dashboard.browser import Tab, browsing
from tests.integration.dashboard.test_page import FORMATS
from tests.unit.dashboard.jobs import document_of, play
from tests.unit.dashboard.scripted import ScriptedClient, gas_of
from tests.unit.protocol.script import PROVIDERS, Script

from atoll.dashboard.export import export
from atoll.dashboard.reader import Reader
from atoll.dashboard.server import Window, serving
from atoll.job.ledger.overview import Beside


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browsing(tmp_path) as found:
        await found.look_like()
        yield found


async def test_a_page_follows_its_job(tab: Tab) -> None:
    script = Script.ready()
    script.honest_round()
    client, job = ScriptedClient(script), script.net.job
    async with serving(Window(client.as_client, f"/job/{job}"), 0) as url:
        await tab.open(url)
        assert await tab.run("document.querySelectorAll('#grid thead th').length") == 3
        await tab.run('document.querySelector(\'td[data-row="0"][data-seat="3"]\').focus()')
        await tab.run("document.querySelector('[data-keep=loss]').open = true")
        script.honest_round()
        play(script, 1, script.account(0), ends=False)
        await tab.until("document.querySelectorAll('#grid thead th').length === 4")
        document = document_of(script)
        shown = await tab.run("document.querySelector('td[data-row=\"1\"]').ariaLabel")
        state = document["grid"]["rows"][1][0]["state"]
        assert shown == f"round 1, seat 0: {document['grid']['states'][state][1]}"
        texts = "[...document.querySelectorAll('ol.moves li > span')].map((n) => n.textContent)"
        moves = await tab.run(texts)
        assert moves == [move["text"] for move in document["games"][0]["moves"]]
        # What its reader was at stays as it was.
        assert await tab.run("document.activeElement.dataset.seat") == "3"
        assert await tab.run("document.querySelector('[data-keep=loss]').open") is True
        left = await tab.run("document.querySelector('.facts .until').textContent")
        assert left.startswith(" (in ")
    assert tab.complaints == []


HELD = "document.querySelector('#rounds .scroll')"
HERE = "[document.activeElement.tagName, document.activeElement.textContent]"
CELL = "document.querySelector('[data-as=short]')"


async def test_a_redrawn_page_leaves_its_reader_where_it_was(tab: Tab) -> None:
    script = Script.ready()
    script.honest_round()
    client, job = ScriptedClient(script), script.net.job
    now = "JSON.parse(document.getElementById('document').textContent).job.now"
    async with serving(Window(client.as_client, f"/job/{job}"), 0) as url:
        await tab.look_like(width=660)
        await tab.open(url)
        await tab.run("document.querySelector('[data-keep=moves]').open = true")
        await tab.run(f"{HELD}.scrollLeft = 70")
        for what in ("[data-keep=moves] summary", "#members tr:nth-child(2) a", "a[href='#money']"):
            await tab.run(f'document.querySelector("{what}").focus()')
            here, last = await tab.run(HERE), await tab.run(now)
            script.net.wait(1)
            await tab.until(f"{now} > {last}")
            assert await tab.run(HERE) == here != ["BODY", ""]
            assert await tab.run(f"{HELD}.scrollLeft") == 70
    assert tab.complaints == []


async def test_what_its_reader_has_marked_stays_until_it_lets_go(tab: Tab) -> None:
    script = Script.ready()
    script.honest_round()
    client, job = ScriptedClient(script), script.net.job
    settled = "document.querySelector('.advance p span').textContent"
    async with serving(Window(client.as_client, f"/job/{job}"), 0) as url:
        await tab.open(url)
        before = await tab.run(settled)
        await tab.run(f"getSelection().selectAllChildren({CELL})")
        marked = await tab.run("String(getSelection())")
        script.honest_round()
        await tab.until("document.getElementById('liveness').textContent.startsWith('waits')")
        assert await tab.run("String(getSelection())") == marked
        assert await tab.run(settled) == before
        await tab.run("getSelection().removeAllRanges()")
        await tab.until(f"{settled} !== {json.dumps(before)}")
        assert await tab.run("document.getElementById('liveness').textContent") == "live"


async def test_a_page_says_when_its_dashboard_hangs(tab: Tab) -> None:
    """A process that is stopped, or far away, takes the question and never answers it."""
    script = Script.ready()
    client = ScriptedClient(script)
    async with serving(Window(client.as_client), 0) as url:
        await tab.open(url)
        client.may_answer.clear()
        await tab.until("document.getElementById('liveness').textContent.startsWith('not live')")
        client.may_answer.set()
        await tab.until("document.getElementById('liveness').textContent === 'live'")


async def test_a_page_says_when_its_dashboard_is_silent(tab: Tab) -> None:
    script = Script.ready()
    client = ScriptedClient(script)
    async with serving(Window(client.as_client), 0) as url:
        await tab.open(url)
        client.is_silent = True
        await tab.until("document.getElementById('liveness').textContent.startsWith('not live')")
        client.is_silent = False
        await tab.until("document.getElementById('liveness').textContent === 'live'")


async def test_a_page_says_when_its_chain_stands_still(tab: Tab) -> None:
    """An endpoint that goes on answering says nothing of a chain that makes no blocks."""
    script = Script.ready()
    async with serving(Window(ScriptedClient(script).as_client), 0) as url:
        await tab.open(url)
        await tab.run("Date.now = ((now) => () => now() + 125_000)(Date.now)")
        state = "document.getElementById('liveness')"
        await tab.until(f"{state}.textContent === 'no new block for 2 minutes'")
        assert await tab.run(f"{state}.classList.contains('live')") is False
        script.net.wait(1)
        await tab.until(f"{state}.textContent === 'live'")


async def test_a_network_leads_to_its_jobs(tab: Tab) -> None:
    script = Script.ready()
    async with serving(Window(ScriptedClient(script).as_client), 0) as url:
        await tab.open(url)
        link = await tab.run("document.querySelector('#jobs a').href")
        assert link == f"{url}job/{script.net.job}"
        await tab.open(link)
        assert await tab.run("document.querySelector('h1').textContent") == f"Job {script.net.job}"
    assert tab.complaints == []


async def test_a_curve_that_is_redrawn_is_read_where_its_reader_was(tab: Tab) -> None:
    script = Script.ready()
    script.honest_round()
    script.honest_round()
    client, job = ScriptedClient(script), script.net.job
    now = "JSON.parse(document.getElementById('document').textContent).job.now"
    readout = "document.querySelector('#seat-0 .readout').textContent"
    async with serving(Window(client.as_client, f"/job/{job}"), 0) as url:
        await tab.open(url)
        assert (await tab.run(readout)).startswith("round 1: ")  # the newest
        await tab.run("document.querySelector('#seat-0 .chart').focus()")
        await tab.press("Home")
        assert (await tab.run(readout)).startswith("round 0: ")
        last = await tab.run(now)
        script.net.wait(1)
        await tab.until(f"{now} > {last}")
        assert (await tab.run(readout)).startswith("round 0: ")
        assert await tab.run("document.activeElement.closest('[id]').id") == "seat-0"
    assert tab.complaints == []


async def test_a_job_is_compared_with_another(tab: Tab) -> None:
    """Of two jobs: the other's numbers stand beside this one's, each as its own document has it."""
    script = Script.ready()
    script.honest_round()
    client = ScriptedClient(script)
    async with serving(Window(client.as_client), 0) as url:
        await tab.open(f"{url}job/{script.net.job}")
        assert await tab.run("document.getElementById('other')") is None  # there is no other
        told = document_of(script, beside=Beside(gas=gas_of(script)))
        other = told | {"job": told["job"] | {"job": 99, "settled_rounds": 3}}
        network = {"jobs": [{"job": told["job"]["job"]}, {"job": 99, "name": "reef"}]}
        answers = json.dumps({"/document.json": network, "/job/99/document.json": other})
        await tab.run(
            f"window.fetch = ((real, known) => (path, more) => path in known ? Promise.resolve("
            f"new Response(JSON.stringify(known[path]))) : real(path, more))"
            f"(window.fetch, {answers})"
        )
        script.net.wait(1)
        await tab.run("document.dispatchEvent(new Event('visibilitychange'))")
        await tab.until("document.getElementById('other') !== null")
        await tab.run(
            "(() => { const s = document.getElementById('other'); s.value = '99';"
            " s.dispatchEvent(new Event('change')); })()"
        )
        await tab.until("document.querySelector('[data-other-path]') !== null")
        shown = await tab.run(
            "[...document.querySelectorAll('[data-other-path]')].map((n) =>"
            " [JSON.parse(n.dataset.otherPath), n.dataset.as, n.textContent])"
        )
        for path, kind, text in shown:
            value = other
            for name in path:
                value = value[name]
            assert text == FORMATS[kind](value), path
        assert ["job", "settled_rounds"] in [path for path, _, _ in shown]
        labels = "[...document.querySelectorAll('#loss tr')][1].children"
        texts = await tab.run(f"[...{labels}].map((cell) => cell.dataset.label)")
        assert texts == ["", f"Job {script.net.job}", "Job 99"]
    assert tab.complaints == []


async def test_names_lead_to_their_members_pages(tab: Tab) -> None:
    script = Script.ready()
    script.honest_round()
    async with serving(Window(ScriptedClient(script).as_client), 0) as url:
        await tab.open(f"{url}job/{script.net.job}")
        link = await tab.run("document.querySelector('#members a').href")
        account = PROVIDERS[0]
        assert link == f"{url}member/{account}"
        await tab.open(link)
        assert await tab.run("document.querySelector('.mono').textContent") == account
        pending = await tab.run("document.querySelector('#sums dd:nth-child(2)').textContent")
        assert pending
        home = await tab.run("document.querySelector('.title a').href")
        assert home == f"{url}network"
    assert tab.complaints == []


@asynccontextmanager
async def as_files(folder: Path) -> AsyncIterator[str]:
    """Any web server, at an address below another's."""
    app = web.Application()
    app.add_routes([web.static("/public/", folder)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/public"
    finally:
        await runner.cleanup()


async def test_exported_pages_lead_to_each_other_and_follow_what_is_written_again(
    tab: Tab, tmp_path: Path
) -> None:
    script = Script.ready()
    script.honest_round()
    reader = Reader(ScriptedClient(script).as_client)
    await export(reader, tmp_path / "public", follows=True)
    async with as_files(tmp_path / "public") as url:
        await tab.open(f"{url}/index.html")
        await tab.open(await tab.run("document.querySelector('#jobs a').href"))
        assert await tab.run("document.querySelector('.advance p span').textContent") == "1"
        assert await tab.run("document.querySelector('.title a').href") == f"{url}/index.html"
        script.honest_round()
        await export(reader, tmp_path / "public", follows=True)
        await tab.until("document.querySelector('.advance p span').textContent === '2'")
        await tab.open(await tab.run("document.querySelector('#members a').href"))
        assert await tab.run("document.querySelector('.mono').textContent") == PROVIDERS[0]
    assert tab.complaints == []


async def test_exported_pages_are_read_from_a_disk(tab: Tab, tmp_path: Path) -> None:
    script = Script.ready()
    script.honest_round()
    pages = await export(Reader(ScriptedClient(script).as_client), tmp_path / "public")
    await tab.open(pages[0].as_uri())
    await tab.open(await tab.run("document.querySelector('#jobs a').href"))
    assert await tab.run("document.querySelector('h1').textContent") == f"Job {script.net.job}"
    assert await tab.run("document.getElementById('liveness')") is None
    assert tab.complaints == []
