"""`atoll network use`: the network that commands take which are not told one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner

from atoll.chain.deployment import REQUIRED, Deployment
from atoll.cli import network_choice
from atoll.cli.main import app
from atoll.cli.network_commands import Network
from atoll.errors import AtollError, ConfigError, StorageError
from atoll.job.chosen_network import chosen_network, known_networks
from atoll.job.client import Client

RPC = "http://127.0.0.1:7777"


def deployment_text(chain: int = 1) -> str:
    addresses = {name: f"0x{i:040x}" for i, name in enumerate(REQUIRED, 1)}
    return json.dumps({"chain_id": chain, "block": 0, "addresses": addresses})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's choice is kept, and in the present folder the file of a network."""
    monkeypatch.setenv("ATOLL_NETWORKS", str(tmp_path / "config" / "networks"))
    for name in ("ATOLL_DEPLOYMENT", "ATOLL_RPC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reef.json").write_text(deployment_text())
    return tmp_path


def run(*words: str, **variables: str) -> str:
    done = CliRunner().invoke(app, words, env=variables)
    if isinstance(done.exception, AtollError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def refusal(*words: str) -> AtollError:
    with pytest.raises(AtollError) as caught:
        run(*words)
    return caught.value


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Network]:
    """The network of each command that connects to one."""
    seen = list[Network]()

    def note(network: Network, *_: Any) -> None:
        seen.append(network)
        raise ConfigError("far enough")

    monkeypatch.setattr(Network, "_client", note)
    return seen


def network_of(opened: list[Network], *words: str, **variables: str) -> tuple[str, str | None]:
    with pytest.raises(ConfigError, match="far enough"):
        run(*words, **variables)
    network = opened.pop()
    return network.rpc, None if network.deployment is None else network.deployment.name


def test_every_command_takes_what_was_chosen(opened: list[Network], folder: Path) -> None:
    run("network", "use", "reef.json", "--rpc", RPC)
    (folder / "reef.json").unlink()  # what is kept is a copy
    commands = (["job", "list"], ["job", "status", "1"], ["job", "serve", "1"])
    for command in commands:
        opened.clear()
        variables = {"ATOLL_KEYSTORE": ""}
        if command[1] == "serve":  # it needs a key first
            assert "a key to sign with" in str(refusal(*command))
        else:
            assert network_of(opened, *command, **variables) == (RPC, "reef.json")
    made = json.loads(
        run("node", "init", "--folder", "node", "--password-file", str(password(folder)), "--json")
    )
    assert RPC in Path(made["config"]).read_text()
    copied = Deployment.load(Path(made["config"]).with_name("deployment.json"))
    assert copied == Deployment.from_json(deployment_text())


def password(folder: Path) -> Path:
    place = folder / "password"
    place.touch(mode=0o600)
    place.write_text("correct horse battery")
    return place


def test_flags_and_variables_go_before_it_each_by_itself(opened: list[Network]) -> None:
    run("network", "use", "reef.json", "--rpc", RPC)
    asked = ("job", "list")
    assert network_of(opened, *asked, "--deployment", "other.json") == (RPC, "other.json")
    assert network_of(opened, *asked, "--rpc", "http://x") == ("http://x", "reef.json")
    assert network_of(opened, *asked, ATOLL_RPC="http://y") == ("http://y", "reef.json")
    assert network_of(opened, *asked, ATOLL_DEPLOYMENT="z.json") == (RPC, "z.json")
    run("network", "use", "reef")
    assert network_of(opened, *asked) == (RPC, "reef.json")  # an endpoint stays with its network


def test_a_name_is_of_what_was_used_and_none_forgets(opened: list[Network]) -> None:
    Path("lagoon.json").write_text(deployment_text(chain=5))
    run("network", "use", "reef.json", "--rpc", RPC)
    run("network", "use", "lagoon.json", "--name", "lagoon-2")
    assert network_of(opened, "job", "list") == ("http://127.0.0.1:8545", "lagoon-2.json")
    run("network", "use", "reef")
    rows = json.loads(run("network", "use", "--json"))
    assert [(row["name"], row["chain_id"], row["used"]) for row in rows] == [
        ("lagoon-2", 5, False),
        ("reef", 1, True),
    ]
    run("network", "use", "--none")
    assert chosen_network() is None
    assert set(known_networks()) == {"lagoon-2", "reef"}
    assert network_of(opened, "job", "list")[1] is None


def test_a_client_of_the_environment_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="ATOLL_DEPLOYMENT is not set"):
        Client.from_env()
    run("network", "use", "reef.json", "--rpc", f"{RPC},{RPC}/8")
    client = Client.from_env()
    assert client.deployment == Deployment.from_json(deployment_text())
    assert client._rpc_urls == (RPC, f"{RPC}/8")
    monkeypatch.setenv("ATOLL_RPC", "http://x")
    assert Client.from_env()._rpc_urls == ("http://x",)


def test_deploying_takes_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run("network", "use", "reef.json", "--rpc", RPC)
    helps = {name: run("network", name, "--help", COLUMNS="200") for name in ("deploy", "show")}
    assert "the chosen network's, else http://127.0.0.1:8545" in helps["show"]
    assert "chosen network" not in helps["deploy"]
    # Another file under the same name keeps no endpoint of the one before.
    run("network", "use", "./reef.json")
    assert known_networks()["reef"].rpc == ""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nothere"], "no file and no known network: nothere"),
        (["torn.json"], "is no deployment file"),
        (["reef.json", "--rpc", "ftp://x"], "is not an http"),
        (["reef.json", "--name", "../x"], "is no name of a network"),
        (["http://example.org/reef.json"], "is not https"),
        (["--name", "x"], "--name and --rpc are of a network"),
        (["reef.json", "--none"], "--none of none"),
    ],
)
def test_what_cannot_be_used_is_refused_and_leaves_the_choice(
    words: list[str], reason: str, folder: Path
) -> None:
    (folder / "torn.json").write_text("{")
    run("network", "use", "reef.json", "--name", "kept")
    assert reason in str(refusal("network", "use", *words))
    network = chosen_network()
    assert network is not None
    assert network.name == "kept"


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"chosen": "x", "networks": {}}', '{"chosen": null}',
                '{"chosen": null, "networks": {"../x": {"rpc": "", "source": ""}}}'],
)  # fmt: skip
def test_a_damaged_record_is_named_and_hinders_nothing_else(content: str, folder: Path) -> None:
    place = folder / "config" / "networks" / "chosen"
    place.parent.mkdir(parents=True)
    place.write_text(content)
    refused = refusal("job", "list")
    assert str(place) in str(refused)
    assert "remove" in str(refused.next_step)
    assert "kind" in run("job", "new")


@pytest.fixture
async def served() -> AsyncIterator[str]:
    """A server's URL, with a deployment file, a detour, and more than any file has."""

    async def file(_: web.Request) -> web.Response:
        return web.Response(text=deployment_text(chain=9))

    async def detour(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://example.org/other.json")

    async def endless(_: web.Request) -> web.Response:
        return web.Response(body=b" " * (network_choice.MOST_BYTES + 1))

    server = web.Application()
    server.router.add_get("/atoll.json", file)
    server.router.add_get("/detour.json", detour)
    server.router.add_get("/endless.json", endless)
    runner = web.AppRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_url_is_fetched_from_where_it_says_alone(served: str) -> None:
    text = await network_choice._fetched(f"{served}/atoll.json")
    assert Deployment.from_json(text).chain_id == 9
    for name, reason in (
        ("detour", "302, and names http://example.org"),
        ("endless", "has more than"),
        ("gone", "answers 404"),
    ):
        with pytest.raises(StorageError, match=reason):
            await network_choice._fetched(f"{served}/{name}.json")


def test_what_a_url_has_is_kept_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetched(url: str) -> str:
        return deployment_text(chain=9)

    monkeypatch.setattr(network_choice, "_fetched", fetched)
    run("network", "use", "https://example.org/files/atoll.json?raw=1", "--rpc", RPC)
    network = chosen_network()
    assert network is not None
    assert (network.name, network.source) == (
        "atoll", "https://example.org/files/atoll.json?raw=1",
    )  # fmt: skip
    assert Deployment.load(network.deployment).chain_id == 9
