"""The worked examples of the law's chapters are what the second client computes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.second_client import (
    arithmetic,
    constants,
    documents,
    kernels,
    merge,
    model,
    moments,
    money,
    optimisers,
    rounds,
    state,
    words,
)

LAW = Path(__file__).parents[2] / "sdk" / "atoll" / "protocol"
VECTORS = Path(__file__).parents[1] / "vectors"
ROUNDS = json.loads((VECTORS / "rounds.json").read_text())


def unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def rows(*lines: list[float]) -> Any:
    return np.array(lines, np.float32)


X = rows([1, -0.5, 0.25], [0.75, 0.125, -1])
W = rows([0.5, 0.25, -0.125], [-0.75, 1, 0.375])
G = rows([1, -0.25], [0.5, 0.125])
Lines = list[tuple[str, Any]]


def shown(name: str, value: Any) -> str:
    """A line of an example: floats as words, integers as they are, rows apart by a bar."""
    if isinstance(value, bytes):
        return f"{name:<7} {value.hex()}"
    array = np.atleast_1d(np.asarray(value))
    table = array.reshape(-1, array.shape[-1])
    if array.dtype == np.float64 and name in ("n", "h", "l"):
        table = table.astype(np.int64)
    texts = [" ".join(_word(x) for x in row) for row in table]
    return f"{name:<7} {' | '.join(texts)}"


def _word(x: Any) -> str:
    if np.issubdtype(type(x), np.integer):
        return str(x)
    return np.asarray(x).astype(np.asarray(x).dtype.newbyteorder(">")).tobytes().hex()


def grids() -> Lines:
    line = rows([1, -0.3, 0.7, 1e-3])
    (n, s), (h, low, step) = (
        arithmetic.grid(line, 1, arithmetic.INT8),
        arithmetic.split_grid(line, 1),
    )
    total, unit = arithmetic.grid(line, 1, arithmetic.SUM)
    exact = arithmetic.exact_sum(line, 1)
    return [
        ("x", line), ("n", n), ("s", s), ("h", h), ("l", low), ("s", step),
        ("n", total), ("s", unit), ("S(x)", exact),
    ]  # fmt: skip


def functions() -> Lines:
    x = np.array([1, -3.5, 20], np.float32)
    return [
        ("x", x), ("exp", arithmetic.exp(x)), ("σ", arithmetic.sigmoid(x)),
        ("ln |x|", arithmetic.ln(np.abs(x))), ("√|x|", arithmetic.root(np.abs(x))),
    ]  # fmt: skip


def embedding() -> Lines:
    ids = np.array([1, 0, 1])
    g = rows([1, -0.5], [0.3, 2], [0.1, 0.25])
    return [("ids", ids), ("g", g), ("dtable", kernels.embedding_gradient(g, ids, 2))]


def linear() -> Lines:
    y, saved = kernels.linear(X, W)
    dx, dw = kernels.linear_gradient(G, saved)
    return [
        ("x", X),
        ("W", W),
        ("y", y),
        ("g", G),
        ("dx", dx),
        ("dW", dw),
        ("db", kernels.bias_gradient(G)),
    ]


def adapter() -> Lines:
    a, b, scale = rows([0.25, -0.5, 0.75]), rows([0.5], [-1]), np.float32(3)
    weights = {"w": W, "w.lora_A": a, "w.lora_B": b}
    y, saved = model.linears(X, ["w"], weights, scale)
    dx, found = model.linears_gradient(G, saved)
    return [
        ("A", a), ("B", b), ("y", y), ("dx", dx), ("dA", found["w.lora_A"]),
        ("dB", found["w.lora_B"]),
    ]  # fmt: skip


def head() -> Lines:
    y, saved = kernels.head(X, W)
    dx, dw = kernels.head_gradient(G, saved)
    return [("y", y), ("dx", dx), ("dW", dw)]


def norm() -> Lines:
    gain = np.array([1, 0.5, 2], np.float32)
    y, saved = kernels.rms_norm(X, gain, 1e-5)
    dx, dgain = kernels.rms_norm_gradient(W, saved)
    return [("gain", gain), ("r", saved[1]), ("y", y), ("g", W), ("dx", dx), ("dgain", dgain)]


UNSCALED = {"kind": "none", "factor": "1", "low": "0", "high": "0", "positions": 0}
ROTARY = {"head_dim": 2, "rope_base": 10000, "rope_scaling": UNSCALED, "seq": 2}


def rotation() -> Lines:
    x = rows([1, -0.5], [0.75, 0.125])
    tables = constants.rotary(ROTARY)
    return [("c", tables[0]), ("s", tables[1]), ("x", x), ("y", kernels.rotate(x, *tables))]


def attention() -> Lines:
    q, k = rows([1, -0.5], [0.75, 0.125])[None, None], rows([0.5, 1], [-0.25, 2])[None, None]
    v, g = rows([1, 0], [-0.5, 0.25])[None, None], rows([1, 1], [0.5, -1])[None, None]
    o, saved = kernels.attention(q, k, v)
    found = zip(("dq", "dk", "dv"), kernels.attention_gradient(g, saved), strict=True)
    return [("q", q), ("k", k), ("v", v), ("r", saved[3][2]), ("o", o), ("g", g), *found]


def gates() -> Lines:
    gate, up, g = (np.array(x, np.float32) for x in ([1, -2], [0.5, 3], [1, -0.25]))
    dgate, dup = kernels.swiglu_gradient(g, gate, up)
    return [
        ("gate", gate), ("up", up), ("y", kernels.swiglu(gate, up)), ("g", g),
        ("dgate", dgate), ("dup", dup),
        ("relu2", kernels.squared_relu(gate)), ("drelu2", kernels.squared_relu_gradient(g, gate)),
    ]  # fmt: skip


def dropout() -> Lines:
    keep = arithmetic.kept("0.45", (1, 2), 3, 4, range(4, 12))
    words = [word[0] for word in arithmetic.philox(([1], [0], [3], [4]), (1, 2))]
    return [
        ("words", np.array(words, np.uint64).astype(np.int64)), ("kept", keep.astype(np.int64)),
        ("k", arithmetic.dropout_scale("0.45")),
    ]  # fmt: skip


def loss() -> Lines:
    targets = np.array([2, 0])
    value, saved = kernels.cross_entropy(X, targets)
    back = kernels.cross_entropy_gradient(np.float32(1.0), saved)
    return [("logits", X), ("target", targets), ("loss", value), ("dlogit", back)]


def adamw() -> Lines:
    p, m, v, g = (np.array([x], np.float32) for x in (0.5, 0.01, 0.0001, 0.2))
    inner = {"beta1": "0.9", "beta2": "0.999", "eps": "0.00000001", "weight_decay": "0.1"}
    first = 1.0 / float(1 - constants.Decimal("0.9") ** 2)
    second = 1.0 / float(1 - constants.Decimal("0.999") ** 2)
    after = optimisers.adamw(p, m, v, g, (0.5, 0.001, first, second), inner)
    found = zip(("p'", "m'", "v'"), after, strict=True)
    return [("p", p), ("m", m), ("v", v), ("g", g), *found]


def muon() -> Lines:
    return [("A", W), ("result", optimisers.orthogonalised(W))]


def lion() -> Lines:
    p, m = rows([0.5, -0.25, 0.125, 1]), rows([0.01, -0.01, 0, 2**-90])
    g = rows([-0.2, -0.2, 0, 0])
    inner = {"beta1": "0.9", "beta2": "0.99", "weight_decay": "0.1"}
    after = optimisers.lion(p, m, g, (0.5, 0.001), inner)
    return [("p", p), ("m", m), ("g", g), *zip(("p'", "m'"), after, strict=True)]


def weights() -> Lines:
    smallest = {
        "kind": "llama", "vocab": 8, "width": 8, "layers": 1, "heads": 1, "kv_heads": 1,
        "head_dim": 8, "qkv_bias": False, "qk_norm": False, "mlp": "relu2", "ffn": 8, "tied": True,
    }  # fmt: skip
    params = constants.initial_params(documents.shapes_of(smallest), 7)
    return [
        ("first", params["model.embed_tokens.weight"].reshape(-1)[:4]),
        ("q_proj", params["model.layers.0.self_attn.q_proj.weight"].reshape(-1)[:4]),
    ]


def states() -> Lines:
    tensors = {"params/a": rows([1, -0.5], [0.75, 0.125]), "count": np.array(3, np.int64)}
    blob = state.write_blob("atoll.seat-state.v1", {"batches": 2, "count": 3}, tensors)
    size = len(state.MAGIC) + 4
    header = len(blob) - 16 - 8
    return [
        ("start", blob[:size]), ("header", blob[size:header]), ("count", blob[header : header + 8]),
        ("a", blob[header + 8 :]), ("root", state.tree_root(tensors)),
    ]  # fmt: skip


SECOND = {"w": rows([0.5, 0.3, 0.001], [1e-7, 2e-10, 0.0]), "x": np.array([0.25, 0], np.float32)}


def initial_state() -> Lines:
    sums = moments.sums_of({"w": SECOND["w"]})
    n = np.array([[3, -1, 0], [40, 0, -127]], np.int8)
    m = moments.initial_m(n, -8)
    return [
        ("sent", SECOND["w"]), ("r", sums["rows"]["w"]), ("c", sums["columns"]["w"]),
        ("R", moments.sums_along(sums["rows"]["w"], 0)),
        ("n", n), ("m", m), ("v", moments.initial_v(m, sums, "w")),
    ]  # fmt: skip


def manifest() -> Lines:
    """The demo's: what two sections of it are encoded as, and what the whole is called."""
    data = unhex(json.loads((VECTORS / "manifest.json").read_text())["bytes"])
    plain, digest = documents.read_manifest(data), hashlib.sha256(data).digest()
    return [
        ("init", words.encode_cbor(plain["init"])),
        ("robust", words.encode_cbor(plain["robust"])),
        ("bytes", np.array([len(data)])),
        ("digest", digest),
        ("cid", bytes((1, 0x71, 0x12, 0x20)) + digest),
    ]


def tables() -> Lines:
    inner = {
        "optimizer": "adamw", "lr": "0.003", "beta1": "0.9", "beta2": "0.95", "steps": 3,
        "schedule": "cosine", "warmup_steps": 1,
    }  # fmt: skip
    job = {"model": ROTARY, "inner": inner, "terms": {"rounds": 1}}
    cosines, sines = constants.rotary(ROTARY)
    steps = range(constants.total_steps(job))
    return [
        ("rates", np.array([constants.rate(job, step) for step in steps])),
        ("corr", np.array([constants.corrections(job, step + 1) for step in steps])),
        ("cos", cosines), ("sin", sines), ("root", constants.tables_root(job)),
    ]  # fmt: skip


def worked_round() -> Lines:
    """A commitment, seeds, votes, draws and pay of the round in the vectors."""
    at, seeds, told = ROUNDS["roundId"], ROUNDS["seeds"], ROUNDS["commit"]
    round_id = (at["chainId"], unhex(at["rounds"]), at["jobId"], at["round"])
    reveal = {name: unhex(value) for name, value in told["reveal"].items()}
    seed, account, model_ = (unhex(told[name]) for name in ("seed", "account", "model"))
    made = rounds.commitment(round_id, seed, told["seat"], account, reveal, model_)
    reveals, block_hash = unhex(seeds["reveals"]), unhex(seeds["blockHash"])
    draw = ROUNDS["draws"][0]
    drawn_by, ready = unhex(draw["seed"]), int(draw["ready"], 16)
    record = {"revealed": int(draw["revealed"], 16), "excluded": 0}
    by = rounds.auditors_of(drawn_by, rounds.drawn_seats(drawn_by, record, 2, 99), ready)
    values = [unhex(v) if str(v).startswith("0x") else int(v) for v in ROUNDS["money"]["terms"]]
    terms = dict(zip(money.TERMS, values, strict=True))
    return [
        ("commit", made),
        ("R", rounds.reveals_accumulator(seed, [(told["seat"], made)])),
        ("data", rounds.data_seed(round_id, reveals, block_hash)),
        ("audit", rounds.audit_seed(round_id, reveals, block_hash)),
        ("ℓ₁", rounds.later_committee(unhex(seeds["auditSeed"]), 1)),
        ("votes", rounds.votes_accumulator(seed, [(2, 0b1011)])),
        ("slots", np.array(rounds.committee_of(drawn_by, ready))),
        ("drawn", np.array(list(by))),
        ("by", np.array(list(by.values()))),
        ("P", np.array([terms["segment_pay"]], object)),
        ("budget", np.array([money.budget(terms)], object)),
    ]


def four_seats() -> Lines:
    """The round of SPEC-ROUNDS.md, 14: seeds cut off, who takes part, and wei."""
    round_id = (31337, (1).to_bytes(20, "big"), 1, 2)
    terms = dict.fromkeys(money.TERMS, 0) | {
        "rounds": 10, "seats": 4, "slots": 3, "f": 1, "audit_rate": 2, "last_rate": 2, "steps": 40,
        "segment_steps": 10, "tokens_per_step": 100, "segment_pay": 1000, "sign_fee": 50,
        "duty_fee": 300, "audit_seconds": 600, "open_seconds": 60, "key_seconds": 60,
        "window_seconds": 1200,
    }  # fmt: skip
    done, votes = {2: 4, 0: 4, 1: 3, 3: 4}, {1: 0b1111, 0: 0b1111, 2: 0b0111}
    data_seed = rounds.data_seed(round_id, bytes([1] * 32), bytes([2] * 32))
    reveals = rounds.reveals_accumulator(
        data_seed, [(seat, bytes([0x10 + seat] * 32)) for seat in done]
    )
    audit_seed = rounds.audit_seed(round_id, reveals, bytes([4] * 32))
    grams = [[[s if i == j == 2 else 100 if i == j else 50 for j in range(4)] for i in range(4)]
             for s in (900, 100)]  # fmt: skip
    chain = {"segments": done, "committee": 3, "votes": list(votes.values())}
    rule = {"rule": "trimmed_mean", "f": 1, "kappa": "2.5", "segments": 4}
    inputs = merge.merge_inputs(
        chain | {"slashed": 0, "accused": 0}, range(4), grams[0], rule, grams[1]
    )
    out = sum(1 << seat for seat in inputs["excluded"])
    record = {"revealed": 0b1111, "excluded": out, "ready": 0b111, "committee": 0b111}
    drawn = rounds.drawn_seats(audit_seed, record, 2, money.most_duties(terms))
    by = rounds.auditors_of(audit_seed, drawn, 0b111)
    price, signed, unopened, unpaid = terms["segment_pay"], 0b011, {2}, {3}
    fees = [
        50 * (signed >> slot & 1) + 300 * (slot not in unopened) * list(by.values()).count(slot)
        for slot in range(3)
    ]
    earn = money.may_earn(terms, record, sum(done.values()), len(by))
    return [
        ("data", data_seed[:4]), ("R", reveals[:4]), ("audit", audit_seed[:4]),
        ("votes", rounds.votes_accumulator(data_seed, votes.items())[:4]),
        ("members", np.array(rounds.committee_of(audit_seed, 0b111))),
        ("avail", np.array(merge.available_seats(chain))),
        ("named", np.array([finding["seat"] for finding in inputs["named"]])),
        ("excl", np.array(inputs["excluded"])), ("merged", np.array(inputs["merged"])),
        ("drawn", np.array(list(by))), ("by", np.array(list(by.values()))),
        ("ends", np.array(list(money.audit_clock(terms, 0, record, last=False).values()))),
        ("P", np.array([price])),
        ("seats", np.array([0 if s in unpaid else done[s] * price for s in range(4)])),
        ("slots", np.array(fees)), ("burnt", np.array([sum(done[s] * price for s in unpaid)])),
        ("penalty", np.array([money.penalty(80_000, 100, level) for level in (0, 1)])),
        ("earn", np.array([earn])),
        ("round", np.array([money.round_budget(terms)])),
        ("budget", np.array([money.budget(terms)])),
    ]  # fmt: skip


EXAMPLES = (
    manifest, tables, worked_round, four_seats, grids, functions, embedding, linear, adapter, head,
    norm, rotation, attention, gates, dropout, loss, adamw, muon, lion, weights, initial_state,
    states,
)  # fmt: skip


def block(example: Any) -> str:
    return "\n".join(shown(name, value) for name, value in example())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_the_text_has_the_example(example: Any) -> None:
    texts = [path.read_text() for path in sorted(LAW.glob("SPEC*.md"))]
    assert any(block(example) in text for text in texts)


def game() -> str:
    """The moves of a game of the vectors: by whom, bytes of calldata, what is known then."""
    moves = json.loads((VECTORS / "games" / "0.json").read_text())["moves"]
    return "\n".join(
        f"{'H' if m['byHolder'] else 'C'} {m['name']:<9} {len(m['data']) // 2 - 1:>4} {m['digest']}"
        for m in moves
    )


def test_the_text_has_the_game() -> None:
    assert game() in (LAW / "SPEC-GAME.md").read_text()
