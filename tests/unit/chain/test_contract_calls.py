"""Calls encode to what Solidity expects; deployments and revert reasons read well."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from eth_abi.abi import decode, encode
from eth_utils.crypto import keccak
from tests.support.disk import Disk

from atoll.chain.abi import ENTRY_CONTRACTS, registry
from atoll.chain.contract_calls import Calls
from atoll.chain.deployment import Deployment
from atoll.chain.revert import RevertReason, decode_revert, reason_of
from atoll.chain.rpc import FailoverProvider
from atoll.chain.verdicts import RpcRefused
from atoll.errors import ChainError, ConfigError
from atoll.protocol.call_structs import Certified
from atoll.protocol.games.moves import Claim, Reveal
from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
    HolderId,
    JobId,
    Role,
    RoundIndex,
    SeatIndex,
    SlotIndex,
    Verdict,
)

NAMES = (*ENTRY_CONTRACTS, "Claims", "Game", "Judge")
DEPLOYMENT = Deployment(
    31337, 4, {name: Address(f"0x{index + 1:040d}") for index, name in enumerate(NAMES)}
)
_WORD = Digest(bytes(32))
CLAIM = Claim(Address("0x" + "12" * 20), *(_WORD,) * 3, False, 0, 0, 0, *(_WORD,) * 2)
SEED = Digest(b"\x05" * 32)


def test_a_call_goes_to_the_contract_that_has_the_function() -> None:
    call = Calls(DEPLOYMENT).commit(JobId(1), SeatIndex(2), SEED, Digest(b"\x06" * 32))
    assert call.to == DEPLOYMENT.addresses["Rounds"]
    assert call.data[:4] == keccak(text="commit(uint256,uint16,bytes32,bytes32)")[:4]
    values = decode(["uint256", "uint16", "bytes32", "bytes32"], call.data[4:])
    assert values == (1, 2, b"\x05" * 32, b"\x06" * 32)
    assert not call.permissionless


def test_dataclasses_and_words_encode_by_position() -> None:
    verdict = Verdict(Bitmap(4), 2, SEED, b"cid", b"\x01" * 8)
    votes = {SlotIndex(7): Bitmap(0b101), SlotIndex(3): Bitmap(1)}
    member = Address("0x" + "ab" * 20)
    call = Calls(DEPLOYMENT).settle_words(
        JobId(1), votes, Certified(verdict, (member,), b"certificate")
    )
    certified = "((uint256,uint16,bytes32,bytes,bytes8,bytes32),address[],bytes)"
    said = ((4, 2, bytes(SEED), b"cid", b"\x01" * 8, bytes(32)), (member,), b"certificate")
    given = decode(["uint256", "bytes", "uint256[]", certified], call.data[4:])
    assert given == (1, b"\x07\x03", (0b101, 1), said)


def test_what_anyone_may_do_is_marked() -> None:
    calls = Calls(DEPLOYMENT)
    assert calls.advance(JobId(1)).permissionless
    assert calls.penalise_member(JobId(1), RoundIndex(0), HolderId(2)).permissionless
    assert not calls.deposit(Role.PROVIDER, 5).permissionless


def test_an_unknown_function_is_a_clear_error() -> None:
    with pytest.raises(ChainError, match="no contract has a function nothing"):
        Calls(DEPLOYMENT).build("nothing")


def test_a_name_of_several_contracts_has_to_be_completed() -> None:
    with pytest.raises(ChainError, match="several contracts have a function wire"):
        Calls(DEPLOYMENT).build("wire")
    assert Calls(DEPLOYMENT).cancel(JobId(1)).to == DEPLOYMENT.addresses["Jobs"]
    assert Calls(DEPLOYMENT).join(JobId(1), SeatIndex(0)).to == DEPLOYMENT.addresses["Members"]


def test_every_call_of_the_abi_goes_to_the_contract_that_says_it() -> None:
    """What is made from the ABI names its contract; two contracts may have one name."""
    account, calls = Address("0x" + "ab" * 20), Calls(DEPLOYMENT)
    staked = calls.stakes_withdraw(account, Role.PROVIDER, 3)
    owed = calls.game_withdraw(account)
    assert (staked.to, owed.to) == tuple(DEPLOYMENT.addresses[n] for n in ("Stakes", "Game"))
    assert staked.data[:4] == registry().function("withdraw", "Stakes").selector
    assert owed.data[:4] == registry().function("withdraw", "Game").selector


def test_a_deployment_survives_its_file(tmp_path: Path) -> None:
    DEPLOYMENT.save(tmp_path / "atoll.json")
    assert Deployment.load(tmp_path / "atoll.json") == DEPLOYMENT
    assert DEPLOYMENT.domain.rounds == DEPLOYMENT.addresses["Rounds"]
    assert [path.name for path in tmp_path.iterdir()] == ["atoll.json"]


WHOSE = Address("0x52908400098527886E0F7030069857D2E4169EE7")


def with_fields(**fields: object) -> str:
    return json.dumps(json.loads(DEPLOYMENT.to_json()) | fields)


def test_a_deployment_keeps_its_explorer_and_names() -> None:
    read = Deployment.from_json(
        with_fields(explorer="https://explorer.example/", names={WHOSE.lower(): "ann"})
    )
    assert (read.explorer, read.names) == ("https://explorer.example", {WHOSE: "ann"})
    assert Deployment.from_json(read.to_json()) == read
    assert "explorer" not in DEPLOYMENT.to_json() and "names" not in DEPLOYMENT.to_json()


def test_a_deployment_that_was_paid_for_is_there_after_a_power_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = Disk(monkeypatch)
    DEPLOYMENT.save(tmp_path / "atoll.json")
    assert disk.after_a_power_cut(tmp_path / "atoll.json") == DEPLOYMENT.to_json().encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "malformed"),
        ('{"chain_id": 1}', "malformed"),
        ('{"chain_id": 1, "block": 0, "addresses": {}}', "lacks AtollToken"),
        (DEPLOYMENT.to_json().replace("0x", "0y"), "not an address"),
        (with_fields(explorer="javascript:alert(1)"), "explorer"),
        (with_fields(explorer='https://x/"><b>'), "explorer"),
        (with_fields(explorer=7), "explorer"),
        (with_fields(names={"0x1": "ann"}), "name of 0x1"),
        (with_fields(names={WHOSE: ""}), "name of"),
        (with_fields(names={WHOSE: "n" * 65}), "name of"),
        (with_fields(names=5), "malformed"),
    ],
)
def test_a_broken_deployment_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Deployment.from_json(text)


def test_a_missing_deployment_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.json"):
        Deployment.load(tmp_path / "absent.json")


def test_another_file_is_no_deployment_and_says_which_it_is(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    key.write_text('{"crypto": {}}')
    with pytest.raises(ConfigError, match=r"key\.json is no .*: it has no chain_id") as caught:
        Deployment.load(key)
    assert "atoll network deploy" in (caught.value.next_step or "")


def test_revert_data_names_the_error() -> None:
    assert str(decode_revert(bytes.fromhex("08c379a0") + encode(["string"], ["too late"]))) == (
        "too late"
    )
    assert str(decode_revert(bytes.fromhex("4e487b71") + encode(["uint256"], [0x11]))) == (
        "Panic(0x11)"
    )
    assert decode_revert(b"\x01\x02\x03\x04rest").name == "Revert"
    assert str(decode_revert(b"")) == "Revert()"
    assert decode_revert(bytes.fromhex("08c379a0") + b"\xff").name == "Revert"
    assert str(RevertReason("WrongPhase", (4, b"\x01"), ("phase", ""))) == (
        "WrongPhase(phase=4, 0x01)"
    )


def test_a_custom_error_is_named_with_its_arguments() -> None:
    for error in registry().errors.values():
        values = [b"\x01" * 32 if t.startswith("bytes") else 1 for t in error.types]
        if all(kind.startswith(("uint", "bytes32")) for kind in error.types):
            reason = decode_revert(error.selector + encode(error.types, values))
            assert reason.name == error.name
            assert len(reason.args) == len(error.fields)


def test_every_node_s_way_to_say_reverted() -> None:
    text = "0x08c379a0" + encode(["string"], ["no"]).hex()
    message = "execution reverted"
    anvil = RpcRefused("eth_call", {"code": 3, "message": message, "data": text})
    ganache = RpcRefused("eth_call", {"code": -32000, "message": "", "data": {"result": text}})
    bare = RpcRefused("eth_call", {"code": -32000, "message": message})
    assert reason_of(anvil) == reason_of(ganache) == RevertReason("Error", ("no",))
    assert reason_of(bare) == RevertReason("Revert", (message,))


def test_endpoints_have_to_be_http() -> None:
    with pytest.raises(ConfigError, match="no RPC endpoint"):
        FailoverProvider([], 1)
    with pytest.raises(ConfigError, match="not an http") as caught:
        FailoverProvider(["http://localhost:1", "ws://localhost:1"], 1)
    assert "--rpc" in caught.value.next_step


def test_a_deployment_of_other_addresses_is_another() -> None:
    assert replace(DEPLOYMENT, chain_id=1) != DEPLOYMENT


def test_a_move_goes_to_the_game() -> None:
    call = Calls(DEPLOYMENT).play(3, CLAIM, Reveal((Digest(b"\x01" * 32),)))
    assert call.to == DEPLOYMENT.addresses["Game"]
    assert call.data[:4] == registry().function("reveal", "Game").selector
    assert decode(["uint256", "bytes32[]"], call.data[4:]) == (3, (b"\x01" * 32,))
    assert call.label == "Game.Reveal"
