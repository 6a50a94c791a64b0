"""What tests of commands leave as it was, and keys that are cheap to derive.

That a key is derived at the standard's cost is tested with the keystores
(`tests/unit/chain/test_keystores.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from atoll.chain import keys


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command has logs go to the standard error that it was given, which ends with the test."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True)
def keys_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second and 256 MiB a key otherwise."""
    monkeypatch.setattr(keys, "SCRYPT_N", keys.DEVNET_SCRYPT_N)
