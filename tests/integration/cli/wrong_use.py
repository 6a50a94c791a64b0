"""Commands that a hasty operator types, each run in a process of its own: prints those that failed
otherwise than with a sentence.

    python -m tests.integration.cli.wrong_use COUNT "SEED [WORD ...]" ...   so many, of each
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import atoll
from atoll.cli import main as program
from atoll_devnet.cli import app as devnet

IMPORTED_ONCE = ("eth_account", "typer.rich_utils", "safetensors.torch")
"""Beside our own modules: what takes longest in a command, and the forks share."""
FOR_A_GPU = {
    f"atoll.numerics.kernels.{name}"
    for name in (
        "fused",
        "fused_attention",
        "device_functions",
        "attention_programs",
        "attention_tile_programs",
        "column_programs",
        "elementwise_programs",
        "optimiser_programs",
        "row_programs",
    )
}
"""These want Triton, which comes with a torch that is built for a GPU."""
SECONDS = 600
UNFORESEEN = 1
STARTS_A_NETWORK = ("devnet run", "devnet demo", "devnet up")
NUMBERS = ("-1", "0", "99999999999999999999999999", "1e400", "nan", "0x12")
WORDS = ("", " ", "zzz", "/nonexistent/file", "0x" + "77" * 20, "http://127.0.0.1:1")
FILES = {
    "torn.toml": b"rpc_urls = [\n",
    "binary.toml": b"\xff\xfe\x00\x01" * 50,
    "types.toml": b'rpc_urls = 5\nfoo = "x"\n[service]\nhealth = "no"\n',
    "wrong.json": b'{"chain_id": "x"}',
    "list.json": b"[1, 2]",
}


def main() -> None:
    count, *groups = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, content in FILES.items():
            Path(name).write_bytes(content)
        os.environ |= {"ATOLL_HOME": f"{folder}/home", "HOME": folder, "NO_COLOR": "1"}
        import_all()
        every = cases()
        for group in groups:
            seed, *words = group.split()
            some = [case for case in every if set(words) <= set(case)]
            for case in random.Random(seed).sample(some, min(int(count), len(some))):
                code, said = outcome(case)
                if code == UNFORESEEN or code < 0 or "Traceback" in said:
                    told = {"group": group, "case": case, "code": code, "said": said[-2_000:]}
                    sys.stdout.write(json.dumps(told) + "\n")


def import_all() -> None:
    """Everything that a command may import where it runs."""
    ours = (each.name for each in pkgutil.walk_packages(atoll.__path__, "atoll."))
    for name in (*IMPORTED_ONCE, *ours):
        if name not in FOR_A_GPU:
            importlib.import_module(name)
    gc.freeze()


def cases() -> list[list[str]]:
    """Every command with each wrong value as its arguments, and as each of its options."""
    wrong, found = (*NUMBERS, *WORDS, ".", "/dev/null", *FILES), list[list[str]]()
    for path, command in commands():
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [
            p.opts[0]
            for p in command.params
            if p.param_type_name == "option" and not getattr(p, "is_flag", False)
        ]
        found += [[*path, "--", *[value] * max(1, len(arguments))] for value in wrong]
        some = ["1"] * len(arguments)
        found += [[*path, *some, option, value] for option in options for value in wrong]
    return found


def commands() -> Iterator[tuple[list[str], Any]]:
    """The leaves of the command tree, but those that only start a network."""
    for name, (place, _) in program.MOUNTED.items():
        module, _, attribute = place.partition(":")
        app = getattr(importlib.import_module(module), attribute)
        yield from leaves(typer.main.get_command(app), [name])
    for path, command in leaves(typer.main.get_command(devnet), ["devnet"]):
        if " ".join(path) not in STARTS_A_NETWORK:
            yield path, command


def leaves(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    below = getattr(command, "commands", {})
    for name, each in below.items():
        yield from leaves(each, [*path, name])
    if not below:
        yield path, command


def outcome(case: list[str]) -> tuple[int, str]:
    """The exit code, and all that was printed; ended after some time."""
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            signal.alarm(SECONDS)
            sys.argv = ["atoll", *case]
            run()
        _, status = os.waitpid(pid, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read().decode("utf-8", "replace")


def run() -> None:
    """Ends this process as the program would."""
    code: Any = 0
    try:
        program.main()
    except SystemExit as end:
        code = end.code
    except BaseException:  # as Python itself would end
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = UNFORESEEN
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main()
