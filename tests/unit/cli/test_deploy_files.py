"""What `deploy/` starts is what the command line knows."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from atoll.cli.main import app
from atoll.service.config import ServiceConfig

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def assert_known(words: list[str]) -> None:
    """A command with options, each of which it has."""
    group = typer.main.get_command(app)
    while hasattr(group, "resolve_command"):
        _, group, words = group.resolve_command(typer.Context(group), words)
    options = {option for parameter in group.params for option in parameter.opts}
    assert [word for word in words if word.startswith("--") and word not in options] == []


def test_the_unit_starts_a_command_and_restarts_no_bad_configuration() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read(DEPLOY / "atoll-node@.service")
    service = unit["Service"]
    program, *words = service["ExecStart"].split()
    assert program.endswith("/bin/atoll")
    assert_known(words)
    assert (service["Type"], service["RestartPreventExitStatus"]) == ("notify", "2")
    assert service["UMask"] == "0077"


def verified(program: str, unit: Path) -> str:
    """What systemd has to say against a unit."""
    command = [program, "verify", "--man=no", "--recursive-errors=no", str(unit)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("role", ["node", "verifier"])
def test_systemd_finds_no_fault_with_the_unit(role: str, tmp_path: Path) -> None:
    """As its own comment says to use it: for a verifier, with the other word in ExecStart."""
    program = shutil.which("systemd-analyze")
    assert program, "this test needs systemd-analyze, of the Debian package `systemd`"
    text = (DEPLOY / "atoll-node@.service").read_text()
    here = text.replace("/opt/atoll/.venv/bin/atoll node", f"{sys.executable} {role}")
    assert here != text
    unit = tmp_path / f"atoll-{role}@.service"
    unit.write_text(here)
    assert verified(program, unit) == ""
    unit.write_text(here.replace("Restart=always", "Restart=sometimes"))
    assert "sometimes" in verified(program, unit)


def test_compose_starts_commands_with_settings_that_there_are() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        assert_known(service["command"])
        for name in service["environment"]:
            section, field = name.removeprefix("ATOLL_SERVICE__").lower().split("__")
            assert field in type(ServiceConfig.model_fields[section].default).model_fields
        dockerfile = DEPLOY.parent / service["build"]["dockerfile"]
        assert dockerfile.is_file()


@pytest.mark.parametrize("line", re.findall(r"^atoll .*$", (ROOT / "docs/operator.md").read_text(),
                                            re.MULTILINE))  # fmt: skip
def test_the_operators_page_names_commands_that_there_are(line: str) -> None:
    assert_known(line.partition("#")[0].split()[1:])
