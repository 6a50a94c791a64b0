"""The end of a run, for a person: who did what and got what, the cheats, the model's own words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from atoll.job.event_text import tokens

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
    for title, lines in (
        ("Accused, and judged by the contract", _accusations(report)),
        ("Taken from bonds", _losses(report["losses"])),
        ("Cheats", map(_cheat, report["cheats"])),
    ):
        told = list(lines)
        if told:
            console.print(f"\n{title}", *told, sep="\n  ")
    console.print()
    if report["outsiders"] is not None:
        console.print(_outsiders(report["outsiders"]), end="\n\n")
    console.print(_members(report))
    for line in _money(report["escrow"]):
        console.print(line)
    for line in _unsafe(report["unsafe"]):
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
    names = ("round", "revealed", "merged", "excluded", "audited", "differs", "paid", "loss", "s")
    table = Table(*names, title="Rounds, by seat")
    for item in report["rounds"]:
        loss = "" if item["eval_loss"] is None else f"{item['eval_loss']:.4f}"
        table.add_row(
            str(item["round"]) if item["status"] == "settled" else f"{item['round']} (void)",
            _seats(item["revealed"]),
            _seats(item["merged_seats"]) or "nothing",
            _seats(item["excluded"]),
            _seats(item["audited"]),
            _seats(sorted({found["seat"] for found in item["differs"]})),
            _seats(item["paid"]),
            loss,
            str(sum(item["seconds"].values())),
        )
    return table


def _seats(seats: Iterable[int]) -> str:
    return " ".join(map(str, seats))


def _accusations(report: Mapping[str, Any]) -> Iterable[str]:
    for item in report["rounds"]:
        for found in item["differs"]:
            where = f"{_place(found)} of seat {found['seat']} differs"
            yield f"round {item['round']}: {found['auditor']} says that {where}"
    for game in report["games"]:
        whose = f"{_place(game)} of seat {game['seat']} in round {game['round']}"
        if game["via"] != game["round"]:
            whose += f" via round {game['via']}"
        end = "not played" if game["winner"] is None else f"{game['winner']} wins"
        after = f", after {_count(game['moves'], 'move')}" if game["moves"] else ""
        yield f"game {game['game']}: {game['challenger']} disputes {whose}: {end}{after}"


def _place(about: Mapping[str, Any]) -> str:
    """What of a seat's round is disputed."""
    return "the update" if about["is_link"] else f"segment {about['segment']}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _outsiders(terms: Mapping[str, Any]) -> str:
    return (
        f"Nobody has to trust these verifiers: anyone with {_tokens(terms['bond_wei'])} tokens can"
        f" replay a seat and dispute it, for {terms['seconds']} seconds of each round, and wins"
        f" {_tokens(terms['wins_wei'])} of the bond if it is right"
    )


def _losses(losses: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for loss in losses:
        if loss["wei"] != "0":  # of a bond that is gone
            cost = f"{loss['who']} loses {_tokens(loss['wei'])}"
            yield f"round {loss['round']}: {cost} for {loss['for']}"


def _cheat(cheat: Mapping[str, Any]) -> str:
    if not cheat["caught"]:
        return f"{cheat['who']}, {cheat['cheat']}: not caught"
    found = f"caught in round {cheat['round']} by {cheat['by']}"
    return f"{cheat['who']}, {cheat['cheat']}: {found}; slashed {_tokens(cheat['slashed_wei'])}"


def _members(report: Mapping[str, Any]) -> Table:
    table = Table("who", "cheat", "did", "paid", "won", "lost", title="Who did what, and got what")
    for item in report["providers"]:
        did = f"{_count(item['paid_rounds'], 'round')} paid"
        table.add_row(f"provider {item['seat']}", item["cheat"] or "", did, *_amounts(item))
    for item in report["verifiers"]:
        did = f"{_count(item['signed_rounds'], 'merge')} signed"
        did += f", {_count(item['seats_audited'], 'seat')} audited"
        did += f", {_count(item['games_won'], 'game')} won" if item["games_won"] else ""
        table.add_row(f"verifier {item['index']}", item["cheat"] or "", did, *_amounts(item))
    for item in report["watchers"]:
        did = f"{_count(item['won'], 'game')} won"
        table.add_row(f"watcher {item['index']}", "", did, "", _tokens(item["won_wei"]), "")
    return table


def _amounts(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Pay, what was won of others' bonds, and what was lost of its own."""
    paid, won, lost = (_tokens(item[f"{what}_wei"]) for what in ("paid", "won", "slashed"))
    return paid, won, lost


def _money(escrow: Mapping[str, Any]) -> Iterable[str]:
    """Where the escrow went; sentences about what does not add up, if anything."""
    yield (
        f"escrow: {_tokens(escrow['funded_wei'])} funded = {_tokens(escrow['paid_wei'])} paid"
        f" + {_tokens(escrow['burnt_wei'])} burnt + {_tokens(escrow['refunded_wei'])} refunded"
        f" + {_tokens(escrow['balance_wei'])} left"
    )
    parts = (f"{_tokens(wei)} {reason}" for reason, wei in escrow["paid_for_wei"].items())
    yield f"paid for: {', '.join(parts)}"
    for fault in escrow["faults"]:
        yield f"THE BOOKS DO NOT ADD UP: {fault}"


def _unsafe(found: Mapping[str, Any]) -> Iterable[str]:
    if found["rounds"]:
        which = ", ".join(map(str, found["rounds"]))
        safe = found["last_safe_round"]
        back = "the job's first one" if safe is None else f"that after round {safe}"
        yield f"UNSAFE: in rounds {which} more seats fell than the merge bears; use {back}"


def _tokens(wei: str) -> str:
    return tokens(int(wei))


def _held_out(report: Mapping[str, Any]) -> str:
    start, end = report["eval"]["loss_start"], report["eval"]["loss_end"]
    if start is None or end is None:
        return "loss on held-out text: not measured"
    gain = 1 - end / start
    moved = f"{abs(gain):.1%} {'less' if gain >= 0 else 'more'}"
    return f"loss on held-out text: {start:.4f} before, {end:.4f} after ({moved})"
