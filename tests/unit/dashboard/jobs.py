"""Scripted jobs as pages see them, and what to make a document from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.identities import digest
from tests.support.manifests import make_terms
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script

from atoll.chain.indexed import Indexed
from atoll.job.figures import RoundFigures
from atoll.job.ledger.json_document import job_document, name_of
from atoll.job.ledger.ledger import Ledger
from atoll.job.ledger.overview import NOTHING_BESIDE, Beside
from atoll.protocol import events as ev
from atoll.protocol.game_records import bond_set
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.types import ZERO_DIGEST, Address, Digest, HolderId, Role

LIAR = 3
HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=2>",
    "javascript:window.hacked=3",
    '"><svg onload=window.hacked=4>',
    "\u2028\u2029&lt;b&gt;" + "w" * 400,
)
"""What a stranger might announce as its gateway."""


def items_of(script: Script) -> list[Indexed]:
    """The log with a number for each event in its block."""
    found: list[Indexed] = []
    for event, block in script.net.log:
        same = bool(found) and found[-1].block == block
        index = found[-1].log_index + 1 if same else 0
        found.append(Indexed(event, block, index, digest(f"transaction {len(found)}")))
    return found


def ledger_of(script: Script, *more: ev.ContractEvent) -> Ledger:
    """The script's ledger, had these happened, too."""
    late = (Indexed(event, script.net.block, 1000 + i) for i, event in enumerate(more))
    return Ledger.of(script.net.view, [*items_of(script), *late], script.net.now)


def document_of(
    script: Script,
    names: Mapping[Address, str] | None = None,
    figures: Sequence[RoundFigures] | None = None,
    beside: Beside = NOTHING_BESIDE,
) -> dict[str, Any]:
    return job_document(ledger_of(script), figures, name_of(names or {}), beside)


def names_of(script: Script) -> Mapping[Address, str]:
    """As a devnet calls its members."""
    providers = {account: f"provider {i}" for i, account in enumerate(PROVIDERS)}
    return providers | {account: f"verifier {i}" for i, account in enumerate(VERIFIERS)}


def play(
    script: Script, game: int, winner: Address, *, ends: bool = True, through_round: int = 0
) -> None:
    """A game about the liar's round 0, by another's window; where it ends the liar is slashed."""
    net = script.net
    liar = net.at(Role.PROVIDER, LIAR, 0)
    claim = Claim(
        holder=liar.account,
        set=bond_set(net.job, Role.PROVIDER, HolderId(liar.id)),
        position=Digest(bytes(28) + through_round.to_bytes(4, "big")),
        program=ZERO_DIGEST,
        is_update_proof=False,
        seat=LIAR,
        round=0,
        segment=2,
        data_seed=net.seed,
        initial_state=net.seed,
    )
    net.emit(ev.Challenged(game, liar.account, winner, 10**19, claim, b""))
    net.emit(ev.Began(game, liar.account))
    net.emit(ev.StepsOpened(game, (), b""))
    net.emit(ev.StepPicked(game, 3))
    if not ends:
        return
    net.emit(ev.Ended(game, Outcome.HOLDER_LOST))
    bond = net.terms.provider_bond
    share = (winner, 3 * bond // 10, bond - 3 * bond // 10)
    net.emit(ev.Slashed(liar.account, Role.PROVIDER, digest("fault"), bond, *share))
    net.slash(Role.PROVIDER, liar.id, winner, 0)


def finished(through_round: int = 0) -> Script:
    """Two rounds, the second without seat 2's commit; seat 3 lied, and was slashed after a game,
    which was about the first and came in the window of `through_round`."""
    script = Script.ready(make_terms(rounds=2))
    net = script.net
    first = script.honest_round()
    net.wait(10)
    for seat in (0, 1, 3):
        script.commit(seat, 7 if seat == 1 else None)
    net.wait_until(net.deadline)
    net.advance()
    for seat in (0, 1, 3):
        script.reveal(seat)
    script.say(has=0b1011)
    net.wait(1)
    script.settle()
    for round in (first, 1):
        for id in script.auditors(round):
            mismatch = {LIAR: 2} if LIAR in net.duties(round, id) else None
            script.audit_report(round, id, script.body(round, id, mismatch))
        net.wait_until(net.settled[round].ends["audit"])
        for id in script.auditors(round):
            script.open(round, id)
        net.wait_until(net.settled[round].ends["open"])
        script.show_keys(round)
        if round == through_round:
            play(script, 1, VERIFIERS[0], through_round=through_round)
    net.penalise_seat(2)
    net.wait_until(net.settled[1].ends["window"])
    for role, id in list(net.members):
        net.claim(role, id, min(2, net.member(role, id).to))
    net.burn(2)
    return script


def with_strangers(script: Script) -> Script:
    """The same, where members announce gateways that are no URLs."""
    for account, url in zip((*PROVIDERS[:4], VERIFIERS[0]), HOSTILE, strict=True):
        script.net.emit(ev.GatewayAnnounced(account, url))
    return script
