"""`atoll numerics`: compare this machine's bits with everybody's."""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from atoll.cli.output import Json, emit
from atoll.errors import AtollError, ConfigError, NumericsMismatch
from atoll.nested import loads
from atoll.numerics.kernels.variables import DEVICES

if TYPE_CHECKING:
    from atoll.lab.differential import LabResult, LabRun, Setting

app = typer.Typer(
    add_completion=False, help="Compare this machine's bits with everybody's.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Keeps `verify` a command of its own."""


@app.command()
def verify(
    *,
    width: Annotated[int | None, typer.Option(min=32, max=8192, help="model width")] = None,
    layers: Annotated[int | None, typer.Option(min=1, max=256, help="decoder layers")] = None,
    seq: Annotated[int | None, typer.Option(min=2, max=4096, help="sequence length")] = None,
    steps: Annotated[int | None, typer.Option(min=1, max=10_000, help="training steps")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="of weights and data")
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="adamw or muon")] = None,
    route: Annotated[str | None, typer.Option(help="auto, int8, fp32 or fp64")] = None,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="CPU threads")] = None,
    kernels: Annotated[str | None, typer.Option(help="auto, compiled, fused or eager")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda")] = None,
    slices: Annotated[
        int | None, typer.Option(min=1, max=4096, help="of attention, at a time")
    ] = None,
    inner: Annotated[
        int | None, typer.Option(min=1, max=8192, help="columns of an fp32 product")
    ] = None,
    as_json: Json = False,
) -> None:
    """Trains a small model exactly and prints its digest; without options, under every setting."""
    _need_torch()
    from atoll.lab.differential import LabRun, Setting, run

    chosen_run = {
        "width": width, "layers": layers, "seq": seq, "steps": steps, "seed": seed,
        "optimizer": _known("optimizer", optimizer, ("adamw", "muon")),
    }  # fmt: skip
    chosen_setting = {
        "route": route, "threads": threads, "kernels": kernels,
        "device": _known("device", device, DEVICES), "slices": slices, "inner": inner,
    }  # fmt: skip
    given_run = {name: value for name, value in chosen_run.items() if value is not None}
    given_setting = {name: value for name, value in chosen_setting.items() if value is not None}
    if not given_run and not given_setting:
        _verify_matrix(as_json)
        return
    what = LabRun(**given_run)  # type: ignore[arg-type]
    result = run(what, Setting(**given_setting))  # type: ignore[arg-type]
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


def _known(name: str, value: str | None, choices: tuple[str, ...]) -> str | None:
    if value is not None and value not in choices:
        raise ConfigError(f"unknown {name} {value!r}; known: {', '.join(choices)}")
    return value


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
