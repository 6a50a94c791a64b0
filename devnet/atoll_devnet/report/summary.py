"""The end of a run, for a person: who did what and got what, the cheats, the model's own words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from atoll.job.event_text import tokens
from atoll.job.ledger.text import count_text, money_lines, sections, unsafe_lines

HOW = (
    "Each round every seat trains from the same certified model and reveals what it did. A"
    " committee says whose updates are there, merges them and signs the new model, and the next"
    " round begins. Behind it seats are drawn, and trained again by the verifiers that are drawn"
    " for them. Whose result differs is accused, the contract judges the first step that differs,"
    " and whoever is wrong loses its bond. What stands is paid."
)


def summary(report: Mapping[str, Any], sample: str, folder: Path, *, width: int = 100) -> str:
    """The text; colours are left to whoever prints it."""
    out = StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False)
    console.print(HOW)
    console.print(_rounds(report))
    for title, lines in (*sections(report), ("Cheats", list(map(_cheat, report["cheats"])))):
        if lines:
            console.print(f"\n{title}", *lines, sep="\n  ")
    console.print()
    if report["outsiders"] is not None:
        console.print(_outsiders(report["outsiders"]), end="\n\n")
    console.print(_members(report))
    for line in (*money_lines(report["money"]), *unsafe_lines(report["unsafe"])):
        console.print(line)
    for line in report["signs"]["lines"]:
        console.print(f"SIGN: {line}")
    console.print(_held_out(report))
    if sample:
        console.print(f"\nthe model writes:\n{sample}\n")
    console.print(f"job {report['job']['status']}")
    console.print(f"result   {report['result_dir'] or 'none'}")
    console.print(f"report   {folder / 'report.json'}")
    console.print(f"page     {folder / 'report.html'}")
    return out.getvalue()


def _rounds(report: Mapping[str, Any]) -> Table:
    names = ("round", "revealed", "merged", "excluded", "audited", "mismatch", "paid", "loss", "s")
    table = Table(*names, title="Rounds, by seat")
    for item in report["rounds"]:
        loss = "" if item["eval_loss"] is None else f"{item['eval_loss']:.4f}"
        table.add_row(
            str(item["round"]) if item["status"] == "settled" else f"{item['round']} (void)",
            _seats(item["revealed"]),
            _seats(item["merged_seats"]) or "nothing",
            _seats(item["excluded"]),
            _seats(sorted({*item["valid"], *item["mismatch"]})),
            _seats(item["mismatch"]),
            _seats(item["paid"]),
            loss,
            str(sum(item["seconds"].values())),
        )
    return table


def _seats(seats: Iterable[int]) -> str:
    return " ".join(map(str, seats))


def _outsiders(terms: Mapping[str, Any]) -> str:
    return (
        f"Nobody has to trust these verifiers: anyone with {_tokens(terms['bond_wei'])} tokens can"
        f" replay a seat and dispute it, for {terms['seconds']} seconds of each round, and wins"
        f" {_tokens(terms['wins_wei'])} of the bond if it is right"
    )


def _cheat(cheat: Mapping[str, Any]) -> str:
    if not cheat["caught"]:
        return f"{cheat['who']}, {cheat['cheat']}: not caught"
    outcome = f"caught in round {cheat['round']} by {cheat['by']}"
    return f"{cheat['who']}, {cheat['cheat']}: {outcome}; slashed {_tokens(cheat['slashed_wei'])}"


def _members(report: Mapping[str, Any]) -> Table:
    table = Table("who", "cheat", "did", "paid", "won", "lost", title="Who did what, and got what")
    for item in report["providers"]:
        did = f"{count_text(item['paid_rounds'], 'round')} paid"
        table.add_row(f"provider {item['seat']}", item["cheat"] or "", did, *_amounts(item))
    for item in report["verifiers"]:
        did = f"{count_text(item['rounds'], 'merge')} signed"
        did += f", {count_text(item['audits'], 'seat')} audited"
        did += f", {count_text(item['games_won'], 'game')} won" if item["games_won"] else ""
        table.add_row(f"verifier {item['index']}", item["cheat"] or "", did, *_amounts(item))
    for item in report["watchers"]:
        did = f"{count_text(item['games_won'], 'game')} won"
        table.add_row(f"watcher {item['index']}", "", did, "", _tokens(item["won_wei"]), "")
    return table


def _amounts(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Pay, what was won of others' bonds, and what was lost of its own."""
    paid, won, lost = (_tokens(item[f"{what}_wei"]) for what in ("paid", "won", "slashed"))
    return paid, won, lost


def _tokens(wei: str) -> str:
    return tokens(int(wei))


def _held_out(report: Mapping[str, Any]) -> str:
    start, end = report["eval"]["loss_start"], report["eval"]["loss_end"]
    if start is None or end is None:
        return "loss on held-out text: not measured"
    gain = 1 - end / start
    moved = f"{abs(gain):.1%} {'less' if gain >= 0 else 'more'}"
    return f"loss on held-out text: {start:.4f} before, {end:.4f} after ({moved})"
