"""`atoll keys`: encrypted keystores that every Ethereum client reads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from atoll.cli.output import Json, emit, table
from atoll.errors import KeystoreError

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Make, import, back up and verify keys."
)

DEFAULT_FOLDER = Path("~/.atoll/keys")
Folder = Annotated[
    Path, typer.Option("--folder", envvar="ATOLL_KEYS", help="Where keystores are kept.")
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        envvar="ATOLL_PASSWORD_FILE",
        help="A file whose first line is the password; without it you are asked.",
    ),
]


def password_from(password_file: Path | None, *, new: bool = False) -> str:
    """The password: from the file, else from a prompt at a terminal.

    Raises:
        KeystoreError: no file is named and nobody can be asked, or the file cannot be used.
    """
    from atoll.chain.keys import read_password

    if password_file is not None:
        return read_password(password_file.expanduser())
    if not sys.stdin.isatty():
        raise KeystoreError(
            "the keystore needs a password, and there is no terminal to ask at",
            next_step="pass --password-file FILE",
        )
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=new, err=True))


@app.command("new")
def new_key(
    folder: Folder = DEFAULT_FOLDER, password_file: PasswordFile = None, json: Json = False
) -> None:
    """Make a key and write its encrypted keystore."""
    from atoll.chain.keys import create_key

    info = create_key(folder.expanduser(), password_from(password_file, new=True))
    data = {"address": info.address, "keystore": str(info.path)}
    emit(data, f"{info.address}  {info.path}", as_json=json)


@app.command("import")
def import_(
    source: Annotated[
        Path, typer.Argument(help="A file with a private key as hex, or a keystore; - for stdin.")
    ],
    folder: Folder = DEFAULT_FOLDER,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Bring in an existing key. A keystore is opened with the same password."""
    from atoll.chain.keys import import_key, is_keystore

    try:
        secret = sys.stdin.read() if str(source) == "-" else source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KeystoreError(f"cannot read the key {source}: {error}") from error
    password = password_from(password_file, new=not is_keystore(secret))
    info = import_key(folder.expanduser(), secret, password)
    data = {"address": info.address, "keystore": str(info.path)}
    emit(data, f"{info.address}  {info.path}", as_json=json)


@app.command("list")
def list_(folder: Folder = DEFAULT_FOLDER, json: Json = False) -> None:
    """List the keystores in a folder."""
    from atoll.chain.keys import list_keys

    rows: list[dict[str, object]] = [
        {"address": info.address, "keystore": str(info.path)}
        for info in list_keys(folder.expanduser())
    ]
    emit(rows, table(rows), as_json=json)


@app.command("backup")
def backup(
    keystore: Annotated[Path, typer.Argument(help="The keystore file.")],
    to: Annotated[Path, typer.Argument(help="Where the copy goes; nothing is replaced.")],
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Copy a keystore, under the same password, and prove that the copy opens."""
    from atoll.chain.keys import backup_key

    info = backup_key(keystore.expanduser(), to.expanduser(), password_from(password_file))
    data = {"address": info.address, "keystore": str(info.path)}
    emit(data, f"{info.address}  {info.path}", as_json=json)


@app.command("change-password")
def change_password_(
    keystore: Annotated[Path, typer.Argument(help="The keystore file.")],
    new_password_file: Annotated[
        Path | None, typer.Option(help="With the new password; without it you are asked.")
    ] = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Encrypt a keystore's key with another password. Backups keep the old one."""
    from atoll.chain.keys import change_password

    old, new = password_from(password_file), password_from(new_password_file, new=True)
    info = change_password(keystore.expanduser(), old, new)
    emit({"address": info.address, "ok": True}, f"{info.address}  ok", as_json=json)


@app.command("verify")
def verify(
    keystore: Annotated[Path, typer.Argument(help="The keystore file.")],
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Prove that the password opens a keystore and that its key signs for its address."""
    from atoll.chain.keys import verify_key

    info = verify_key(keystore.expanduser(), password_from(password_file))
    emit({"address": info.address, "ok": True}, f"{info.address}  ok", as_json=json)
