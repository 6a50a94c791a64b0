"""The end of a run, for a person: who did what and got what, the cheats, the model's own words."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from atoll.job.narrate import tokens


def summary(report: Mapping[str, Any], sample: str, folder: Path, *, width: int = 100) -> str:
    """The text; colours are left to whoever prints it."""
    out = StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False)
    console.print(_members(report))
    console.print(_rounds(report))
    for cheat in report["cheats"]:
        console.print(_cheat(cheat))
    escrow = {name: tokens(int(value)) for name, value in report["escrow"].items()}
    console.print(
        f"escrow: {escrow['funded_wei']} funded = {escrow['paid_wei']} paid"
        f" + {escrow['refunded_wei']} refunded + {escrow['balance_wei']} left"
    )
    console.print(_loss(report))
    if sample:
        console.print(f"\nthe model writes:\n{sample}\n")
    console.print(f"job {report['job']['status']}")
    console.print(f"result   {report['result_dir'] or 'none'}")
    console.print(f"report   {folder / 'report.json'}")
    return out.getvalue()


def _members(report: Mapping[str, Any]) -> Table:
    table = Table("who", "cheat", "rounds", "paid", "slashed", title="Who did what, and got what")
    for item in report["providers"]:
        table.add_row(
            f"provider {item['seat']}",
            item["cheat"] or "",
            f"{item['accepted_rounds']} accepted",
            tokens(int(item["paid_wei"])),
            tokens(int(item["slashed_wei"])),
        )
    for item in report["watchers"]:
        won = f"{item['won']} games won"
        table.add_row(f"watcher {item['index']}", "", won, "", "")
    for item in report["verifiers"]:
        table.add_row(
            f"verifier {item['index']}",
            item["cheat"] or "",
            f"{item['attested_rounds']} attested",
            tokens(int(item["paid_wei"])),
            tokens(int(item["slashed_wei"])),
        )
    return table


def _rounds(report: Mapping[str, Any]) -> Table:
    table = Table("round", "status", "accepted", "rejected", "loss", "seconds", title="Rounds")
    for item in report["rounds"]:
        rejected = ", ".join(f"{r['seat']}: {r['fault']}" for r in item["rejected"])
        loss = "" if item["eval_loss"] is None else f"{item['eval_loss']:.4f}"
        table.add_row(
            str(item["round"]),
            item["status"],
            " ".join(map(str, item["accepted"])),
            rejected,
            loss,
            str(sum(item["seconds"].values())),
        )
    return table


def _cheat(cheat: Mapping[str, Any]) -> str:
    if not cheat["caught"]:
        return f"{cheat['who']}, {cheat['cheat']}: not caught"
    slashed = tokens(int(cheat["slashed_wei"]))
    found = f"caught in round {cheat['round']} by {cheat['by']}"
    return f"{cheat['who']}, {cheat['cheat']}: {found}; slashed {slashed}"


def _loss(report: Mapping[str, Any]) -> str:
    start, end = report["eval"]["loss_start"], report["eval"]["loss_end"]
    if start is None or end is None:
        return "loss on held-out text: not measured"
    return (
        f"loss on held-out text: {start:.4f} before, {end:.4f} after ({1 - end / start:.0%} less)"
    )
