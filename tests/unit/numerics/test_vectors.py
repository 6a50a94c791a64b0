"""The vectors of the work are the ones that this code makes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

VECTORS = Path(__file__).parents[2] / "vectors"


def _generator(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"vectors_{name}", VECTORS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATORS = [_generator(f"generate{name}") for name in ("", "_judge", "_merge", "_moments")]
FILES = [(module, name) for module in GENERATORS for name in sorted(module.FILES)]


@pytest.mark.parametrize(("generator", "name"), FILES, ids=[name for _, name in FILES])
def test_running_the_generator_again_writes_the_same_file(generator: ModuleType, name: str) -> None:
    assert generator.render(generator.FILES[name]) == (VECTORS / name).read_text()
