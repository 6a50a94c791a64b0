"""What nests deeply is an error of its reader, and not the end of the process."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.nested import MOST_DEEP, check_depth, loads

ROOT = Path(__file__).parents[3]
USES = "atoll.chain.keys.account_of(bytes(31) + b'1')"
ORDERS = [
    "import eth_account, atoll; atoll.Client",
    "import atoll, eth_account; atoll.Client",
    "import atoll; atoll.Client; import eth_account",
    "import atoll; atoll.Client; import py_ecc.bls, eth_account.messages",
    "import py_ecc, atoll; atoll.AtollError; import atoll.chain.rpc, eth_account",
    f"import atoll.chain.keys, atoll.chain.txqueue; {USES}",
    "import atoll.chain.keys; atoll.chain.keys.signer_of(bytes(32), bytes(65))",
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
    "a service": "from atoll.service.plain import from_json; from_json(dict, TEXT)",
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


def test_nothing_reads_json_past_the_bound() -> None:
    found = []
    for top in ("sdk/atoll", "node/atoll_node", "verifier/atoll_verifier"):
        for file in (ROOT / top).rglob("*.py"):
            if file == ROOT / "sdk/atoll/nested.py":
                continue
            tree = ast.parse(file.read_text(encoding="utf-8"))
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            found += [f"{file}:{call.lineno}" for call in calls if _is_unbounded(call)]
    assert found == []


def _is_unbounded(call: ast.Call) -> bool:
    """`json.loads(…)`, or an answer's `.json()` without a reader of ours."""
    if not isinstance(call.func, ast.Attribute):
        return False
    name, of = call.func.attr, ast.unparse(call.func.value)
    if of == "json":
        return name in {"loads", "load"}
    return name == "json" and not any(word.arg == "loads" for word in call.keywords)


# --- the bound itself ---


def nested(depth: int) -> Any:
    value: Any = 1
    for i in range(depth):
        value = [value] if i % 2 else {'[\\"{': value}
    return value


def depth_of(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max((depth_of(item) for item in items), default=0) + isinstance(value, dict | list)


@pytest.mark.parametrize("beside", [[], ["]" * 300, "\\", '\\"[', [[]] * 300, [{"}": 1}] * 99]])
def test_the_bound_is_exact(beside: list[Any]) -> None:
    for depth in (MOST_DEEP - 1, MOST_DEEP):
        text = json.dumps([*beside, nested(depth)])
        if depth < MOST_DEEP:
            assert loads(text) == loads(text.encode()) == loads(text.encode("utf-16"))
            continue
        with pytest.raises(ValueError, match="deeper than 100"):
            loads(text)


VALUES = st.recursive(
    st.none() | st.integers() | st.text('[]{}"\\a\u5b5b\u2222'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('[]{}"\\'), inner),
)


@given(VALUES, st.integers(0, 120), st.booleans())
def test_what_json_has_in_it_changes_nothing(value: Any, deeper: int, is_ascii: bool) -> None:
    for _ in range(deeper):
        value = [value, ']]]\\"[']
    text, depth = json.dumps(value, ensure_ascii=is_ascii), depth_of(value)
    if depth <= MOST_DEEP:
        assert loads(text) == value
    else:
        with pytest.raises(ValueError, match="nests deeper"):
            check_depth(text)


@given(st.text('[]{}",:1\\ ', max_size=400))
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        with pytest.raises(ValueError):
            loads(text * 300)
    else:
        assert loads(text) == json.loads(text)
