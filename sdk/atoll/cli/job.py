"""`atoll job`: describe, size, submit, follow and collect training jobs."""

from __future__ import annotations

import asyncio
import inspect
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from atoll.cli import job_models, job_money, job_reading
from atoll.cli.continued import changes_of, is_continued, job_text, write_following
from atoll.cli.jobfile import (
    File,
    InitFolder,
    Job,
    PricedGpu,
    Settings,
    Text,
    chosen_job,
    with_gpu,
)
from atoll.cli.network_commands import (
    DEFAULT_HOME,
    Home,
    Network,
    Options,
    on_network,
    taking,
)
from atoll.cli.output import Json, emit, say
from atoll.cli.progress import MEASURING, Preparing
from atoll.cli.serving import (
    Payment,
    Serving,
    line_of,
    serve_until_over,
    stopping,
    submit_file,
    words_of,
)

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Submit, follow and collect training jobs."
)

MaxSpend = Annotated[str, typer.Option(metavar="N", help="Tokens that are never exceeded.")]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="Do not ask before paying; needed without a terminal, and with --json, also for what "
        "is paid already.",
    ),
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach",
        help="Serve nothing: bring the data to two verifiers and end. It takes no public URL.",
    ),
]
Archive = Annotated[
    float | None,
    typer.Option(
        metavar="GB",
        min=0.001,
        max=1e9,
        help="Keep every round's model and updates, up to so much, and serve them until the claim "
        "deadline, so that anybody can audit the job after its end.",
    ),
]
Again = Annotated[
    bool, typer.Option("--again", help="Another job, though this file was submitted.")
]
JSON: Final[Options] = {"json": (Json, False)}
PAYMENT: Final[Options] = {
    "max_spend": (MaxSpend, inspect.Parameter.empty),
    "yes": (Yes, False),
    "detach": (Detach, False),
}
PAYMENT_OF_A_FILE: Final[Options] = {**PAYMENT, "again": (Again, False), "archive": (Archive, None)}


def _payment(
    *,
    max_spend: str,
    yes: bool,
    detach: bool,
    json: bool,
    again: bool = False,
    archive: float | None = None,
) -> Payment:
    """By the options. Raises ConfigError as `Serving.of` and `Payment.of`."""
    serving = Serving.of(detach, archive)
    return Payment.of(max_spend, serving, sure=yes, again=again, as_json=json)


@app.command()
def new(
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="demo, nano, gpt2-small, llama-1b, finetune, lora or rl-lora; default nano, or "
            "finetune with --init.",
        ),
    ] = None,
    init: InitFolder = None,
    data: Text = None,
    settings: Settings = None,
    gpu: PricedGpu = None,
) -> None:
    """Print a job file with every choice in it, for `atoll job check` and `submit`.

    Its paths are absolute, so the file can lie in any folder.
    """
    name = preset or ("nano" if init is None else "finetune")
    spec = with_gpu(chosen_job(None, name, data, settings, init), gpu)
    # A file's relative paths are taken from its folder. Nobody here knows the one that the output
    # goes to, and the command line means this folder.
    sys.stdout.write(job_text(spec.beside(Path.cwd()), f"from the preset {name}"))


@app.command("continue")
@taking("payment", {**PAYMENT, **JSON}, _payment)
@on_network(serves=True)
def continue_job(
    job: Job,
    rounds: Annotated[int, typer.Option(min=1, help="Of the new job.")],
    folder: Annotated[
        Path | None,
        typer.Option(help="Where model and job file go; default continued-JOB."),
    ] = None,
    settings: Settings = None,
    *,
    payment: Payment,
    network: Network,
) -> None:
    """Submit a job like an earlier one of this home, from the newest model of that one.

    Model and job file are written to a folder first, and the file is submitted as by `submit`. Run
    again, it submits the file that is there, as it is: the same job, with the model of then.
    """
    place = folder or Path(f"continued-{job}")
    file = place / "job.toml"
    if is_continued(file, job, changes_of(rounds, settings)):
        say(f"{file} is there, and submitted as it is; another --folder has the newest model")
    else:
        asyncio.run(write_following(network, job, rounds, place, settings))
        say(f"{file} has the job")
    submit_file(network, file, payment)


@app.command()
def check(
    file: File,
    settings: Settings = None,
    gpu: PricedGpu = None,
    home: Home = DEFAULT_HOME,
    explain: Annotated[
        bool, typer.Option("--explain", help="What each role needs, and every figure's reason.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what a job is, costs and takes, and what is wrong with it. Spends nothing."""
    from atoll.chain.txconfig import QueueConfig
    from atoll.job.quote import quote
    from atoll.job.quote_report import report
    from atoll.job.quote_summary import (
        million_wei,
        rented_million_wei,
        summary,
        training_share,
        verification_share,
    )
    from atoll.job.sizing import size_job

    spec = with_gpu(chosen_job(file, "", None, settings), gpu)
    say(MEASURING)
    with Preparing() as progress:
        draft = asyncio.run(size_job(spec, home.expanduser(), progress))
    assert draft.pace is not None  # `size_job` measures
    look = quote(draft, draft.pace, QueueConfig().fee_cap)
    figures = [asdict(figure) for figure in draft.figures]
    more = {
        "computed": figures,
        "data": draft.read.to_json_value() if draft.read else None,
        "million_wei": str(million_wei(draft.manifest.terms, look)),
        "rented_million_wei": str(rented_million_wei(draft.manifest.terms, look)),
        "training_share": float(training_share(look)),
        "verification_share": float(verification_share(look)),
    }
    text = summary(draft, look) + (f"\n\n{report(draft, look)}" if explain else "")
    emit(look.to_json_value() | more, text, as_json=json)


@app.command()
@taking("payment", {**PAYMENT_OF_A_FILE, **JSON}, _payment)
@on_network(serves=True)
def submit(
    file: File,
    settings: Settings = None,
    *,
    payment: Payment,
    network: Network,
) -> None:
    """Pay for a job and open it, then serve its data. The same file again is the same job."""
    submit_file(network, file, payment, settings)


@app.command()
@on_network(serves=True)
def serve(
    job: Job,
    detach: Detach = False,
    archive: Archive = None,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Serve a job's data again, after a stop or from another machine with this home; or bring it to
    verifiers again.
    """
    serving = Serving.of(detach, archive)
    network = serving.on(network)

    async def announce() -> int:
        async with network.open(must_sign=not detach) as client:
            await client.attach(job).status()
            if not detach:
                await client.serve()
            return client.port

    with stopping([job]):
        port = asyncio.run(announce())
        tell = line_of if json else words_of
        serve_until_over(network, job, port, serving, tell)


for part in (job_reading, job_models, job_money):
    app.registered_commands += part.app.registered_commands
