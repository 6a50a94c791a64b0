"""The `atoll` command.

Exit codes: 0 done; 1 unforeseen; 2 wrong use, configuration, manifest or key; 3 the chain;
4 storage; 5 the protocol; 130 interrupted. Every error is one line on standard error, and one more
with what to do next. Rule of this file: it starts fast; torch is loaded by the commands that
need it.
"""

from __future__ import annotations

import errno
import importlib
import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer

from atoll.cli import keys
from atoll.errors import AtollError, StorageError

app = typer.Typer(
    name="atoll",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Train one model together with strangers, and pay for work that was really done.",
    epilog="Exit codes: 2 usage or configuration, 3 chain, 4 storage, 5 protocol, 130 interrupted.",
)
app.add_typer(keys.app, name="keys")

MOUNTED = {
    "job": "atoll.cli.job:app",
    "node": "atoll.cli.members:node",
    "verifier": "atoll.cli.members:verifier",
    "store": "atoll.cli.store:app",
    "judge": "atoll.cli.judge:app",
    "numerics": "atoll.cli.numerics:app",
}
"""Loaded when the program starts, so that `import atoll.cli` stays cheap."""
PLUGINS = "atoll.commands"
"""Entry points of this group are commands, too: `atoll_devnet` imports atoll, never the reverse."""


def main() -> None:
    """Entry point of the `atoll` program."""
    for name, place in MOUNTED.items():
        module, _, attribute = place.partition(":")
        app.add_typer(getattr(importlib.import_module(module), attribute), name=name)
    for plugin in entry_points(group=PLUGINS):
        app.add_typer(plugin.load(), name=plugin.name)
    try:
        app()
    except AtollError as error:
        _fail(error)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None
    except BrokenPipeError:
        # Whoever read our output has enough of it (`atoll … | head`).
        sys.stderr.close()
        raise SystemExit(0) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        step = "free some room and run the same command again"
        _fail(StorageError(f"the disk is full: {error.filename or error}", next_step=step))


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    log_level: Annotated[
        str, typer.Option("--log-level", help="debug, info, warning or error.")
    ] = "warning",
) -> None:
    if version:
        from importlib.metadata import version as version_of

        sys.stdout.write(f"atoll {version_of('atoll')}\n")
        raise typer.Exit
    from atoll.cli.output import configure_logs

    if log_level not in {"debug", "info", "warning", "error"}:
        raise typer.BadParameter(f"no log level {log_level!r}", param_hint="--log-level")
    configure_logs(log_level)


def _fail(error: AtollError) -> None:
    message = " ".join(str(error).split())
    sys.stderr.write(f"error: {message}\n")
    if error.next_step:
        sys.stderr.write(f"next: {error.next_step}\n")
    raise SystemExit(error.exit_code)


if __name__ == "__main__":
    main()
