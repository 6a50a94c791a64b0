"""The `atoll` command.

Exit codes: 0 done; 1 unforeseen; 2 wrong use, configuration, manifest or key; 3 the chain;
4 storage; 5 the protocol; 6 the folder is in use; 130 interrupted. Every error is one line on
standard error, and one more with what to do next; a command line that cannot be parsed is Typer's
to explain. Rule of this file: it starts fast; a group is imported when it is named, and what a
command needs when it runs.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import atoll
from atoll.errors import AtollError, of_disk

MOUNTED = {
    "keys": ("atoll.cli.key_commands:app", "Make, import, back up and verify keys."),
    "job": ("atoll.cli.job:app", "Submit, follow and collect training jobs."),
    "watch": ("atoll.cli.job_reading:watch_app", "Tell everything that happens in a job."),
    "report": ("atoll.cli.window:report_app", "A job as one page: one HTML file to keep."),
    "dashboard": ("atoll.cli.window:dashboard_app", "The network and its jobs, live in a browser."),
    "node": ("atoll.cli.members:node", "Set up and run a provider."),
    "rollout": (
        "atoll.cli.rollout_command:app",
        "Generate answers for a provider that you chose.",
    ),
    "verifier": ("atoll.cli.members:verifier", "Set up and run a verifier."),
    "store": ("atoll.cli.store:app", "Content by CID: add, get, keep, check."),
    "config": ("atoll.cli.config_command:app", "A service's settings, and where they are from."),
    "stake": ("atoll.cli.stake_commands:app", "Stake: show it, add to it, take it out."),
    "earnings": (
        "atoll.cli.earnings_command:app",
        "Show every wei that an account earned, and why not.",
    ),
    "claim": (
        "atoll.cli.earnings_command:claim_app",
        "Have everything paid that an account has earned.",
    ),
    "tx": ("atoll.cli.tx:app", "A service's transactions: list, bump, cancel."),
    "journal": ("atoll.cli.journal_commands:app", "Back a service's journal up, or move it."),
    "judge": ("atoll.cli.judge_commands:app", "Dispute wrong training, or defend your own."),
    "network": (
        "atoll.cli.deploying:app",
        "Deploy a network's contracts, show and verify them, and own it.",
    ),
    "release": (
        "atoll.cli.release:app",
        "Releases beside this one, for jobs of their training code.",
    ),
    "doctor": ("atoll.cli.doctor:app", "Check everything before money is at stake."),
    "numerics": ("atoll.cli.numerics:app", "Compare this machine's bits with everybody's."),
}
"""Each group's place, and what `atoll --help` says of it without loading it."""
INTERRUPTED = 130
"""The exit code after Ctrl-C."""
COMPLETES = "_ATOLL_COMPLETE"
"""Set where a shell asks what may follow: `eval "$(_ATOLL_COMPLETE=source_bash atoll)"`."""
PLUGINS = "atoll.commands"
"""Entry points of this group are commands, too: `atoll_devnet` imports atoll, never the reverse."""


class LazyGroup(TyperGroup):
    """Imports a group of commands when one of them is asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._places = {name: place for name, (place, _) in MOUNTED.items()}
        for name, (_, text) in MOUNTED.items():
            self.add_command(TyperGroup(name=name, help=text))

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all, those of other packages last."""
        self._add_plugins()
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that arguments name, loaded."""
        if args and args[0] not in self.commands:
            self._add_plugins()
        name, command, rest = super().resolve_command(ctx, args)
        if name in self._places:
            module, _, attribute = self._places[name].partition(":")
            command = typer.main.get_command(getattr(importlib.import_module(module), attribute))
            command.name = name
            _finish(command)
        return name, command, rest

    def _add_plugins(self) -> None:
        for plugin in entry_points(group=PLUGINS):
            if plugin.name not in self.commands:
                command = typer.main.get_command(plugin.load())
                command.name = plugin.name
                _finish(command)
                self.add_command(command)


def _finish(command: Any) -> None:
    """What no module of commands does for itself."""
    from atoll.cli.network_choice import take_chosen

    _join_lines(command)
    take_chosen(command)


def _join_lines(command: Any) -> None:
    """Makes a line of each paragraph of a command's help, and of its commands': the terminal wraps
    it, and would keep the source's lines but in the first.
    """
    if command.help:
        paragraphs = command.help.split("\n\n")
        command.help = "\n\n".join(" ".join(text.split()) for text in paragraphs)
    for inner in getattr(command, "commands", {}).values():
        _join_lines(inner)


app = typer.Typer(
    name="atoll",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Train one model together with strangers, and pay for work that was really done.",
    epilog="Exit codes: 1 unforeseen, 2 usage or configuration, 3 chain, 4 storage, "
    "5 protocol, 6 folder in use, 130 interrupted.\n\n"
    'Completion: eval "$(_ATOLL_COMPLETE=source_bash atoll)" in ~/.bashrc; source_zsh in ~/.zshrc; '
    "for fish, _ATOLL_COMPLETE=source_fish atoll | source.",
)


def main() -> None:
    """Entry point of the `atoll` program."""
    if COMPLETES in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    _open_closed_streams()
    try:
        app()
    except AtollError as error:
        _fail(error)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # Typer's, of a KeyboardInterrupt
            sys.stderr.write("interrupted\n")
        raise
    except BrokenPipeError:
        # Whoever read our output has enough of it (`atoll … | head`).
        sys.stderr.close()
        raise SystemExit(0) from None
    except OSError as error:
        _fail(of_disk(error))


def _open_closed_streams() -> None:
    """Has what was started without standard input, output or error (`>&-`) use nowhere instead: a
    database would get the number of one, and what a library writes there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (for good)
            setattr(sys, name, nowhere)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    log_level: Annotated[
        str, typer.Option("--log-level", help="debug, info, warning or error.")
    ] = "warning",
) -> None:
    if version:
        sys.stdout.write(f"atoll {atoll.__version__}\n")
        raise typer.Exit
    from atoll.cli.output import configure_logs

    if log_level not in {"debug", "info", "warning", "error"}:
        raise typer.BadParameter(f"no log level {log_level!r}", param_hint="--log-level")
    configure_logs(log_level)


def _fail(error: AtollError) -> None:
    from atoll.cli.output import say

    say(f"error: {' '.join(str(error).split())}")
    if error.next_step:
        say(f"next: {error.next_step}")
    raise SystemExit(error.exit_code)


if __name__ == "__main__":
    main()
