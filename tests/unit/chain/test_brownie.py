"""Brownie's script sends what `atoll network deploy` sends: the same contracts, from the same."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import rlp  # type: ignore[import-untyped]
from eth_abi.abi import encode as abi_encode
from eth_account import Account
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from atoll.chain.abi import input_types, load_artifact, registry
from atoll.chain.default_params import default_params
from atoll.chain.deploy import DeployConfig, _Deployer
from atoll.chain.rpc import FailoverProvider

SCRIPT = Path(__file__).parents[3] / "contracts" / "scripts" / "deploy.py"
OWNER = Account.from_key(bytes(31) + b"\x07")
Sent = tuple[str, str | None, bytes]
"""What, to whom, and the data of one transaction."""


class Owner:
    """Brownie's account, as far as the script knows one."""

    def __init__(self) -> None:
        self.address, self.sent = OWNER.address, list[Sent]()

    @property
    def nonce(self) -> int:
        return len(self.sent)

    def get_deployment_address(self, nonce: int) -> str:
        sender = bytes.fromhex(self.address[2:])
        return str(to_checksum_address(keccak(rlp.encode([sender, nonce]))[12:]))


class Deployed:
    """A contract on Brownie's chain."""

    def __init__(self, name: str, address: str, owner: Owner) -> None:
        self._name, self.address, self._owner = name, address, owner

    def wire(self, *args: Any) -> None:
        function = registry().function("wire", self._name)
        data = function.selector + abi_encode(function.inputs, plain(without_sender(args)))
        self._owner.sent.append((f"wiring {self._name}", self.address, data))


class Container:
    """A contract that Brownie has compiled."""

    def __init__(self, name: str) -> None:
        self._name = name

    def deploy(self, *args: Any) -> Deployed:
        owner = cast(Owner, args[-1]["from"])
        artifact = load_artifact(self._name)
        constructor = [item for item in artifact["abi"] if item["type"] == "constructor"]
        types = input_types(constructor[0]["inputs"]) if constructor else ()
        code = bytes.fromhex(artifact["bytecode"].removeprefix("0x"))
        address = owner.get_deployment_address(owner.nonce)
        data = code + abi_encode(types, plain(without_sender(args)))
        owner.sent.append((f"creating {self._name}", None, data))
        return Deployed(self._name, address, owner)


def without_sender(args: Sequence[Any]) -> Sequence[Any]:
    """Brownie's last argument says who sends."""
    assert set(args[-1]) == {"from"}
    return args[:-1]


def plain(value: Any) -> Any:
    """With addresses in place of contracts and accounts."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return getattr(value, "address", value)


class Brownie(ModuleType):
    """The module that the script imports everything from."""

    def __init__(self, owner: Owner, *, has_bls: bool) -> None:
        super().__init__("brownie")
        self.accounts = [owner]
        answer = bytes(128) if has_bls else b""
        self.web3 = SimpleNamespace(eth=SimpleNamespace(call=lambda _: answer))

    def __getattr__(self, name: str) -> Container:
        if name.startswith("_"):
            raise AttributeError(name)
        return Container(name)


@pytest.mark.parametrize("has_bls", [True, False])
def test_brownie_s_script_sends_the_same_transactions(
    monkeypatch: pytest.MonkeyPatch, has_bls: bool
) -> None:
    owner = Owner()
    monkeypatch.setitem(sys.modules, "brownie", Brownie(owner, has_bls=has_bls))
    runpy.run_path(str(SCRIPT))["main"]()
    endpoints = FailoverProvider(["http://127.0.0.1:1"], chain_id=None)
    deployer = _Deployer(endpoints, OWNER, DeployConfig())
    deployer._plan(default_params(31337), "HistoryBeacon", has_bls=has_bls)
    ours = [(step.what, step.to, step.data) for step in deployer._steps]
    assert [what for what, *_ in owner.sent] == [what for what, *_ in ours]
    assert owner.sent == ours
    assert sum(what == "creating BlsPolicy" for what, *_ in ours) == has_bls
