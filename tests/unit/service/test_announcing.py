"""What a member says of its gateway: where it is, or that there is none any more."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.protocol.script import PROVIDERS, Script
from tests.unit.service.held import URL, state_of

from atoll.errors import ConfigError
from atoll.protocol import events as ev
from atoll.protocol.membership import NOWHERE
from atoll.service import role as role_module
from atoll.service.duties.join_and_leave import SendAnnounce, decide_announce
from atoll.service.role import run_role
from atoll_node.behaviour import ProviderBehaviour

ME = PROVIDERS[0]


@pytest.fixture
def script() -> Script:
    return Script.ready()


def announces(script: Script, url: str) -> list[str]:
    state = state_of(script.net, ME, ProviderBehaviour())
    decision = decide_announce(replace(state, view=script.net.view), url)
    return [command.url for command in decision.commands if isinstance(command, SendAnnounce)]


def test_an_address_is_announced_once_and_taken_back_once(script: Script) -> None:
    assert announces(script, "") == []
    assert announces(script, URL) == [URL]
    script.net.emit(ev.GatewayAnnounced(ME, URL))
    assert announces(script, URL) == []
    assert announces(script, "") == [NOWHERE]
    script.net.emit(ev.GatewayAnnounced(ME, NOWHERE))
    assert announces(script, "") == []
    assert ME not in script.net.view.gateways


async def test_a_verifier_that_nobody_could_reach_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Opened:
        async def __aenter__(self) -> Any:
            return SimpleNamespace(url="")

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(role_module, "open_context", lambda config, serves: Opened())
    gateway = SimpleNamespace(announce=True)
    config: Any = SimpleNamespace(role=None, gateway=gateway, model_copy=lambda update: config)
    with pytest.raises(ConfigError, match="nobody could reach this verifier") as refused:
        await run_role("verifier", config, None, lambda state, event: (state, []))
    assert "public_url" in (refused.value.next_step or "")
