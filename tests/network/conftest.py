"""Where the networks of this folder are made."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.network.members import Site
from tests.support.beginnings import beginning_of


@pytest.fixture(scope="session")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return beginning_of(tmp_path_factory)


@pytest.fixture
def site(tmp_path: Path, beginning: Path) -> Site:
    return Site(tmp_path, beginning)
