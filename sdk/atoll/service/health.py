"""`/metrics`, `/livez` and `/readyz`, on loopback or wherever the config says.

Metrics are in Prometheus' text format 0.0.4: base units, `_total` where a number only grows, and no
labels of jobs or addresses, of which there is no end. The writer is this short because there are
two kinds of metrics and no registry: each scrape asks the service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from aiohttp import web

from atoll.errors import ConfigError
from atoll.service.health_status import HealthStatus

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """One name; `values` by the text of its label, or by the empty text where it has none.

    Attributes:
        label: the name of the label.
    """

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    values: Mapping[str, float]
    label: str = ""

    def lines(self) -> Iterable[str]:
        """Its lines in the text format."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for text, value in sorted(self.values.items()):
            where = f'{{{self.label}="{_escaped(text)}"}}' if self.label else ""
            yield f"{self.name}{where} {value:.17g}"


@dataclass(frozen=True)
class Health:
    """What the endpoints ask.

    Attributes:
        metrics: everything that is measured, now.
        health_status: what blocks the service.
        is_alive: whether its loop still takes steps.
    """

    metrics: Callable[[], Iterable[Metric]]
    health_status: Callable[[], HealthStatus | None]
    is_alive: Callable[[], bool] = field(default=lambda: True)


@asynccontextmanager
async def answering(host: str, port: int, health: Health) -> AsyncIterator[int]:
    """Answers while it is open, at the port that it gives.

    Raises:
        ConfigError: the address cannot be listened on.
    """

    async def metrics(_: web.Request) -> web.Response:
        lines = (line for metric in health.metrics() for line in metric.lines())
        text = "\n".join(lines) + "\n"
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def livez(_: web.Request) -> web.Response:
        alive = health.is_alive()
        return web.Response(status=200 if alive else 503, text="ok\n" if alive else "stuck\n")

    async def readyz(_: web.Request) -> web.Response:
        current = health.health_status()
        if current is None or not current.is_fault:
            return web.Response(text="ok\n")
        return web.Response(status=503, text=f"{current.text}\nnext: {current.next_step}\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/livez", livez)])
    app.add_routes([web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=10.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ConfigError(
                f"the health address {host}:{port} cannot be used: {error}",
                next_step="choose another port in [health]",
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
