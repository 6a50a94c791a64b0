"""What tests of commands leave as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command has logs go to the standard error that it was given, which ends with the test."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
