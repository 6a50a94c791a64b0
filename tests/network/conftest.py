"""Where the networks of this folder are made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.network.members import Site
from tests.support.beginnings import beginning_of
from tests.support.patience import ended_when_still


@pytest.fixture(scope="session")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return beginning_of(tmp_path_factory)


@pytest.fixture
def site(tmp_path: Path, beginning: Path) -> Site:
    return Site(tmp_path, beginning)


@pytest.fixture(autouse=True)
def _goes_on_while_it_moves(tmp_path: Path) -> Iterator[None]:
    with ended_when_still(tmp_path):
        yield
