"""What a service was told, as its operator reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from atoll.chain.keys import create_key
from atoll.cli.members import node
from atoll.cli.services import order, orders_text, schedule_of, schedule_text, status_text
from atoll.errors import ConfigError

PASSWORD = "correct horse battery"
WORKS: dict[str, Any] = {
    "running": True,
    "orders": {"pauses": False, "drains": False, "left": []},
    "sits_out": "",
    "bonded": [3],
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a service that does not run."""
    key = create_key(tmp_path / "keys", PASSWORD, devnet=True)
    (tmp_path / "config.toml").write_text(
        'role = "provider"\nrpc_urls = ["http://127.0.0.1:1"]\ndeployment = "d.json"\n'
        f'keystore = "{key.path}"\npassword_file = "p"\ndata_dir = "data"\n'
    )
    return tmp_path / "config.toml"


def test_who_takes_part_has_no_orders_to_show() -> None:
    assert orders_text(WORKS) == ""
    assert "orders" not in status_text(WORKS)


def test_orders_say_which_bonds_are_not_home() -> None:
    paused = WORKS | {"sits_out": "is paused, as ordered"}
    assert orders_text(paused) == "is paused, as ordered; bonds are still in job 3"
    assert "orders           is paused, as ordered" in status_text(paused)
    home = paused | {"bonded": []}
    assert orders_text(home) == "is paused, as ordered; no bond is in a job"
    left = WORKS | {"orders": {"pauses": False, "drains": False, "left": [3, 4]}}
    assert orders_text(left).startswith("leaves job 3 and does not join it again; leaves job 4")


def test_a_status_is_in_words() -> None:
    told = status_text(
        WORKS
        | {"pid": None, "sent_away": {}, "stuck_jobs": [7], "head": {"block": 9, "time": 60}}
        | {"taken": 9, "sent": 4, "under_way": ["5:train.v1:0"]}
        | {"over": [3, 4], "duties": {str(job): {"train": "waits"} for job in (3, 4, 5)}}
        | {"jobs": {"0": {"-1": {"bytes_down": 1059120.0}}, "7": {"2": {"train_seconds": 5.25}}}}
    )
    assert told.splitlines() == [
        "over             job 3, 4",
        "running          true",
        "pid              none",
        "sent_away        none",
        "stuck_jobs       [7]",
        "head             block 9, 1970-01-01 00:01:00 UTC",
        "job 5 train        waits",
        "service: bytes_down 1,059,120",
        "job 7 round 2: train_seconds 5.25",
    ]


@pytest.mark.parametrize("what", ["drain", "pause", "resume", "leave"])
def test_who_does_not_run_takes_no_orders(config: Path, what: str) -> None:
    arguments = {"job": 7} if what == "leave" else {}
    with pytest.raises(ConfigError, match="is running") as caught:
        order(config, what, **arguments)
    assert caught.value.next_step == f"atoll node run --config {config}, then this command again"


def test_hours_are_shown(config: Path) -> None:
    assert schedule_text(schedule_of(config)) == "always: no hours are set"
    with config.open("a") as file:
        file.write('[schedule]\nhours = ["00:00-23:59", "23:59-00:00"]\n')
    found = schedule_of(config)
    assert found["is_in"]
    assert schedule_text(found) == "00:00-23:59, 23:59-00:00 UTC: it is in its hours"


def test_a_job_is_named_to_be_left() -> None:
    done = CliRunner().invoke(node, ["leave"])
    assert done.exit_code == 2
    assert "JOB" in done.output
