"""`atoll doctor`: what has to be right before money is at stake, each line with what to do."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atoll.cli.network_commands import DeploymentFile, Keystore, PasswordFile
from atoll.cli.output import Json, emit

if TYPE_CHECKING:
    from atoll.service.doctor.findings import Finding
    from atoll.service.doctor.subject import Subject

FAILED = 2
"""The exit code where something would not work."""
app = typer.Typer(add_completion=False, help="Check everything before money is at stake.")


@app.command()
def doctor(
    config: Annotated[
        Path | None, typer.Option("--config", help="A node's or verifier's config file.")
    ] = None,
    numerics: Annotated[
        bool, typer.Option(help="Load torch, and try its arithmetic and the kernels.")
    ] = True,
    rpc: Annotated[
        str | None,
        typer.Option("--rpc", envvar="ATOLL_RPC", help="The chain's endpoints, with commas."),
    ] = None,
    deployment: DeploymentFile = None,
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Check machine, key, files, chain, contracts, money and gateway; exits with 2 on a failure.

    With --config it is that service's; without, what the other options name. Nothing is changed,
    sent or signed for anybody, and a service that runs goes on running.
    """
    from atoll.service.doctor.subject import Subject

    if config is not None:
        from atoll.cli.services import load

        subject = Subject.of(load(config.expanduser()))
    else:
        urls = tuple(rpc.split(",")) if rpc else ()
        subject = Subject(urls, deployment, keystore, password_file)
    findings = asyncio.run(_examined(subject, numerics=numerics, tells=not json))
    failed = sum(finding.level == "failure" for finding in findings)
    warned = sum(finding.level == "warning" for finding in findings)
    data = {"ok": not failed, "findings": [asdict(finding) for finding in findings]}
    text = f"{len(findings)} findings: {failed} failures, {warned} warnings"
    emit(data, text, as_json=json)
    if failed:
        raise typer.Exit(FAILED)


async def _examined(subject: Subject, *, numerics: bool, tells: bool) -> list[Finding]:
    """Every finding, told as soon as it is there."""
    from atoll.service.doctor.examine import examine

    findings = []
    async for finding in examine(subject, numerics=numerics):
        findings.append(finding)
        if tells:
            emit(None, _line(finding), as_json=False)
    return findings


def _line(finding: Finding) -> str:
    line = f"{finding.level:<8} {finding.name:<11} {finding.text}"
    return f"{line}\n{'next:':>20} {finding.next_step}" if finding.next_step else line
