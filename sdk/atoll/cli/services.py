"""What `atoll node` and `atoll verifier` share: a folder with a config, and the service in it.

Rule of this file: services are found by name, since their packages import atoll and not the other
way round.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from atoll.cli.keys import password_from
from atoll.errors import ConfigError

CONFIG_NAME = "config.toml"


def write_config(folder: Path, rpc: str, deployment: Path, password_file: Path) -> dict[str, str]:
    """Makes a service's folder: key, copy of the deployment, config. Returns what was made.

    Raises:
        ConfigError: the folder has a config already, or the deployment cannot be read.
        KeystoreError: the password is weak or the key cannot be written.
    """
    from atoll.chain.deployment import Deployment
    from atoll.chain.keys import create_key

    config = folder / CONFIG_NAME
    if config.exists():
        raise ConfigError(f"{config} exists already", next_step="name another --folder")
    known = Deployment.load(deployment)
    key = create_key(folder / "keys", password_from(password_file, new=True))
    known.save(folder / "deployment.json")
    endpoints = ", ".join(json.dumps(url) for url in rpc.split(","))
    config.write_text(
        f"rpc_urls = [{endpoints}]\n"
        'deployment = "deployment.json"\n'
        f"keystore = {json.dumps(str(key.path.relative_to(folder)))}\n"
        f"password_file = {json.dumps(str(password_file.resolve()))}\n"
        'data_dir = "data"\n\n'
        "[gateway]\n"
        'host = "127.0.0.1"\n'
        "port = 0\n",
        encoding="utf-8",
    )
    return {"config": str(config), "address": key.address, "keystore": str(key.path)}


def run_service(program: str, service: str, config: Path) -> int:
    """Runs a service until it is told to stop; its exit code."""
    from atoll.service.main import main

    serve = importlib.import_module(service).serve
    return main(program, serve, ["--config", str(config)])


def drain(config: Path) -> int:
    """Asks the service of a config to finish its round and to give its place up; its process.

    Raises:
        ConfigError: it is not running.
    """
    import os
    import signal

    from atoll.service.lock import holder_of

    pid = holder_of(load(config).data_dir)
    if not pid:
        raise ConfigError(
            f"no service of {config} is running", next_step="start it: only it can sign its leave"
        )
    os.kill(pid, signal.SIGUSR1)
    return pid


def load(config: Path) -> Any:
    """The settings in a config file. Raises ConfigError."""
    from atoll.service.config import ServiceConfig, read_config

    return read_config(ServiceConfig, config).beside(config.parent)


def status_of(config: Path) -> dict[str, Any]:
    """What a service has measured, and whether it runs."""
    from atoll.chain.deployment import Deployment
    from atoll.service.lock import holder_of
    from atoll.service.metrics import read_metrics

    settings = load(config)
    known = Deployment.load(settings.deployment)
    pid = holder_of(settings.data_dir)
    measured = read_metrics(settings.metrics_file)
    return {
        "running": pid is not None,
        "pid": pid,
        "chain_id": known.chain_id,
        "data_dir": str(settings.data_dir),
        **measured,
    }


def status_text(status: dict[str, Any]) -> str:
    """A status for a person."""
    lines = [f"{name:<10} {value}" for name, value in status.items() if name not in {"jobs", "gas"}]
    for job, rounds in status.get("jobs", {}).items():
        for index, measures in rounds.items():
            found = "  ".join(f"{name} {value:g}" for name, value in measures.items())
            lines.append(f"job {job} round {index}: {found}")
    return "\n".join(lines)
