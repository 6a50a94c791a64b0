"""`/metrics`, `/livez` and `/readyz` over HTTP."""

from __future__ import annotations

import re

import aiohttp
import pytest

from atoll.errors import ConfigError
from atoll.service.health import Health, Metric, answering
from atoll.service.health_status import HealthStatus

METRICS = [
    Metric("atoll_disk_free_bytes", "gauge", "Where it writes", {"": 2.0**53 - 1}),
    Metric("atoll_gas_used_total", "counter", "Of calls", {'a"b\\c\n': 1, "join": 2}, "call"),
]
LINE = re.compile(r'[a-z_]+(\{[a-z]+="(\\\\|\\"|\\n|[^"\\\n])*"\})? \S+')


async def get(port: int, path: str) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def test_metrics_are_in_the_text_format() -> None:
    async with answering("127.0.0.1", 0, Health(lambda: METRICS, lambda: None)) as port:
        status, kind, text = await get(port, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert text.endswith("\n")
    lines = text.splitlines()
    assert lines[:3] == [
        "# HELP atoll_disk_free_bytes Where it writes",
        "# TYPE atoll_disk_free_bytes gauge",
        "atoll_disk_free_bytes 9007199254740991",
    ]
    assert 'atoll_gas_used_total{call="a\\"b\\\\c\\n"} 1' in lines
    assert all(LINE.fullmatch(line) for line in lines if not line.startswith("#"))


async def test_ready_and_alive_follow_the_service() -> None:
    health_status: list[HealthStatus | None] = [None]
    alive = [True]
    health = Health(lambda: METRICS, lambda: health_status[0], lambda: alive[0])
    async with answering("127.0.0.1", 0, health) as port:
        assert [(await get(port, path))[0] for path in ("/readyz", "/livez")] == [200, 200]
        health_status[0] = HealthStatus("no job", "none is open", "wait", is_fault=False)
        assert (await get(port, "/readyz"))[0] == 200
        health_status[0] = HealthStatus("money", "has 0 wei", "send some")
        status, _, text = await get(port, "/readyz")
        assert (status, text) == (503, "has 0 wei\nnext: send some\n")
        alive[0] = False
        assert (await get(port, "/livez"))[0] == 503
        assert (await get(port, "/other"))[0] == 404


async def test_an_address_in_use_is_one_clear_error() -> None:
    health = Health(lambda: METRICS, lambda: None)
    async with answering("127.0.0.1", 0, health) as port:
        with pytest.raises(ConfigError, match="cannot be used") as caught:
            async with answering("127.0.0.1", port, health):
                pass
    assert caught.value.next_step is not None
