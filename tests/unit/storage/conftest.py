"""A store that blocks are fetched from, and one that they are fetched into."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.storage import (
    LocalStore,
)


@pytest.fixture
def theirs(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "theirs", sync=False)


@pytest.fixture
def ours(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "ours", sync=False)
