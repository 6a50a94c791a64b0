"""A model is written where nobody has files, or where an earlier one of a job was."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.dashboard.jobs import ledger_of
from tests.unit.job.trained import TrainedJob
from typer.testing import CliRunner

from atoll.cli.job import app
from atoll.cli.network_commands import Network
from atoll.errors import ConfigError, StorageError
from atoll.job import certified
from atoll.job.certified import Certified, check_folder
from atoll.job.client import Client
from atoll.job.handle import JobHandle
from atoll.job.model_card import FACTS, MODEL_CARD, Origin
from atoll.job.script import train_model
from atoll.protocol.types import JobId
from atoll.train import export
from atoll.train.export import FILES


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Somebody's model."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    (tmp_path / "mine" / MODEL_CARD).write_text("what I found")
    return tmp_path / "mine"


@pytest.mark.parametrize("told", [None, "{}", "[1]", "no JSON", '{"model_digest": "00"}'])
def test_files_of_somebody_s_are_not_replaced(full: Path, told: str | None) -> None:
    if told is not None:
        (full / FACTS).write_text(told)
    with pytest.raises(ConfigError, match=r"mine has files, and no card\.json of a job's model"):
        check_folder(full)


def test_what_is_empty_or_not_there_or_ours_may_be_written(tmp_path: Path, full: Path) -> None:
    check_folder(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    check_folder(tmp_path / "empty")
    (full / FACTS).write_text(json.dumps({"rounds_contract": "0x00", "model_digest": "00"}))
    check_folder(full)
    with pytest.raises(StorageError):
        check_folder(full / MODEL_CARD)


async def test_a_folder_that_is_refused_costs_no_work(full: Path) -> None:
    handle = JobHandle(cast(Client, SimpleNamespace()), JobId(1))
    for fetched in (handle.result(full), handle.checkpoint(str(full))):
        with pytest.raises(ConfigError, match="mine has files"):
            await fetched


def test_a_command_that_would_replace_files_of_somebody_s_does_not_connect(
    full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(network: Network, **_: Any) -> None:
        raise AssertionError("a client would connect now")

    monkeypatch.setattr(Network, "open", opened)
    done = CliRunner().invoke(app, ["result", "1", str(full)])
    assert isinstance(done.exception, ConfigError)
    (full / "job.toml").write_text("# my own\n")
    go_on = ["continue", "1", "--rounds", "1", "--max-spend", "1", "--yes", "--folder", str(full)]
    done = CliRunner().invoke(app, go_on)
    assert "job.toml is there already" in str(done.exception)
    assert (full / "job.toml").read_text() == "# my own\n"


def test_nothing_is_paid_for_a_model_that_could_not_be_written(full: Path) -> None:
    with pytest.raises(ConfigError, match="mine has files"):
        train_model("text", budget="1", folder=full)


def test_who_was_stopped_amid_the_weights_may_write_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, folder = TrainedJob.begin(tmp_path, rounds=1), tmp_path / "model"
    job.round()
    (settled_round,) = job.script.net.view.settled
    model = Certified(
        certified.Cid.from_bytes(settled_round.verdict.cid), settled_round.verdict.state
    )
    origin = Origin(ledger_of(job.script), job.manifest, 1, ())

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(export, "save_file", stopped)
        with pytest.raises(KeyboardInterrupt):
            certified.export(job.store, origin, model, folder, merged=False)
    check_folder(folder)
    certified.export(job.store, origin, model, folder, merged=False)
    assert {path.name for path in folder.iterdir()} == {*FILES, MODEL_CARD, FACTS}
