"""`train_model` where it cannot wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.errors import ConfigError
from atoll.job.script import train_model


async def test_in_a_notebook_it_says_what_to_call_instead(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an event loop of its own") as refused:
        train_model("text", budget="1", folder=tmp_path / "model")
    assert "atoll.Client" in (refused.value.next_step or "")
