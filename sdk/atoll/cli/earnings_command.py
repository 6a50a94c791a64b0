"""`atoll earnings` and `atoll claim`: what an account got, will get, did not get and why; and the
calls that have it paid.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.accounts import Whose, about_account
from atoll.cli.output import Json, emit, say
from atoll.errors import ProtocolError
from atoll.job.readable import moment

if TYPE_CHECKING:
    from atoll.job.account import KnownOfAccount, Reader
    from atoll.job.collecting import Collect, Later
    from atoll.job.holdings import HeldByContracts, Holdings
    from atoll.job.ledger.entries import Line
    from atoll.job.ledger.statements import Statement
    from atoll.job.stake import Stake
    from atoll.protocol.types import Address

app = typer.Typer(add_completion=False, help="Show every wei that an account earned, and why not.")
claim_app = typer.Typer(
    add_completion=False, help="Have everything paid that an account has earned."
)
LOOK_SECONDS = 2.0
"""Between two looks at a chain while something is waited for."""
OnlyJob = Annotated[int | None, typer.Option("--job", metavar="N", help="Only this job.", min=1)]
Explain = Annotated[
    bool, typer.Option("--explain", help="Every line, with the reason, and not only the sums.")
]


@app.command()
@about_account()
def earnings(
    job: OnlyJob = None,
    explain: Explain = False,
    *,
    whose: Whose,
    json: Json = False,
) -> None:
    """Say what an account got, will get, lost or did not earn in its jobs, what it won of slashed
    bonds, where all of it lies, and what gas it paid.

    Everything is counted from the contracts' events; exits with 5 where the lines do not add up to
    the jobs' ledgers, or to what the contracts hold: stake, what games owe, what could not be sent.
    """
    data, lines = asyncio.run(_earnings_of(whose, job, explain=explain))
    emit(data, "\n".join(lines), as_json=json)
    faults = [fault for part in (*data["jobs"], data["beside"]) for fault in part["faults"]]
    if faults:
        raise ProtocolError(f"the ledger does not add up: {faults[0]}", next_step="report this")


@claim_app.command()
@about_account(signs=True)
def claim(
    job: OnlyJob = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until there is something to claim.")
    ] = False,
    *,
    whose: Whose,
    json: Json = False,
) -> None:
    """Have everything paid that the account has earned in FINAL rounds: pay, credits, what games
    owe; and say what cannot be claimed yet, and from when. Bonds come home by `atoll stake`.

    It goes where `atoll stake owner show` says. The command may be run at any time, also beside the
    account's service, which claims by itself as its `auto_claim` says; `--wait` ends, too, where
    that one has claimed everything.
    """
    data, lines = asyncio.run(_claimed(whose, job, is_patient=wait))
    emit(data, "\n".join(lines), as_json=json)


async def _earnings_of(
    whose: Whose, job: int | None, *, explain: bool
) -> tuple[dict[str, Any], list[str]]:
    from atoll.job.event_text import coin

    me = whose.account
    async with whose.reading() as reader:
        known = await reader.look(me)
        gas = await _gas(whose, reader)
        beside, lies = await _beside(reader, known, me)
    statements = [
        statement for statement in known.statements(me) if job is None or statement.job == job
    ]
    data = {
        "account": me,
        "block": known.head.number,
        "time": known.head.timestamp,
        "jobs": [statement.to_json_value() for statement in statements],
        "gas": gas,
        **beside,
    }
    lines = [f"account    {me}, at block {known.head.number}"]
    for statement in statements:
        lines += [*_sums(statement), *_retained(statement)]
        lines += [_text(line) for line in statement.lines] if explain else []
        lines += [f"  but: {fault}" for fault in statement.faults]
    if not statements:
        lines.append("no job: the account never had a seat or a slot" + _of(job))
    lines += lies
    fees = f"{coin(int(gas['fees_wei']))} of the chain's coin in {gas['transactions']} transactions"
    unknown = gas["unknown_transactions"]
    by = "" if whose.address == me else f" of {whose.address}"
    lines.append(
        f"gas        {fees}{by}" + (f", {unknown} more were not sent from here" * bool(unknown))
    )
    return data, lines


async def _beside(
    reader: Reader, known: KnownOfAccount, me: Address
) -> tuple[dict[str, Any], list[str]]:
    """What the account has beside pay, and where it lies: as JSON has it, and as lines."""
    from atoll.job.holdings import HeldByContracts, holdings

    chain, block = reader.chain, hex(known.head.number)
    stakes = await reader.stakes(me, known)
    ownership = await chain.ownership(me)
    has = holdings(known.events, me)
    held = HeldByContracts(
        sum(stake.active + stake.unbonding for stake in stakes),
        await chain.owed_by_games(me, block),
        await chain.kept(me, block),
    )
    lies = {
        "stakes": [stake.to_json_value() for stake in stakes],
        "owed_by_games_wei": str(held.owed),
        "kept_wei": str(held.kept),
        "owner": ownership.owner,
        "payee": ownership.payee,
        "wallets_wei": {
            who: str(await chain.token_balance(who))
            for who in dict.fromkeys((me, ownership.owner, ownership.payee))
        },
    }
    faults = list(has.faults(held))
    data = {"beside": has.to_json_value() | {"faults": faults}, "lies": lies}
    lines = [*_shares(has), *_games(has), *_slots(stakes, held, lies)]
    return data, [*lines, *(f"  but: {fault}" for fault in faults)]


def _shares(has: Holdings) -> list[str]:
    from atoll.job.event_text import tokens

    lines = []
    for share in has.shares:
        where = "" if share.job is None else f" in job {share.job}"
        lines.append(
            f"won        {tokens(share.wei)} of the bond of {share.loser}, slashed{where}: "
            "it is in the account's stake"
        )
    if has.funded or has.refunded:
        lines.append(f"jobs       {tokens(has.funded)} put in, {tokens(has.refunded)} came back")
    return lines


def _games(has: Holdings) -> list[str]:
    """What became of the bonds of games, the account's own and its challengers'."""
    from atoll.job.event_text import tokens

    lines = [
        f"won        {tokens(game.gained)} in game {game.id}, half of the bond of "
        f"{game.challenger}: games owe it, or have sent it to the payee"
        for game in has.games
        if game.holder == has.account and game.gained
    ]
    lines += [
        f"lost       {tokens(game.lost)} in game {game.id} against {game.holder}"
        for game in has.challenges
        if game.lost
    ]
    if has.challenges:
        home, stake = (
            tokens(sum(getattr(game, name) for game in has.challenges))
            for name in ("home", "at_stake")
        )
        lines.append(
            f"bonds      {tokens(has.bonds)} put up in games: {home} back, {stake} at stake"
        )
    return lines


def _slots(stakes: list[Stake], held: HeldByContracts, lies: dict[str, Any]) -> list[str]:
    from atoll.job.event_text import tokens
    from atoll.protocol.types import Role

    lines = [
        f"stake      {tokens(stake.active - stake.locked)} free, {tokens(stake.locked)} locked, "
        f"{tokens(stake.unbonding)} unbonding, as {Role(stake.role).name.lower()}"
        for stake in stakes
        if stake.active or stake.unbonding
    ]
    if held.owed:
        lines.append(f"waiting    {tokens(held.owed)} owed by games: `atoll claim`")
    if held.kept:
        lines.append(f"waiting    {tokens(held.kept)} kept, as its payee could not be sent it")
    for who, wei in lies["wallets_wei"].items():
        is_payee = " (pay goes there)" * (who == lies["payee"])
        lines.append(f"wallet     {tokens(int(wei))} has {who}{is_payee}")
    return lines


def _of(job: int | None) -> str:
    return "" if job is None else f" of job {job}"


async def _gas(whose: Whose, reader: Reader) -> dict[str, Any]:
    """What the key's transactions cost that are known here, and how many others it sent."""
    mined = [row for row in whose.transactions() if row["fee_wei"] is not None]
    sent = await reader.chain.nonce(whose.address)
    return {
        "account": whose.address,
        "fees_wei": str(sum(int(row["fee_wei"]) for row in mined)),
        "gas": sum(row["gas"] or 0 for row in mined),
        "transactions": len(mined),
        "unknown_transactions": max(0, sent - len(mined)),
    }


def _sums(statement: Statement) -> list[str]:
    from atoll.job.event_text import tokens
    from atoll.job.ledger.entries import State

    parts = [
        f"{tokens(statement.total(state))} {state}" for state in State if statement.total(state)
    ]
    penalty = [f"{tokens(statement.penalty)} taken from bonds"] if statement.penalty else []
    return [f"job {statement.job:<6} " + (", ".join([*parts, *penalty]) or "nothing yet")]


def _retained(statement: Statement) -> list[str]:
    from atoll.job.event_text import tokens

    return [
        f"  of that {tokens(each.wei)} are in its bond: {each.text}"
        + ("" if each.free_at is None else f"; free from {moment(each.free_at)}")
        for each in statement.retained
    ]


def _text(line: Line) -> str:
    from atoll.job.event_text import tokens
    from atoll.protocol.types import Role

    where = {Role.PROVIDER: "seat", Role.VERIFIER: "slot", None: "seat"}[line.role]
    when = "" if line.until is None else f"; FINAL from {moment(line.until)}"
    state = f"{line.what}, {line.state}"
    return (
        f"  round {line.round}, {where} {line.index}: {tokens(line.wei)} {state}: {line.text}{when}"
    )


async def _claimed(
    whose: Whose, job: int | None, *, is_patient: bool
) -> tuple[dict[str, Any], list[str]]:
    from atoll.job.collecting import later, transactions
    from atoll.job.event_text import tokens

    me = whose.account
    async with whose.reading() as reader:
        known, due = await _claimable(reader, me, job, is_patient=is_patient)
        if due:
            async with whose.sending() as send:
                for key, call in transactions(due, reader.chain.calls):
                    await send(key, call)
            known = await reader.look(me)
        payee = (await reader.chain.ownership(me)).payee
        wallet = await reader.chain.token_balance(payee)
    waits = list(later(_of_job(known, me, job)))
    data = {
        "account": me,
        "claimed": [{"text": item.text, "wei": str(item.wei)} for item in due],
        "claimed_wei": str(sum(item.wei for item in due)),
        "payee": payee,
        "wallet_wei": str(wallet),
        "later": [item.to_json_value() for item in waits],
    }
    whom = "the account" if payee == me else f"{payee}, which is paid for it,"
    return data, [*_claim_lines(due, waits), f"{whom} has {tokens(wallet)} tokens"]


def _of_job(known: KnownOfAccount, account: Address, job: int | None) -> list[Statement]:
    return [
        statement for statement in known.statements(account) if job is None or statement.job == job
    ]


async def _claimable(
    reader: Reader, me: Address, job: int | None, *, is_patient: bool
) -> tuple[KnownOfAccount, list[Collect]]:
    """What can be claimed; the patient wait for it, unless all was, and nothing is to come."""
    from atoll.job.collecting import later
    from atoll.job.ledger.entries import State

    news = ""
    while True:
        known = await reader.look(me)
        due = await _due(reader, known, me, job)
        statements = _of_job(known, me, job)
        is_all_paid = any(statement.total(State.PAID) for statement in statements) and not any(
            later(statements)
        )
        if due or is_all_paid or not is_patient:
            return known, due
        news = _say_news(_wait_text(list(later(statements))), news)
        await asyncio.sleep(LOOK_SECONDS)


def _wait_text(waits: list[Later]) -> str:
    """What a patient claim waits for."""
    if not waits:
        return "waits: the account has earned nothing so far; Ctrl-C ends that"
    return f"waits: {_later_text(waits[0])}"


def _say_news(text: str, before: str) -> str:
    """Says what was not said last. Returns what is said now."""
    if text != before:
        say(text)
    return text


def _claim_lines(due: list[Collect], waits: list[Later]) -> list[str]:
    from atoll.job.event_text import tokens

    lines = [f"{tokens(item.wei)} tokens: {item.text}" for item in due]
    lines = lines or ["nothing can be claimed now"]
    return lines + [f"later, {_later_text(item)}" for item in waits]


def _later_text(item: Later) -> str:
    from atoll.job.event_text import tokens

    when = "not before it is settled" if item.at is None else f"from {moment(item.at)}"
    return f"{when}: {tokens(item.wei)}, job {item.job}, {item.text}"


def _emptied(known: KnownOfAccount, account: Address) -> int:
    """How often what waited for it was sent: so many tell the next one's key."""
    from atoll.protocol.events import BondReturned, Collected

    sent = (e for e in known.events if isinstance(e, BondReturned | Collected))
    return sum(event.account == account for event in sent)


async def _due(
    reader: Reader, known: KnownOfAccount, account: Address, job: int | None
) -> list[Collect]:
    """What can be claimed now; what games owe is of no job."""
    from atoll.job.collecting import Collect, collectable

    calls = reader.chain.calls
    views = {n: view for n, view in known.views.items() if job is None or n == job}
    due = list(collectable(views, account, known.head.timestamp, calls))
    if job is not None:
        return due
    owed = await reader.chain.owed_by_games(account)
    if owed:
        key = f"games:{account}:{_emptied(known, account)}:{owed}"
        due.append(Collect(key, calls.game_withdraw(account), owed, "what games owe"))
    kept = await reader.chain.kept(account)
    if kept:
        key = f"kept:{account}:{_emptied(known, account)}:{kept}"
        due.append(Collect(key, calls.collect(account), kept, "what its payee could not be sent"))
    return due
