"""What the machine cannot run is not collected: Kubo comes as a library for these machines, and its
client with the `test` or `kubo` extra.
"""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec

collect_ignore = []
if find_spec("ipfshttpclient") is None:
    collect_ignore.append("test_kubo.py")
if sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"}:
    collect_ignore.append("test_libkubo.py")
