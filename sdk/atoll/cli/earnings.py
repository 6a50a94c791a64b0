"""`atoll earnings` and `atoll claim`: what an account got, will get, did not get and why; and the
calls that have it paid.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.accounts import Whose, about_account, moment
from atoll.cli.output import Json, emit
from atoll.errors import ConfigError, ProtocolError

if TYPE_CHECKING:
    from atoll.job.account import Known, Reader
    from atoll.job.collecting import Collect, Later
    from atoll.job.earnings import Line, Statement
    from atoll.job.forwarding import Forwarding
    from atoll.law.words import Address
    from atoll.service.wallet import Send

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
    """Say what an account got, will get, lost or did not earn in its jobs, and what gas it paid.

    Everything is counted from the contracts' events; exits with 5 where the lines do not add up to
    the jobs' books.
    """
    data, lines = asyncio.run(_told(whose, job, explain=explain))
    emit(data, "\n".join(lines), as_json=json)
    faults = [fault for told in data["jobs"] for fault in told["faults"]]
    if faults:
        raise ProtocolError(f"the books do not add up: {faults[0]}", next_step="report this")


@claim_app.command()
@about_account(signs=True)
def claim(
    job: OnlyJob = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="ADDRESS", help="Send it on to a wallet: the config's, if left out."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until there is something to claim.")
    ] = False,
    *,
    whose: Whose,
    json: Json = False,
) -> None:
    """Have everything paid that the account has earned in FINAL rounds: pay, credits, what games
    owe; and say what cannot be claimed yet, and from when. Bonds come home by `atoll stake`.

    It may be run at any time, also beside the account's service, which claims by itself as its
    `auto_claim` says. With a wallet to send on to, everything that jobs paid the account since the
    first such call goes there: also what the service claimed, and what a call that was cut short
    claimed and did not send.
    """
    from atoll.cli.deploying import known_address

    set_to = None if whose.settings is None else whose.settings.reward_address
    wanted = Wanted(job, known_address(to or set_to, "--to"), wait)
    data, lines = asyncio.run(_claimed(whose, wanted))
    emit(data, "\n".join(lines), as_json=json)


async def _told(
    whose: Whose, job: int | None, *, explain: bool
) -> tuple[dict[str, Any], list[str]]:
    from atoll.job.narrate import tokens

    me = whose.account
    async with whose.reading() as reader:
        known = await reader.look(me)
        gas = await _gas(whose, reader)
    statements = [told for told in known.statements(me) if job is None or told.job == job]
    data = {
        "account": me,
        "block": known.head.number,
        "time": known.head.timestamp,
        "jobs": [told.to_plain() for told in statements],
        "gas": gas,
    }
    lines = [f"account    {me}, at block {known.head.number}"]
    for told in statements:
        lines += _sums(told)
        lines += [_text(line) for line in told.lines] if explain else []
        lines += [f"  but: {fault}" for fault in told.faults]
    if not statements:
        lines.append("no job: the account never had a seat or a place" + _of(job))
    fees = (
        f"{tokens(int(gas['fees_wei']))} of the chain's coin in {gas['transactions']} transactions"
    )
    unknown = gas["unknown_transactions"]
    lines.append(
        f"gas        {fees}" + (f", {unknown} more were not sent from here" * bool(unknown))
    )
    return data, lines


def _of(job: int | None) -> str:
    return "" if job is None else f" of job {job}"


async def _gas(whose: Whose, reader: Reader) -> dict[str, Any]:
    """What the transactions cost that are known here, and how many others the account sent."""
    mined = [row for row in whose.transactions() if row["fee_wei"] is not None]
    sent = await reader.chain.nonce(whose.address)
    return {
        "fees_wei": str(sum(int(row["fee_wei"]) for row in mined)),
        "gas": sum(row["gas"] or 0 for row in mined),
        "transactions": len(mined),
        "unknown_transactions": max(0, sent - len(mined)),
    }


def _sums(told: Statement) -> list[str]:
    from atoll.job.earnings import State
    from atoll.job.narrate import tokens

    parts = [f"{tokens(told.total(state))} {state}" for state in State if told.total(state)]
    cut = [f"{tokens(told.cut)} cut from bonds"] if told.cut else []
    return [f"job {told.job:<6} " + (", ".join([*parts, *cut]) or "nothing yet")]


def _text(line: Line) -> str:
    from atoll.job.narrate import tokens
    from atoll.law.words import Role

    where = {Role.PROVIDER: "seat", Role.VERIFIER: "place", None: "seat"}[line.role]
    when = "" if line.until is None else f"; FINAL from {moment(line.until)}"
    state = f"{line.what}, {line.state}"
    return (
        f"  round {line.round}, {where} {line.index}: {tokens(line.wei)} {state}: {line.text}{when}"
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `claim` is told: which job's, where it goes, whether to wait for it."""

    job: int | None
    to: Address | None
    wait: bool


async def _claimed(whose: Whose, wanted: Wanted) -> tuple[dict[str, Any], list[str]]:
    from atoll.job.collecting import later, transactions
    from atoll.job.forwarding import forwarding
    from atoll.job.narrate import tokens

    me, job = whose.account, wanted.job
    if wanted.to is not None and me != whose.address:
        raise _nothing_to_send_on(me)
    sent: list[Forwarding] = []
    async with whose.reading() as reader, AsyncExitStack() as stack:
        known, due = await _found(reader, whose, wanted)
        before = await reader.chain.token_balance(me)
        if due or wanted.to is not None:
            send = await stack.enter_async_context(whose.sending())
            if wanted.to is not None:
                paid = known.paid_to(me)
                file = stack.enter_context(forwarding(whose.folder, me, wanted.to, paid))
            for key, call in transactions(due, reader.chain.calls):
                await send(key, call)
            if wanted.to is not None:
                sent = await _sent_on(reader, me, wanted.to, file, send)
            known = await reader.look(me)
        wallet = await reader.chain.token_balance(me)
        payee = (await reader.chain.ownership(me)).payee
    told = [each for each in known.statements(me) if job is None or each.job == job]
    waits = list(later(told))
    data = {
        "account": me,
        "claimed": [{"text": item.text, "wei": str(item.wei)} for item in due],
        "claimed_wei": str(sum(item.wei for item in due)),
        "sent": [{"to": one.to, "wei": str(one.sending)} for one in sent],
        "wallet_before_wei": str(before),
        "wallet_wei": str(wallet),
        "payee": payee,
        "later": [item.to_plain() for item in waits],
    }
    lines = _claim_lines(due, waits, sent)
    if payee != me and due:
        lines.append(f"all of it went to {payee}, which its owner named")
    return data, [*lines, f"{tokens(wallet)} tokens are left with the account"]


def _nothing_to_send_on(account: Address) -> ConfigError:
    return ConfigError(
        f"what {account} has is sent with its own key",
        next_step="leave --to out: pay goes where `atoll stake owner reward` says",
    )


async def _sent_on(
    reader: Reader, me: Address, to: Address, file: Path, send: Send
) -> list[Forwarding]:
    """What went on: what a call before began to send, then what the account was paid since."""
    from atoll.job.forwarding import Purse, send_on

    sent = []
    for _ in range(2):
        known = await reader.look(me)
        purse = Purse(known.paid_to(me), await reader.chain.token_balance(me))
        sent.append(await send_on(file, to, purse, reader.chain.calls, send))
    return [one for one in sent if one.sending]


async def _found(reader: Reader, whose: Whose, wanted: Wanted) -> tuple[Known, list[Collect]]:
    """What can be claimed; where that is waited for, as soon as it, or what is to be sent on, is
    something.
    """
    from atoll.job.forwarding import unsent

    me = whose.account
    while True:
        known = await reader.look(me)
        due = await _due(reader, known, me, wanted.job)
        if due or not wanted.wait or (wanted.to and unsent(whose.folder, me, known.paid_to(me))):
            return known, due
        await asyncio.sleep(LOOK_SECONDS)


def _claim_lines(due: list[Collect], waits: list[Later], sent: list[Forwarding]) -> list[str]:
    from atoll.job.narrate import tokens

    lines = [f"{tokens(item.wei)} tokens: {item.text}" for item in due]
    lines = lines or ["nothing can be claimed now"]
    for item in waits:
        when = "not before it is settled" if item.at is None else f"from {moment(item.at)}"
        lines.append(f"later, {when}: {tokens(item.wei)}, job {item.job}, {item.text}")
    return lines + [f"{tokens(one.sending)} tokens went on to the wallet {one.to}" for one in sent]


def _emptied(known: Known, account: Address) -> int:
    """How often what waited for it was sent: so many tell the next one's key."""
    from atoll.law.events import BondReturned, Collected

    sent = (e for e in known.events if isinstance(e, BondReturned | Collected))
    return sum(event.account == account for event in sent)


async def _due(reader: Reader, known: Known, account: Address, job: int | None) -> list[Collect]:
    """What can be claimed now; what games owe is of no job."""
    from atoll.job.collecting import Collect, collectable

    calls = reader.chain.calls
    views = {n: view for n, view in known.views.items() if job is None or n == job}
    due = list(collectable(views, account, known.head.timestamp, calls))
    if job is not None:
        return due
    payee = (await reader.chain.ownership(account)).payee
    for who in dict.fromkeys((account, payee)):  # an account's bonds, and its payee's gains
        (owed,) = await reader.chain.read("owed", who, contract="Game")
        if owed:
            key = f"games:{who}:{_emptied(known, who)}:{owed}"
            due.append(Collect(key, calls.collect_bond(who), int(owed), "what games owe"))
    kept = await reader.chain.kept(account)
    if kept:
        key = f"kept:{account}:{_emptied(known, account)}:{kept}"
        due.append(Collect(key, calls.collect(account), kept, "what its payee could not be sent"))
    return due
