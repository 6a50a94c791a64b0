"""What nests deeply is an error of its reader, and not the end of the process."""

from __future__ import annotations

import subprocess
import sys


def test_a_deep_document_is_an_error_and_not_a_crash() -> None:
    code = (
        "import eth_account, json\n"
        "import atoll.chain.keys, atoll.chain.contracts, atoll.chain.txqueue\n"
        "try:\n    json.loads('[' * 1_000_000)\n"
        "except RecursionError:\n    print('contained')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"contained\n"), done.stderr
