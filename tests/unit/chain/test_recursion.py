"""What nests deeply is an error of its reader, and not the end of the process."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.nested import MOST_DEEP, check_depth, loads

ROOT = Path(__file__).parents[3]


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
