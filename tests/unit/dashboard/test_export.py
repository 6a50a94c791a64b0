"""`atoll dashboard --export`: the served documents as files, whose links are relative."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dashboard.jobs import finished
from tests.unit.dashboard.scripted import ScriptedClient
from typer.testing import CliRunner

from atoll.cli.main import app
from atoll.cli.network_commands import Network
from atoll.dashboard.export import export
from atoll.dashboard.page import Links, page
from atoll.dashboard.reader import Reader
from atoll.errors import StorageError


@pytest.fixture
def client() -> ScriptedClient:
    return ScriptedClient(finished())


async def test_every_job_and_member_has_its_page_and_document(
    client: ScriptedClient, tmp_path: Path
) -> None:
    reader, folder = Reader(client.as_client), tmp_path / "public"
    pages = await export(reader, folder)
    network, job = await reader.network(), client.script.net.job
    members = [member["account"] for member in network["members"]]
    places = ["", f"job/{job}", *(f"member/{account}" for account in members)]
    assert pages == [folder / place / "index.html" for place in places]
    documents = [network, await reader.job(job)]
    documents += [await reader.member(account) for account in members]
    for place, document in zip(places, documents, strict=True):
        assert json.loads((folder / place / "document.json").read_text()) == document
        links = Links("", "../../" if place else "./")
        assert (folder / place / "index.html").read_text() == page(document, links)
    written = {path.name for path in folder.rglob("*") if path.is_file()}
    assert written == {"index.html", "document.json"}


async def test_pages_that_will_be_written_again_look_for_it(
    client: ScriptedClient, tmp_path: Path
) -> None:
    (index, *_) = await export(Reader(client.as_client), tmp_path, follows=True)
    assert 'data-live="document.json" data-root="./"' in index.read_text()
    assert "connect-src &#x27;self&#x27;" in index.read_text()


async def test_a_folder_that_cannot_be_written_is_named(
    client: ScriptedClient, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        await export(Reader(client.as_client), tmp_path / "file")


def run(client: ScriptedClient, monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    @asynccontextmanager
    async def opened(network: Network, **_: Any) -> AsyncIterator[ScriptedClient]:
        yield client

    monkeypatch.setattr(Network, "open", opened)
    return CliRunner().invoke(app, ["dashboard", *words])


def test_the_command_says_where_the_first_page_is(
    client: ScriptedClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = run(client, monkeypatch, "--export", str(tmp_path), "--json")
    document = json.loads(told.stdout)
    assert document == {
        "page": str(tmp_path / "index.html"),
        "pages": len(list(tmp_path.rglob("index.html"))),
    }
    assert document["pages"] > 2


def test_every_without_a_folder_is_refused(
    client: ScriptedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--every is for --export" in str(run(client, monkeypatch, "--every", "5").exception)


@pytest.mark.parametrize("words", [("--prompt", "Once"), ("--distances",)])
def test_what_is_computed_here_without_torch_says_what_is_missing(
    client: ScriptedClient, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("atoll.job.own_evaluation.can_evaluate", lambda: False)
    told = str(run(client, monkeypatch, *words).exception)
    assert f"{words[0]} needs torch" in told
