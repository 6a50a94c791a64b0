"""Keystores: made, read back, and refused when anything is off."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.disk import Disk

from atoll.chain.keys import (
    account_of,
    backup_key,
    change_password,
    create_key,
    import_key,
    list_keys,
    load_key,
    read_password,
    sign_typed,
    verify_key,
)
from atoll.errors import KeystoreError
from atoll.protocol.certificates import signer_of
from atoll.protocol.typed_data import TypedField, TypedMessage
from atoll.protocol.types import Address

SECRET = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"
ADDRESS = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"


@pytest.mark.parametrize(("devnet", "cost"), [(False, 1 << 18), (True, 1 << 12)])
def test_a_guess_costs_what_the_standard_asks(tmp_path: Path, devnet: bool, cost: int) -> None:
    info = create_key(tmp_path, "correct horse battery", devnet=devnet)
    crypto = json.loads(info.path.read_text())["crypto"]
    assert crypto["kdf"] == "scrypt"
    chosen = {name: crypto["kdfparams"][name] for name in ("n", "p", "dklen")}
    assert chosen == {"n": cost, "p": 1, "dklen": 32}


def test_a_created_key_is_listed_verified_and_private(tmp_path: Path) -> None:
    info = create_key(tmp_path / "keys", "pw", devnet=True)
    assert list_keys(tmp_path / "keys") == [info]
    assert verify_key(info.path, "pw") == info
    assert stat.S_IMODE(info.path.stat().st_mode) == 0o600
    assert [p.name for p in (tmp_path / "keys").iterdir()] == [info.path.name]


def test_a_key_whose_address_was_told_is_there_after_a_power_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = Disk(monkeypatch)
    path = create_key(tmp_path, "pw", devnet=True).path
    assert disk.after_a_power_cut(path) == path.read_bytes()
    change_password(path, "pw", "other", devnet=True)
    assert disk.after_a_power_cut(path) == path.read_bytes()


def test_an_imported_key_keeps_its_address(tmp_path: Path) -> None:
    info = import_key(tmp_path, SECRET, "pw", devnet=True)
    assert info.address == ADDRESS
    assert load_key(info.path, "pw").key.hex() == SECRET.removeprefix("0x")


def test_a_keystore_can_be_imported(tmp_path: Path) -> None:
    info = import_key(tmp_path / "a", SECRET, "pw", devnet=True)
    again = import_key(tmp_path / "b", info.path.read_text(), "pw", devnet=True)
    assert again.address == info.address


def test_the_same_key_is_not_written_twice(tmp_path: Path) -> None:
    import_key(tmp_path, SECRET, "pw", devnet=True)
    with pytest.raises(KeystoreError, match="there already"):
        import_key(tmp_path, SECRET, "pw", devnet=True)


def test_another_password_is_refused(tmp_path: Path) -> None:
    info = create_key(tmp_path, "pw", devnet=True)
    with pytest.raises(KeystoreError, match="password does not open"):
        load_key(info.path, "other")


def test_a_short_password_is_refused_outside_devnets(tmp_path: Path) -> None:
    with pytest.raises(KeystoreError, match="fewer than 12 characters"):
        create_key(tmp_path, "short")
    with pytest.raises(KeystoreError, match="different characters"):
        create_key(tmp_path, "abcabcabcabcabc")
    assert list(tmp_path.iterdir()) == []


def test_a_backup_opens_and_replaces_nothing(tmp_path: Path) -> None:
    info = create_key(tmp_path / "keys", "pw", devnet=True)
    copy = backup_key(info.path, tmp_path / "safe" / "copy.json", "pw")
    assert (copy.address, verify_key(copy.path, "pw")) == (info.address, copy)
    assert stat.S_IMODE(copy.path.stat().st_mode) == 0o600
    with pytest.raises(KeystoreError, match="exists already"):
        backup_key(info.path, copy.path, "pw")
    with pytest.raises(KeystoreError, match="does not open"):
        backup_key(info.path, tmp_path / "other.json", "guess")
    assert not (tmp_path / "other.json").exists()


def test_a_backup_goes_to_a_disk_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    info = create_key(tmp_path / "keys", "pw", devnet=True)
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    copy = backup_key(info.path, tmp_path / "stick" / "copy.json", "pw")
    assert verify_key(copy.path, "pw") == copy
    with pytest.raises(KeystoreError, match="exists already"):
        backup_key(info.path, copy.path, "pw")
    assert [path.name for path in copy.path.parent.iterdir()] == ["copy.json"]


def test_a_changed_password_opens_the_same_key(tmp_path: Path) -> None:
    info = create_key(tmp_path, "pw", devnet=True)
    secret = load_key(info.path, "pw").key
    assert change_password(info.path, "pw", "other", devnet=True) == info
    assert load_key(info.path, "other").key == secret
    with pytest.raises(KeystoreError, match="does not open"):
        load_key(info.path, "pw")
    with pytest.raises(KeystoreError, match="fewer than 12"):
        change_password(info.path, "other", "short")
    assert load_key(info.path, "other").key == secret
    assert [path.name for path in tmp_path.iterdir()] == [info.path.name]


@pytest.mark.parametrize("secret", ["0x12", "not hex", "", "{}", '{"version": 3}', "{broken"])
def test_nonsense_is_not_a_key(tmp_path: Path, secret: str) -> None:
    with pytest.raises(KeystoreError):
        import_key(tmp_path, secret, "pw", devnet=True)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_keystore_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(KeystoreError, match=r"nobody\.json"):
        load_key(tmp_path / "nobody.json", "pw")


def test_a_keystore_with_a_foreign_address_is_refused(tmp_path: Path) -> None:
    info = create_key(tmp_path, "pw", devnet=True)
    keystore = json.loads(info.path.read_text())
    info.path.write_text(json.dumps(keystore | {"address": ADDRESS.removeprefix("0x")}))
    with pytest.raises(KeystoreError, match="another address"):
        load_key(info.path, "pw")


def test_a_foreign_file_among_the_keys_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("{}")
    with pytest.raises(KeystoreError, match=r"notes\.json"):
        list_keys(tmp_path)


def test_the_password_file_gives_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("long enough\nignored\n")
    assert read_password(path) == "long enough"
    path.write_text("\n")
    with pytest.raises(KeystoreError, match="empty"):
        read_password(path)
    with pytest.raises(KeystoreError, match="cannot read"):
        read_password(tmp_path / "absent")


def test_typed_data_is_signed_the_same_each_time() -> None:
    account = account_of("0x" + "11" * 32)
    me = Address(account.address)
    message = TypedMessage(1, me, "Note", (TypedField("string", "text", "a key"),))
    signature = sign_typed(account, message)
    assert signer_of(message.digest, signature) == me
    assert signature == sign_typed(account, message)  # RFC 6979: a lost disk loses no key
    assert signer_of(replace(message, chain_id=2).digest, signature) != me
