"""What `deploy/` starts is what the command line knows."""

from __future__ import annotations

import configparser
import re
import tomllib
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


def test_the_image_is_of_what_the_package_is_of() -> None:
    """Else a build lacks a folder, or takes in an environment of gigabytes and a key."""
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert lines.index("*") < min(i for i, line in enumerate(lines) if line.startswith("!"))
    taken = {line[1:] for line in lines if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = {*project["project"]["license-files"], project["project"]["readme"], "pyproject.toml"}
    assert taken == files | {package.partition("/")[0] for package in packages}


def test_the_image_says_for_which_device_it_can_be_built() -> None:
    file = (DEPLOY / "Dockerfile").read_text()
    (default,) = re.findall(r"^ARG DEVICE=(\w+)$", file, re.MULTILINE)
    devices = re.findall(r"^ +(\w+)\) index=", file, re.MULTILINE)
    assert default == devices[0] and set(devices) == {"cpu", "cuda"}
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert services["node"]["build"]["args"] == {"DEVICE": f"${{ATOLL_IMAGE_DEVICE:-{default}}}"}
    (python,) = re.findall(r"^ARG PYTHON=([\d.]+)$", file, re.MULTILINE)
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert f"Programming Language :: Python :: {python}" in classifiers


@pytest.mark.parametrize("line", re.findall(r"^atoll .*$", (ROOT / "docs/operator.md").read_text(),
                                            re.MULTILINE))  # fmt: skip
def test_the_operators_page_names_commands_that_there_are(line: str) -> None:
    assert_known(line.partition("#")[0].split()[1:])
