"""Keys on disk: Web3 Secret Storage version 3 (what every Ethereum client reads).

Rules of this file: a private key is never printed, logged or written unencrypted; and eth-account
is imported here alone, when a key is used. It takes as long as the rest of a command that reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eth_typing import Hash32
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from atoll.errors import KeystoreError
from atoll.files import durable_rename, write_beside, write_once
from atoll.nested import loads
from atoll.protocol.typed_data import TypedMessage
from atoll.protocol.types import Address

if TYPE_CHECKING:
    from eth_account import Account
    from eth_account.signers.local import LocalAccount

SCRYPT_N = 1 << 18
"""What the standard's clients use; about a second and 256 MiB a guess."""
DEVNET_SCRYPT_N = 1 << 12
"""For throwaway keys only."""
MIN_PASSWORD_CHARS = 12
MIN_DIFFERENT_CHARS = 5


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """One keystore file, without its secret."""

    address: Address
    path: Path


def _library() -> type[Account]:
    """The library's class of accounts."""
    from eth_account import Account  # noqa: PLC0415 (the rule of this file)

    return Account


def account_of(secret: str | bytes) -> LocalAccount:
    """The account of a private key, which nothing here writes anywhere."""
    return _library().from_key(secret)  # type: ignore[no-any-return]


def read_password(path: Path) -> str:
    """The first line of a password file.

    Raises:
        KeystoreError: absent, unreadable or empty.
    """
    try:
        password = path.read_text(encoding="utf-8").splitlines()[:1]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise KeystoreError(
            f"cannot read the password file {path}: {why}",
            next_step="name the file with the keystore's password: --password-file, or the config",
        ) from error
    if not password or not password[0]:
        raise KeystoreError(
            f"the password file {path} is empty", next_step="write the password on its first line"
        )
    return password[0]


def create_key(folder: Path, password: str, *, devnet: bool = False) -> KeyInfo:
    """Makes a new key and writes its keystore into `folder`.

    Args:
        devnet: cheap key derivation and any password; for throwaway keys.
    Raises:
        KeystoreError: a weak password, or a folder that cannot be written.
    """
    return _write(folder, _library().create(), password, devnet=devnet)


def import_key(folder: Path, secret: str, password: str, *, devnet: bool = False) -> KeyInfo:
    """Writes a keystore for an existing key.

    Args:
        secret: 32 bytes as hex, or the JSON text of a keystore under the same password.
    Raises:
        KeystoreError: not a key, the wrong password, or the key is there already.
    """
    if is_keystore(secret):
        account = _decrypt(secret, password, "the imported keystore")
    else:
        try:
            account = account_of(secret.strip())
        except Exception as error:  # eth_account raises half a dozen unrelated kinds
            raise KeystoreError("the private key is not 32 bytes as hexadecimal text") from error
    return _write(folder, account, password, devnet=devnet)


def is_keystore(secret: str) -> bool:
    """Whether a secret is a keystore's text, which has a password, and no bare key."""
    return secret.lstrip().startswith("{")


def list_keys(folder: Path) -> list[KeyInfo]:
    """Every keystore in `folder`, by address.

    Raises:
        KeystoreError: a file there that is not a keystore.
    """
    found = [KeyInfo(address_of(path), path) for path in folder.glob("*.json")]
    return sorted(found, key=lambda info: info.address.lower())


def load_key(path: Path, password: str) -> LocalAccount:
    """Decrypts a keystore.

    Raises:
        KeystoreError: absent, malformed, or another password.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KeystoreError(
            f"cannot read the keystore {path}: {error}", next_step="atoll keys list"
        ) from error
    account = _decrypt(text, password, str(path))
    if str(account.address) != address_of(path):
        raise KeystoreError(f"the keystore {path} names another address than its key has")
    return account


def verify_key(path: Path, password: str) -> KeyInfo:
    """Proves that the password opens the keystore and that the key signs for its address.

    Raises:
        KeystoreError: as `load_key`.
    """
    account = load_key(path, password)
    digest = Hash32(keccak(text="atoll.key-check"))
    signed = account.unsafe_sign_hash(digest)  # a fixed text that no contract accepts
    recovered = _library()._recover_hash(digest, signature=signed.signature)
    if str(recovered) != str(account.address):
        raise KeystoreError(f"the key in {path} does not sign for {account.address}")
    return KeyInfo(Address(account.address), path)


def backup_key(path: Path, to: Path, password: str) -> KeyInfo:
    """Copies a keystore to a new file, its owner's alone, and proves that the copy opens.

    Raises:
        KeystoreError: as `verify_key`; or the file exists, or cannot be written.
    """
    verify_key(path, password)
    try:
        to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_once(to, path.read_bytes())
    except FileExistsError as error:
        raise KeystoreError(f"{to} exists already", next_step="name another file") from error
    except OSError as error:
        raise KeystoreError(f"cannot write {to}: {error}") from error
    return verify_key(to, password)


def change_password(path: Path, old: str, new: str, *, devnet: bool = False) -> KeyInfo:
    """Encrypts a keystore's key with another password; the file has either, at any moment.

    Raises:
        KeystoreError: as `load_key`; or the new password is weak, or the file cannot be written.
    """
    data = _encrypted(load_key(path, old), new, devnet=devnet)
    try:
        durable_rename(write_beside(path, data), path)
    except OSError as error:
        raise KeystoreError(f"cannot write the keystore {path}: {error}") from error
    return verify_key(path, new)


def _write(folder: Path, account: LocalAccount, password: str, *, devnet: bool) -> KeyInfo:
    text = _encrypted(account, password, devnet=devnet)
    path = folder / f"{account.address.lower()}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_once(path, text)
    except FileExistsError as error:
        raise KeystoreError(f"a keystore for {account.address} is there already: {path}") from error
    except OSError as error:
        raise KeystoreError(f"cannot write the keystore {path}: {error}") from error
    return KeyInfo(Address(account.address), path)


def _encrypted(account: LocalAccount, password: str, *, devnet: bool) -> bytes:
    if not devnet:
        _refuse_weak(password)
    iterations = DEVNET_SCRYPT_N if devnet else SCRYPT_N
    keystore = _library().encrypt(account.key, password, kdf="scrypt", iterations=iterations)
    return json.dumps(keystore).encode()


def _refuse_weak(password: str) -> None:
    if len(password) < MIN_PASSWORD_CHARS:
        raise KeystoreError(
            f"the password has fewer than {MIN_PASSWORD_CHARS} characters",
            next_step="take a longer one, such as four words",
        )
    if len(set(password)) < MIN_DIFFERENT_CHARS:
        raise KeystoreError(
            f"the password has fewer than {MIN_DIFFERENT_CHARS} different characters",
            next_step="take another one, such as four words",
        )


def _decrypt(text: str, password: str, what: str) -> LocalAccount:
    keystore = _parse(text, what)
    try:
        return account_of(_library().decrypt(keystore, password))
    except ValueError as error:
        raise KeystoreError(
            f"the password does not open {what}", next_step="check the password file"
        ) from error
    except (KeyError, TypeError, NotImplementedError) as error:
        raise KeystoreError(f"{what} is not a version 3 keystore") from error


def _parse(text: str, what: str) -> dict[str, Any]:
    try:
        keystore = loads(text)
    except ValueError as error:
        raise KeystoreError(f"{what} is not a keystore: not JSON") from error
    if not isinstance(keystore, dict) or keystore.get("version") != 3:
        raise KeystoreError(f"{what} is not a version 3 keystore")
    return keystore


def address_of(path: Path) -> Address:
    """Whose keystore it says that it is. Raises KeystoreError where it is none."""
    try:
        keystore = _parse(path.read_text(encoding="utf-8"), str(path))
        return Address(to_checksum_address("0x" + str(keystore["address"]).removeprefix("0x")))
    except (OSError, KeyError, ValueError) as error:
        raise KeystoreError(f"{path} is not a keystore: {error}") from error


def sign_typed(account: LocalAccount, message: TypedMessage) -> bytes:
    """65 bytes r ‖ s ‖ v, as `eth_signTypedData_v4` gives them: RFC 6979, the lower s, v 27 or 28.

    The account's own key signs nothing else but transactions: a stranger's 32 bytes could be the
    hash of one.
    """
    return bytes(account.sign_typed_data(full_message=message.shown).signature)
