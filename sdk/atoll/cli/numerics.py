"""`atoll numerics`: compare this machine's bits with everybody's."""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from atoll.cli.network_commands import Options, taking
from atoll.cli.output import Json, emit
from atoll.errors import AtollError, ConfigError, NumericsMismatch
from atoll.nested import loads
from atoll.numerics.kernels.variables import DEVICES

if TYPE_CHECKING:
    from atoll.lab.differential import LabResult, LabRun, Setting

app = typer.Typer(
    add_completion=False, help="Compare this machine's bits with everybody's.", no_args_is_help=True
)


def _number(least: int, most: int, text: str) -> Any:
    return Annotated[int | None, typer.Option(min=least, max=most, help=text)]


def _word(text: str) -> Any:
    return Annotated[str | None, typer.Option(help=text)]


RUN: Final[Options] = {
    "width": (_number(32, 8192, "model width"), None),
    "layers": (_number(1, 256, "decoder layers"), None),
    "seq": (_number(2, 4096, "sequence length"), None),
    "steps": (_number(1, 10_000, "training steps"), None),
    "seed": (_number(0, 2**63 - 1, "of weights and data"), None),
    "optimizer": (_word("adamw or muon"), None),
}
SETTING: Final[Options] = {
    "route": (_word("auto, int8, bf16, fp32 or fp64"), None),
    "threads": (_number(1, 1024, "CPU threads"), None),
    "kernels": (_word("auto, compiled, fused or eager"), None),
    "device": (_word("cpu or cuda"), None),
    "slices": (_number(1, 4096, "of attention, at a time"), None),
    "inner": (_number(1, 8192, "columns of an fp32 product"), None),
    "ranks": (_number(1, 64, "processes that compute together"), None),
}


def _given(**values: Any) -> dict[str, Any]:
    """Those that were asked for."""
    return {name: value for name, value in values.items() if value is not None}


@app.callback()
def _group() -> None:
    """Keeps `verify` a command of its own."""


@app.command()
@taking("trained", RUN, _given)
@taking("computed", SETTING, _given)
def verify(*, trained: dict[str, Any], computed: dict[str, Any], as_json: Json = False) -> None:
    """Trains a small model exactly and prints its digest; without options, under every setting."""
    _need_torch()
    from atoll.lab.differential import LabRun, Setting, run

    _check_known("optimizer", trained, ("adamw", "muon"))
    _check_known("device", computed, DEVICES)
    if not trained and not computed:
        _verify_matrix(as_json)
        return
    what = LabRun(**trained)
    result = run(what, Setting(**computed))
    emit(asdict(result), _line(result), as_json=as_json)
    _check(what.key, [result.digest])


def _need_torch() -> None:
    if find_spec("torch") is None:
        raise ConfigError(
            "comparing bits needs torch, which is not installed",
            next_step="pip install 'atoll[train]'",
        )


def _line(result: LabResult) -> str:
    return (
        f"{result.digest}  {result.route}, {result.kernels} kernels, {result.threads} threads, "
        f"{result.isa}, {result.device}, {result.tokens_per_second:.0f} tokens/s"
    )


def _check_known(name: str, given: dict[str, Any], choices: tuple[str, ...]) -> None:
    """Raises ConfigError for a word that is none of these."""
    if name in given and given[name] not in choices:
        raise ConfigError(f"unknown {name} {given[name]!r}; known: {', '.join(choices)}")


def _verify_matrix(as_json: bool) -> None:
    from atoll.lab.differential import (
        LabResult,
        expected_digest,
        run_apart,
        standard_matrix,
    )  # fmt: skip

    results: list[dict[str, object]] = []
    digests: dict[str, list[str]] = {}
    for what, setting in standard_matrix():
        outcome = run_apart(what, setting)
        digests_of_run = digests.setdefault(what.key, [])
        result: dict[str, object] = {"run": what.key, "setting": asdict(setting)}
        if isinstance(outcome, LabResult):
            digests_of_run.append(outcome.digest)
            result |= asdict(outcome)
        else:
            result["unavailable"] = outcome
        results.append(result)
        if not as_json:
            sys.stdout.write(_matrix_line(what, setting, outcome) + "\n")
            sys.stdout.flush()
    if as_json:
        expected = {what.key: expected_digest(what) for what, _ in standard_matrix()}
        agree = all(
            set(digests_of_run) <= {expected[key]} for key, digests_of_run in digests.items()
        )
        document = {"expected": expected, "agree": agree, "results": results}
        emit(document, "", as_json=True)
    for key, digests_of_run in digests.items():
        _check(key, digests_of_run)


def _matrix_line(what: LabRun, setting: Setting, outcome: LabResult | str) -> str:
    usual = asdict(type(setting)())
    changed = {name: value for name, value in asdict(setting).items() if value != usual[name]}
    changed |= changed.pop("caps", {})
    asked = " ".join(f"{name}={value}" for name, value in changed.items()) or "as chosen"
    if isinstance(outcome, str):
        return f"{'not here':16}  {what.optimizer:5} {asked} ({outcome})"
    chosen = f"{outcome.route}, {outcome.kernels}"
    return f"{outcome.digest[:16]}  {what.optimizer:5} {asked} ({chosen})"


def _check(key: str, digests: list[str]) -> None:
    """Raises NumericsMismatch unless the digests are one, and the repository's where it has one."""
    from atoll.lab.differential import EXPECTED

    known: dict[str, str] = loads(EXPECTED.read_text())
    wanted = set(digests) | ({known[key]} if key in known else set())
    if len(wanted) > 1:
        raise NumericsMismatch(
            f"{len(set(digests))} digests here, {known.get(key, 'none')[:16]} expected",
            next_step="this machine cannot take part; report `atoll numerics verify --json`",
        )


if __name__ == "__main__":
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        app()
    except AtollError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from None
