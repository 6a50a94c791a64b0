"""What `deploy/` starts is what the command line knows."""

from __future__ import annotations

import configparser
import re
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
