"""A game's moves for people: what each shows, and what it leaves open."""

from __future__ import annotations

from atoll.protocol.games.moves import (
    Claim,
    Move,
    OpenSteps,
    Pick,
    PickNode,
    PickStep,
    PickToken,
    PostLeaf,
    PostTrace,
    PostUpdateProof,
    Prove,
    Reveal,
)


def explain(claim: Claim, move: Move) -> str:
    """A move in one line."""
    match move:
        case OpenSteps(_, states, _):
            count = len(states)
            return f"shows what each of the {count} steps of segment {claim.segment} resulted in"
        case PickStep(step):
            return f"step {step} of the segment is the first that it computed otherwise"
        case PostTrace(_, layer):
            return (
                f"shows the top of the step's trace: {len(layer)} nodes over all that it computed"
            )
        case PostUpdateProof(layer=layer):
            top = "the top of the update proof's trace"
            return f"shows {top}: {len(layer)} nodes over all that it computed"
    return _explain_search(move)


def _explain_search(move: Move) -> str:
    match move:
        case Reveal(layer):
            return f"shows the {len(layer)} nodes below the one in dispute"
        case Pick(child):
            return f"child {child} is the first that differs"
        case PickNode(child):
            return (
                f"child {child} is the first tensor that differs: the search goes on in its bytes"
            )
        case PickToken(token=token):
            return f"token {token} of the node is the first that differs: the search goes on in it"
        case PostLeaf(leaf):
            return f"shows the {len(leaf)} bytes in dispute"
        case Prove(proof):
            shown = len(proof.openings)
            return f"shows the {shown} inputs of element {proof.element}: the contract computes it"
    raise ValueError(f"{move} is no move")
