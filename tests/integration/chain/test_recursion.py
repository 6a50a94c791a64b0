"""What strangers say is bounded in any process, whatever is imported first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

USES = "atoll.chain.keys.account_of(bytes(31) + b'1')"


ORDERS = [
    "import eth_account, atoll; atoll.Client",
    "import atoll, eth_account; atoll.Client",
    "import atoll; atoll.Client; import eth_account",
    "import atoll; atoll.Client; import py_ecc.bls, eth_account.messages",
    "import py_ecc, atoll; atoll.AtollError; import atoll.chain.rpc, eth_account",
    "import atoll.protocol.bls_reference",
    f"import atoll.chain.keys, atoll.chain.txqueue; {USES}",
    "import atoll.chain.keys, atoll.protocol.certificates as c; c.signer_of(bytes(32), bytes(65))",
    f"import eth_account; import atoll.chain.keys; {USES}; import atoll; atoll.Client",
]
"""Of what a program may import, and when."""


READERS = {
    "a node": "from atoll.chain.rpc import _result_of; _result_of(DEEP, 'eth_call')",
    "a deployment": "from atoll.chain.deployment import Deployment; Deployment.from_json(TEXT)",
    "a keystore": "from atoll.chain.keys import _parse; _parse(TEXT, 'it')",
    "a row": (
        "from atoll.train.corpus.documents import _field\n"
        "from atoll.train.corpus.options import DataOptions\n"
        "_field(DEEP, 'it', DataOptions(paths=()))"
    ),
    "a tokenizer": (
        "import pathlib; from atoll.train.corpus.encoders import _json_of\n"
        "_json_of(pathlib.Path('deep'))"
    ),
    "a checkpoint": (
        "import pathlib; from atoll.train.pretrained import read_json\n"
        "read_json(pathlib.Path('deep'))"
    ),
    "a service": "from atoll.service.serialization import from_json; from_json(dict, TEXT)",
}


def ended(code: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize("order", ORDERS)
def test_a_deep_document_is_an_error_whatever_is_imported_first(order: str) -> None:
    done = ended(
        f"{order}\nimport json, sys\n"
        "try:\n    json.loads('[' * 90_000)\n"
        "except RecursionError:\n    print('contained', sys.getrecursionlimit())\n"
    )
    assert (done.returncode, done.stdout) == (0, "contained 1000\n"), done.stderr


@pytest.mark.parametrize("shape", ["[", '{"a":', '[{"a":'])
def test_what_strangers_say_is_bounded_whatever_the_limit_is(shape: str, tmp_path: Path) -> None:
    (tmp_path / "deep").write_text(shape * 90_000)
    for who, read in READERS.items():
        lines = "".join(f"    {line}\n" for line in read.splitlines())
        done = ended(
            "import sys; import eth_account; import atoll.chain; from atoll.errors import *\n"
            "sys.setrecursionlimit(10_000_000)\n"
            f"TEXT = {shape!r} * 90_000; DEEP = TEXT.encode()\n"
            f"try:\n{lines}"
            "except Exception as error:\n    print(type(error).__name__)\n",
            tmp_path,
        )
        assert done.returncode == 0, (who, done.returncode, done.stderr)
        assert done.stdout.strip() not in {"", "RecursionError", "NameError"}, (who, done.stdout)
