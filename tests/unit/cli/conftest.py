"""Keys that are cheap to derive.

That a key is derived at the standard's cost is tested with the keystores
(`tests/unit/chain/test_keystores.py`).
"""

from __future__ import annotations

import pytest

from atoll.chain import keys


@pytest.fixture(autouse=True)
def keys_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second and 256 MiB a key otherwise."""
    monkeypatch.setattr(keys, "SCRYPT_N", keys.DEVNET_SCRYPT_N)
