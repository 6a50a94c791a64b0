"""What a running service shows to its operator: answers over the control socket, and metrics."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from atoll.service.control import Answer
from atoll.service.health import Metric
from atoll.service.orders import NO_ORDERS, Orders
from atoll.service.service import Service
from atoll.service.transactions import CHANGES, Change, change_in
from atoll.service.wallet import send_in, state_in


def answers_of(service: Service[Any]) -> dict[str, Answer]:
    """What a service answers over its control socket."""

    def changing(change: Change) -> Answer:
        async def answer(arguments: dict[str, Any]) -> None:
            await change_in(service.effects.context.queue, str(arguments["key"]), change)

        return answer

    async def status(_: dict[str, Any]) -> dict[str, Any]:
        return service.status()

    async def send(arguments: dict[str, Any]) -> None:
        context = service.effects.context
        await send_in(context.queue, context.chain.deployment, arguments)

    async def state(arguments: dict[str, Any]) -> dict[str, Any]:
        return state_in(service.effects.context.queue, str(arguments["key"]))

    async def stop(_: dict[str, Any]) -> dict[str, Any]:
        service.stop()
        return service.status() | {"is_supervised": "NOTIFY_SOCKET" in os.environ}

    answers: dict[str, Answer] = {
        "status": status,
        "stop": stop,
        "tx-send": send,
        "tx-state": state,
    }
    changes = {f"tx-{change}": changing(change) for change in CHANGES}
    return answers | changes | ordering(service)


def ordering(service: Service[Any]) -> dict[str, Answer]:
    """What an operator orders; each answers with where the service stands then."""

    def obeying(change: Callable[[Orders, dict[str, Any]], Orders]) -> Answer:
        async def answer(arguments: dict[str, Any]) -> dict[str, Any]:
            service.order(change(service.orders, arguments))
            return service.status()

        return answer

    return {
        "drain": obeying(lambda orders, _: replace(orders, drains=True)),
        "pause": obeying(lambda orders, _: replace(orders, pauses=True)),
        "resume": obeying(lambda _, __: NO_ORDERS),
        "leave": obeying(lambda orders, arguments: orders.leaving(int(arguments["job"]))),
    }


def metrics_of(service: Service[Any]) -> Iterator[Metric]:
    """What a service measures, as Prometheus takes it."""
    context = service.effects.context
    use, gateway = context.queue.gas_by_label(), context.gateway
    unlabelled = ""  # it has no label

    def counter(name: str, text: str, value: float) -> Metric:
        return Metric(f"atoll_{name}_total", "counter", text, {unlabelled: value})

    def gauge(name: str, text: str, value: float) -> Metric:
        return Metric(f"atoll_{name}", "gauge", text, {unlabelled: value})

    status = service.health_status()
    yield gauge("blocked", "1 where somebody has to do something", bool(status and status.is_fault))
    if service.head is not None:
        yield gauge("chain_head_block", "Newest block seen", service.head.number)
        yield gauge("chain_head_time_seconds", "Its unix time", service.head.time)
    yield gauge("jobs", "Jobs that are followed", service.jobs)
    yield gauge("commands_under_way", "Effects under way", service.under_way)
    yield counter("commands_failed", "Effects that did not take place", service.failed)
    yield counter("rpc_useless_answers", "Useless answers", context.chain.provider.useless_answers)
    yield counter("undecodable_logs", "Logs that are no events", context.follower.undecodable)
    yield counter("journal_damaged_rows", "Rows that went at the start", context.journal.damaged)
    missed = sum(map(len, service.missed_duties.values()))
    yield counter("missed_duties", "Duties that the account was penalised for", missed)
    yield gauge("stuck_jobs", "Jobs whose machine does not step", service.stuck)
    yield counter("uploaded_bytes", "Block bytes sent", gateway.bytes_up + context.fetcher.bytes_up)
    yield counter("downloaded_bytes", "Received from gateways", context.fetcher.bytes_down)
    yield gauge("gateway_connections", "Open now", gateway.connections)
    away = {reason: float(count) for reason, count in gateway.sent_away.items()}
    yield Metric("atoll_gateway_sent_away_total", "counter", "Ended by us", away, "reason")
    gas = {label: float(u.gas) for label, u in use.items()}
    yield Metric("atoll_gas_used_total", "counter", "Of mined transactions", gas, "call")
    fees = sum(u.fees for u in use.values())
    yield counter("fees_wei", "Paid for gas", float(fees))
    room = shutil.disk_usage(context.config.data_dir).free
    yield gauge("disk_free_bytes", "Where the service writes", room)
