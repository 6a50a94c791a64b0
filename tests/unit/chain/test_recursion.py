"""What nests deeply is an error of its reader, and not the end of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORTS = "import json, atoll.chain.keys, atoll.chain.contracts, atoll.chain.txqueue"


@pytest.mark.parametrize(
    "first",
    [
        f"import eth_account; {IMPORTS}",
        f"{IMPORTS}; atoll.chain.keys.account_of(bytes(31) + b'1')",
        f"{IMPORTS}; atoll.chain.keys.signer_of(bytes(32), bytes(65))",
    ],
)
def test_a_deep_document_is_an_error_and_not_a_crash(first: str) -> None:
    code = (
        f"{first}\n"
        "try:\n    json.loads('[' * 1_000_000)\n"
        "except RecursionError:\n    print('contained')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"contained\n"), done.stderr
