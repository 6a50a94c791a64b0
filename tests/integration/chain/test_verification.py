"""Requests of Sourcify's beside a deployment file: each compiles to the code that is deployed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.identities import address

from atoll.chain.abi import load_artifact
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.chain.verification import folder_beside, standard_input, write_requests

CONTRACTS = Path(__file__).parents[3] / "contracts"


def compiled(standard_json: dict[str, Any], identifier: str) -> str:
    command = [str(CONTRACTS / "tools" / "solc"), "--standard-json"]
    given = json.dumps(standard_json)
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    path, _, name = identifier.rpartition(":")
    code: str = json.loads(done.stdout)["contracts"][path][name]["evm"]["bytecode"]["object"]
    return "0x" + code


@pytest.fixture
def requests(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """By `NAME.ADDRESS`, as they are written."""
    made = Deployment(10, 1, {name: address(name) for name in REQUIRED})
    out = tmp_path / "deployment.json"
    written = write_requests(made, folder_beside(out))
    assert sorted(written) == sorted((tmp_path / "deployment.sources").iterdir())
    return {path.stem: json.loads(path.read_text()) for path in written}


@pytest.mark.parametrize("name", ["EcdsaPolicy", "Config", "AtollToken"])
def test_a_request_compiles_to_what_is_deployed(
    requests: dict[str, dict[str, Any]], name: str
) -> None:
    request = requests[f"{name}.{address(name)}"]
    assert request["compilerVersion"] == "0.8.37+commit.f401782d"
    code = compiled(request["stdJsonInput"], request["contractIdentifier"])
    assert code == load_artifact(name)["bytecode"]


def test_a_changed_source_is_another_code() -> None:
    given = standard_input("AtollToken")
    source = given["sources"]["src/AtollToken.sol"]
    assert source["content"].count("_mint(holder, supply);") == 1
    source["content"] = source["content"].replace("(holder, supply)", "(holder, supply + 1)")
    code = compiled(given, "src/AtollToken.sol:AtollToken")
    assert code != load_artifact("AtollToken")["bytecode"]


def test_every_contract_has_its_request_and_a_strange_token_none(tmp_path: Path) -> None:
    made = Deployment(10, 1, {name: address(name) for name in REQUIRED})
    written = write_requests(made, tmp_path / "sources", is_new_token=False)
    assert {path.name.split(".")[0] for path in written} == set(REQUIRED) - {"AtollToken"}


def test_an_input_has_what_its_contract_imports_and_no_more() -> None:
    sources = standard_input("Jobs")["sources"]
    assert {"src/Jobs.sol", "src/Owners.sol", "src/libraries/Draws.sol"} < set(sources)
    assert "src/Stakes.sol" not in sources
