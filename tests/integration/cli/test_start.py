"""What a start of the program costs, by what it loads: a time would be the machine's.

On two quiet cores `import atoll` takes 0.02 s of CPU and `atoll --help` 0.2 s, most of it Typer's.
"""

from __future__ import annotations

import json
import subprocess
import sys

import atoll

MODULES = """
import sys
before = set(sys.modules)
{code}
import json
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""
HELP = """
from atoll.cli.main import main
sys.argv = ["atoll", "--help"]
try:
    main()
except SystemExit:
    pass
"""
OURS_FOR_HELP = 20
"""Of our modules, those of the devnet's commands among them; there are 12."""
ALL_FOR_HELP = 600
"""With Typer, rich and the standard library; there are 410."""


def loaded(code: str) -> list[str]:
    """What code loads in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", MODULES.format(code=code)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stderr)  # type: ignore[no-any-return]


def foreign(modules: list[str]) -> set[str]:
    roots = {name.partition(".")[0] for name in modules}
    return {name for name in roots if name not in sys.stdlib_module_names} - {"atoll"}


def test_importing_atoll_loads_one_module_of_ours_and_no_library() -> None:
    modules = loaded("import atoll")
    assert [name for name in modules if name.startswith("atoll")] == ["atoll"]
    assert not foreign(modules)
    assert "importlib.metadata" not in modules


def test_help_loads_few_modules_and_only_what_prints_it() -> None:
    modules = loaded(HELP)
    assert len([name for name in modules if name.startswith("atoll")]) <= OURS_FOR_HELP
    assert len(modules) <= ALL_FOR_HELP
    printers = {"attr", "markdown_it", "mdurl", "pygments", "rich", "shellingham", "typer"}
    assert foreign(modules) <= {"annotated_doc", "atoll_devnet", "typing_extensions", *printers}


def test_python_m_atoll_is_the_program() -> None:
    def said(*arguments: str) -> str:
        command = [sys.executable, "-m", "atoll", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said("--version") == f"atoll {atoll.__version__}\n"
    help_ = said("--help")
    assert "Usage: python -m atoll" in help_
    assert "_ATOLL_COMPLETE=source_bash" in help_
