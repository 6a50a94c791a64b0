"""The held-out loss is worked out while a round trains: no signature waits for its batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.identities import cid, digest
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script
from tests.unit.service.held import MANIFEST, state_of, with_merge, with_updates

from atoll.protocol.types import ZERO_DIGEST, Address, Bitmap, RoundIndex, Verdict
from atoll.service.duties.equivocation import DoCompareSigners
from atoll.service.duties.evaluation import DoEvaluate, LossKnown
from atoll.service.duties.material import DoFetchSpec, SpecReady
from atoll.service.duties.merge import DoMerge
from atoll.service.machine import AnyCommand, Head, State
from atoll_node import machine as provider
from atoll_node.behaviour import ProviderBehaviour
from atoll_verifier import machine as verifier
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.duties.committee import SignVerdict

LOSS = b"\x40\x00\x00\x00\x00\x00\x00\x00"
MERGED = Verdict(Bitmap(0), 4, digest("merged"), cid("merged"), bytes(8))
HELD_OUT = {"eval_cid": cid("text"), "eval_tokens": 1000, "eval_batches": 1 << 16}
EVALUATED = MANIFEST.model_copy(update={"data": MANIFEST.data.model_copy(update=HELD_OUT)})


@pytest.fixture
def script() -> Script:
    """Round 0 has just opened."""
    made = Script.ready()
    made.net.advance()
    return made


def evaluated(net: Network, me: Address, behaviour: Any) -> State[Any]:
    """A member's, of a job that evaluates."""
    state = state_of(net, me, behaviour)
    spec = DoFetchSpec(b"", ZERO_DIGEST).key, SpecReady(EVALUATED.to_bytes())
    return replace(state, entries=state.entries.plus(*spec))


def auditor(script: Script) -> State[Any]:
    return evaluated(script.net, VERIFIERS[0], VerifierBehaviour())


def known(state: State[Any], command: DoEvaluate) -> State[Any]:
    return replace(state, entries=state.entries.plus(command.key, LossKnown(LOSS)))


def wanted(state: State[Any], kind: type[Any], role: Any = verifier) -> list[Any]:
    commands: dict[str, AnyCommand] = {
        c.key: c for d in role.decide(state) for c in d.commands if isinstance(c, kind)
    }
    return list(commands.values())


def test_it_evaluates_while_the_round_trains_by_when_it_merges(script: Script) -> None:
    state, running = auditor(script), script.net.view.open
    assert running is not None
    (evaluate,) = wanted(state, DoEvaluate)
    assert (evaluate.round, evaluate.initial_state) == (0, cid("model 0"))
    assert evaluate.due == running.deadline + script.net.terms.reveal_seconds
    assert wanted(known(state, evaluate), DoEvaluate) == []


def test_who_trains_evaluates_nothing(script: Script) -> None:
    seat = evaluated(script.net, PROVIDERS[0], ProviderBehaviour())
    assert wanted(seat, DoEvaluate, provider) == []


def test_a_verdict_has_the_loss_and_is_not_signed_without(script: Script) -> None:
    """Whichever of merge and loss is missing is worked out, at once where it is both."""
    script.train()
    script.say()
    state = with_updates(auditor(script))
    (evaluate,), (_,) = wanted(state, DoEvaluate), wanted(state, DoMerge)
    merged = with_merge(state, MERGED)
    assert wanted(merged, DoMerge) == wanted(merged, SignVerdict) == []
    assert wanted(merged, DoEvaluate) == [evaluate]
    (sign,) = wanted(known(merged, evaluate), SignVerdict)
    assert sign.verdict == replace(MERGED, loss=LOSS)


def test_after_the_signature_the_next_models_loss_is_worked_out(script: Script) -> None:
    """In the round that it opens: whatever that takes, the settlement before is over."""
    script.honest_round()
    state = auditor(script)
    (evaluate,) = [c for c in wanted(state, DoEvaluate) if c.round == 1]
    assert evaluate.digest == script.net.view.model


@pytest.mark.parametrize("evaluates", [False, True])
@pytest.mark.parametrize(
    ("role", "me", "behaviour"),
    [
        (provider, PROVIDERS[0], ProviderBehaviour()),
        (verifier, VERIFIERS[0], VerifierBehaviour()),
    ],
)
def test_a_loss_not_worked_out_accuses_nobody_and_another_one_does(
    script: Script, role: Any, me: Address, behaviour: Any, evaluates: bool
) -> None:
    """Who only trains believes the certificate's; who has its own looks who signed both."""
    script.train()
    script.say()
    state = with_updates(evaluated(script.net, me, behaviour))
    state = with_merge(state, script.net.verdict(set(), 4))
    script.settle()
    net = script.net
    state = replace(state, view=net.view, head=Head(net.number, net.now), block=net.number)
    if evaluates:
        first = DoEvaluate(RoundIndex(0), digest("model 0"), b"", b"", 0)
        state = known(state, first)
    assert len(wanted(state, DoCompareSigners, role)) == evaluates
