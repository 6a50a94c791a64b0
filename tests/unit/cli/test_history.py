"""`atoll job history`: the ledger at a terminal, and the page's document for programs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.dashboard.jobs import LIAR, document_of, finished
from tests.unit.dashboard.scripted import ScriptedClient, gas_of
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script
from typer.testing import CliRunner

from atoll.cli.main import app
from atoll.cli.network_commands import Network
from atoll.job.event_text import tokens
from atoll.job.ledger.overview import Beside


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Script:
    script = finished()

    @asynccontextmanager
    async def opened(network: Network, **_: Any) -> AsyncIterator[ScriptedClient]:
        yield ScriptedClient(script)

    monkeypatch.setattr(Network, "open", opened)
    return script


def history(script: Script, *more: str) -> str:
    words = ["job", "history", str(script.net.job), *more]
    return CliRunner().invoke(app, words, catch_exceptions=False).stdout


def test_it_says_what_became_of_rounds_bonds_and_money(ended: Script) -> None:
    lines, net = history(ended).splitlines(), ended.net
    assert [line.split()[:2] for line in lines[1:3]] == [["0", "final"], ["1", "final"]]
    where = f"segment 2 of seat {LIAR}"
    assert any(line.endswith(f" says that {where} differs") for line in lines)
    game = f"  game 1: {VERIFIERS[0]} disputes {where} in round 0: {VERIFIERS[0]} wins"
    assert f"{game}, after 2 moves" in lines
    bond = tokens(net.terms.provider_bond)
    assert (
        f"  round 0: {PROVIDERS[LIAR]} loses {bond} for game 1, about {where} in round 0" in lines
    )
    sums = f"{tokens(net.funded)} funded = {tokens(net.claimed)} paid + {tokens(net.burnt)} burnt"
    assert any(line.startswith(f"escrow: {sums}") for line in lines)


def test_programs_have_the_pages_document(ended: Script) -> None:
    assert json.loads(history(ended, "--json")) == json.loads(
        json.dumps(document_of(ended, beside=Beside(gas=gas_of(ended))))
    )
