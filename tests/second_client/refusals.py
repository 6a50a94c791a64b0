"""What a manifest is refused for: SPEC-BYTES.md, chapter 1, SPEC.md, 6, and SPEC-ROUNDS.md, 12.

Rule of this file: every field is named with what it may hold, in the order of the text; a rule
between fields is one line under what it says. Bounds of terms that a deployment chooses, and the
clock, are the contract's to hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from math import comb
from typing import Any

from tests.second_client import rules
from tests.second_client.codec import CODECS
from tests.second_client.families import LAYERS, MLPS
from tests.second_client.optimisers import FIELDS, OPTIMISERS

Plain = Mapping[str, Any]
Check = Callable[[Any], bool]

FRACTION = re.compile(r"(0|[1-9][0-9]{0,9})(\.[0-9]{0,17}[1-9])?", re.ASCII)
AMOUNT = re.compile(r"0|[1-9][0-9]{0,38}", re.ASCII)
LINEARS = ["q", "k", "v", "o", "gate", "up", "down"]
MOST_PRODUCTS = (2**31 - 1) // 127**2
"""Of two int8 integers, which int32 sums."""


def integer(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def fraction(low: str, high: str, *, is_open: bool = False) -> Check:
    """In [low, high], or (low, high] where it is open."""

    def check(value: Any) -> bool:
        if not isinstance(value, str) or not FRACTION.fullmatch(value):
            return False
        number = Fraction(value)
        least = Fraction(low)
        return (least < number if is_open else least <= number) and number <= Fraction(high)

    return check


def one_of(*values: str) -> Check:
    return lambda value: isinstance(value, str) and value in values


def list_of(check: Check, least: int, most: int) -> Check:
    def is_list(value: Any) -> bool:
        return isinstance(value, list) and least <= len(value) <= most and all(map(check, value))

    return is_list


def octets(count: int) -> Check:
    return lambda value: isinstance(value, bytes) and len(value) == count


def or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


def is_cid(value: Any) -> bool:
    """36 bytes: version 1, a codec (raw, dag-pb or dag-cbor), and SHA-256 with its length."""
    head = {bytes((1, codec, 0x12, 0x20)) for codec in (0x55, 0x70, 0x71)}
    return octets(36)(value) and value[:4] in head


def is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def is_amount(value: Any) -> bool:
    is_text = isinstance(value, str) and AMOUNT.fullmatch(value)
    return bool(is_text) and int(value) < 1 << 128


def of(fields: Mapping[str, Check], *, optional: Collection[str] = ()) -> Check:
    """A map of exactly these fields, the optional ones where they are. What is refused is said by
    its place.
    """

    def check(value: Any) -> bool:
        if not isinstance(value, Mapping) or set(value) | set(optional) != set(fields):
            return False
        for name, each in fields.items():
            if name in value and not each(value[name]):
                raise ValueError(f"{name} is not what it may be")
        return True

    return check


BETA, SCALE = fraction("0", "0.999999"), fraction("0", "1000")
POSITIVE, EPS = fraction("0", "1000", is_open=True), fraction("0", "0.1")
EXPONENTS = of(dict.fromkeys(("embedding", "matrix", "vector"), integer(-60, 0)))
SECONDS = integer(1, 2**32 - 1)
WINDOWS = ("train", "reveal", "merge", "audit", "open", "key", "window")

MODEL = of(
    {
        "kind": one_of(*LAYERS),
        "vocab": integer(2, 2**20),
        "width": integer(8, 2**15),
        **dict.fromkeys(("layers", "heads", "kv_heads"), integer(1, 256)),
        "head_dim": integer(2, 2**15),
        **dict.fromkeys(("qkv_bias", "qk_norm", "tied"), is_boolean),
        "mlp": one_of(*MLPS),
        "ffn": integer(8, 2**17),
        "seq": integer(2, 2**17),
        "norm_eps": fraction("0", "0.1", is_open=True),
        "rope_base": integer(2, 10**9),
        "rope_scaling": of(
            {
                "kind": one_of("none", "linear", "llama3"),
                "factor": fraction("1", "1000"),
                **dict.fromkeys(("low", "high"), SCALE),
                "positions": integer(0, 2**24),
            }
        ),
    }
)


def are_targets(value: Any) -> bool:
    """One at least, in the order of the text, each once."""
    return isinstance(value, list) and value == [t for t in LINEARS if t in value] != []


LORA = of({"rank": integer(1, 2**15), "alpha": POSITIVE, "targets": are_targets})
DATA = of(
    {
        **dict.fromkeys(("cid", "nodes_cid", "tokenizer_cid"), is_cid),
        "root": octets(32),
        "dtype": one_of("uint8", "uint16", "uint32"),
        "masked": is_boolean,
        "aligned": is_boolean,
        "train_tokens": integer(2, 2**60 - 1),
        "eval_cid": or_null(is_cid),
        "eval_tokens": integer(0, 2**60 - 1),
        "eval_batches": integer(0, 2**16),
    }
)
INNER = of(
    {
        "optimizer": one_of(*OPTIMISERS),
        "lr": fraction("0", "10000", is_open=True),
        **dict.fromkeys(("momentum", "beta1", "beta2"), BETA),
        "eps": EPS,
        "weight_decay": SCALE,
        "dropout": fraction("0", "0.9"),
        "clip": POSITIVE,
        "schedule": one_of("constant", "cosine"),
        "warmup_steps": integer(0, 2**32 - 1),
        **dict.fromkeys(("steps", "segment"), integer(1, 2**32 - 1)),
        **dict.fromkeys(("batch", "micro_batch", "lanes"), integer(1, 2**20)),
    }
)
OUTER = of(
    {
        "kind": one_of("sgd", "nesterov", "adam", "sign", "delayed_nesterov"),
        "lr": POSITIVE,
        **dict.fromkeys(("momentum", "beta2"), BETA),
        "eps": EPS,
        "period": integer(0, 256),
    }
)
CODEC = of(
    {
        "kind": one_of(*CODECS),
        **dict.fromkeys(("exponents", "moment_exponents"), EXPONENTS),
        **dict.fromkeys(("min_exponent", "max_exponent"), integer(-60, 0)),
        "feedback": fraction("0", "1"),
        "fragments": integer(1, 64),
        "overlap": integer(0, 2**32 - 1),
        "mixing": BETA,
    }
)
ROBUST = of(
    {
        "rule": one_of(*rules.RULES, "contributor_mean"),
        "f": integer(0, 127),
        "kappa": fraction("1", "1000"),
    }
)
TERMS = of(
    {
        "rounds": integer(1, 2**24 - 2),
        **dict.fromkeys(("seats", "slots"), integer(1, 256)),
        **dict.fromkeys(("min_providers", "min_verifiers"), integer(1, 256)),
        "f": integer(0, 255),
        "audit_rate": integer(0, 15),
        **dict.fromkeys(("last_rate", "rate_steps"), integer(0, 15)),
        **{f"{name}_seconds": SECONDS for name in (*WINDOWS, "ready", "game", "move", "claim")},
        "expiry": integer(0, 2**64 - 1),
        **dict.fromkeys(("steps", "segment_steps"), integer(1, 2**32 - 1)),
        "tokens_per_step": integer(1, 2**64 - 1),
        **dict.fromkeys(("segment_pay", "sign_fee", "duty_fee"), is_amount),
        **dict.fromkeys(("provider_bond", "verifier_bond"), is_amount),
        "program": octets(32),
    }
)
MANIFEST = of(
    {
        "version": integer(1, 1),
        "name": lambda value: isinstance(value, str) and 1 <= len(value) <= 64,
        "created": integer(0, 2**63 - 1),
        "tables": octets(32),
        "reset_period": integer(1, 2**32 - 1),
        "about": lambda value: isinstance(value, str) and 1 <= len(value) <= 1000,
        "model": MODEL,
        "lora": or_null(LORA),
        "numerics": of(dict.fromkeys(("code_digest", "probe_digest"), octets(32))),
        "init": of(
            {
                "seed": or_null(integer(0, 2**64 - 1)),
                "cid": or_null(is_cid),
                "root": or_null(octets(32)),
            }
        ),
        "data": DATA,
        "inner": INNER,
        "outer": OUTER,
        "codec": CODEC,
        "robust": ROBUST,
        "terms": TERMS,
    },
    optional=("about",),
)


REWARD = of(
    {
        "kind": one_of("answer", "length"),
        "weight": integer(1, 1000),
        **dict.fromkeys(
            ("opening", "closing"), lambda value: isinstance(value, str) and len(value) <= 32
        ),
        **dict.fromkeys(("least", "most"), integer(0, 2**17)),
    }
)
TASK = of(
    {
        "prompts": integer(1, 2**40 - 1),
        "prompt_tokens": integer(1, 2**16),
        "answer_bytes": integer(1, 64),
        "group": integer(2, 256),
        "new_tokens": integer(1, 2**16),
        "ends": list_of(integer(0, 2**20 - 1), 0, 8),
        "rewards": list_of(REWARD, 1, 8),
    }
)


def refuse(is_wrong: bool, why: str) -> None:
    if is_wrong:
        raise ValueError(why)


def check_manifest(manifest: Any) -> None:
    """Raises ValueError with the reason where a manifest is refused."""
    is_text = not (isinstance(manifest, dict) and "task" in manifest)
    plain = manifest if is_text else {k: v for k, v in manifest.items() if k != "task"}
    refuse(not MANIFEST(plain), "not the fields of a manifest")
    refuse(not (is_text or TASK(manifest["task"])), "not the fields of a task")
    model, inner, codec = (manifest[name] for name in ("model", "inner", "codec"))
    check_scaling(model["rope_scaling"])
    check_sums(model, inner["micro_batch"])
    check_adapters(manifest["lora"], manifest["init"], model)
    check_inner(inner)
    check_outer(manifest["outer"])
    check_codec(codec, manifest["robust"]["rule"])
    check_terms(manifest["terms"])
    check_rule(manifest["robust"], manifest["terms"]["seats"])
    check_data(manifest["data"], model)
    if is_text:
        refuse(manifest["data"]["train_tokens"] <= model["seq"], "data no longer than a sequence")
    else:
        check_task(manifest)
    terms = manifest["terms"]
    refuse(terms["steps"] != inner["steps"], "the terms' steps are not H")
    refuse(terms["segment_steps"] != inner["segment"], "the terms' segments are not of k steps")
    refuse(terms["f"] != manifest["robust"]["f"], "the terms' f is not the rule's")
    tokens = inner["batch"] * model["seq"]
    refuse(terms["tokens_per_step"] != tokens, "the terms' tokens per step are not B·T")
    refuse(terms["rounds"] * inner["steps"] > 2**20, "more than 2²⁰ steps")
    carries = codec["feedback"] != "0" or codec["fragments"] > 1
    carries = carries or codec["overlap"] > 0 or codec["mixing"] != "0"
    most = terms["rounds"] if carries else 1
    refuse(manifest["reset_period"] > most, "not this codec's reset period")
    refuse(codec["overlap"] >= inner["steps"], "an overlap that is not below H")
    refuse(codec["fragments"] > model["layers"], "more fragments than layers")
    is_delayed = manifest["outer"]["kind"] == "delayed_nesterov"
    refuse(is_delayed and codec["fragments"] > 1, "fragments with delayed_nesterov")


def check_scaling(scaling: Plain) -> None:
    kind = scaling["kind"]
    refuse(kind == "none" and scaling["factor"] != "1", "no scaling has factor 1")
    figures = (scaling["low"], scaling["high"], scaling["positions"])
    if kind != "llama3":
        refuse(figures != ("0", "0", 0), f"{kind} uses no low, high and positions")
    else:
        low, high = (Fraction(scaling[name]) for name in ("low", "high"))
        refuse(not 0 < low < high or scaling["positions"] < 1, "llama3 without its figures")


def check_sums(model: Plain, micro_batch: int) -> None:
    """No exact sum overflows, and the tables have a size."""
    heads, size, width = model["heads"], model["head_dim"], model["width"]
    refuse(heads % model["kv_heads"] != 0, "kv_heads do not divide heads")
    refuse(size % 2 == 1, "an odd head size")
    refuse(model["seq"] * size > 2**24, "sequence length times head size above 2²⁴")
    ffn = model["ffn"] * (2 if model["mlp"] == "swiglu" else 1)
    stacked = (heads + 2 * model["kv_heads"]) * size
    for name, inner in (("ffn", ffn), ("attention", stacked)):
        refuse(inner > MOST_PRODUCTS, f"{name} beyond int32's sums")
    is_one_row = model["qk_norm"] and not LAYERS[model["kind"]].by_head
    refuse(is_one_row and heads * size > 2**17, "queries of more numbers than a norm takes")
    refuse(micro_batch * model["seq"] > MOST_PRODUCTS, "a micro-batch beyond int32's sums")
    rows = max(model["vocab"], model["ffn"], heads * size)
    refuse(rows * width >= 2**31, "a tensor of 2³¹ elements")


def check_adapters(lora: Plain | None, init: Plain, model: Plain) -> None:
    given = tuple(init[name] is not None for name in ("seed", "cid", "root"))
    if lora is None:
        refuse(given not in {(True, False, False), (False, True, True)}, "not one origin")
        return
    refuse(given != (True, True, True), "adapters need seed, cid and root")
    width, queries = model["width"], model["heads"] * model["head_dim"]
    keys = model["kv_heads"] * model["head_dim"]
    rows = {"q": queries, "k": keys, "v": keys, "o": queries}
    for target in lora["targets"]:
        refuse(target == "gate" and model["mlp"] == "relu2", "no gate with relu2")
        smaller = min(width, rows.get(target, model["ffn"]))
        refuse(lora["rank"] > smaller, f"a rank above a dimension of {target}")


def check_inner(inner: Plain) -> None:
    kind = inner["optimizer"]
    refuse(inner["steps"] % inner["segment"] != 0, "k does not divide H")
    refuse(inner["steps"] // inner["segment"] > 64, "more than 64 segments")
    refuse(inner["batch"] % inner["micro_batch"] != 0, "the micro-batch does not divide the batch")
    losses = inner["batch"] // inner["micro_batch"]
    refuse(losses % inner["lanes"] != 0, "the lanes do not divide the micro-batches")
    shown = inner["segment"] * (40 + 4 * losses)
    refuse(shown > 32_768, "a segment that no first move can show")
    reads = OPTIMISERS[kind].reads
    for name in FIELDS:
        refuse(name not in reads and inner[name] != "0", f"{kind} uses no {name}")
    refuse("eps" in reads and inner["eps"] == "0", f"{kind} divides by eps")


def check_outer(outer: Plain) -> None:
    used = {
        "sgd": (), "sign": (), "nesterov": ("momentum",), "adam": ("momentum", "beta2", "eps"),
        "delayed_nesterov": ("momentum", "period"),
    }[outer["kind"]]  # fmt: skip
    for name in ("momentum", "beta2", "eps", "period"):
        refuse(name not in used and outer[name] not in ("0", 0), f"no {name} is used")
    is_small = outer["kind"] == "adam" and Fraction(outer["eps"]) < Fraction("0.000001")
    refuse(is_small, "adam's eps is below 10⁻⁶")
    refuse(outer["kind"] == "delayed_nesterov" and outer["period"] < 2, "a period below 2")


def check_codec(codec: Plain, rule: str) -> None:
    kind, low, high = codec["kind"], codec["min_exponent"], codec["max_exponent"]
    for start in (codec["exponents"], codec["moment_exponents"]):
        for name, exponent in start.items():
            refuse(not low <= exponent <= high, f"exponent of {name} outside its bounds")
    refuse(
        CODECS[kind].is_sparse != (rule == "contributor_mean"),
        "sparse codecs and their rule go together",
    )
    feeds_back = codec["feedback"] != "0"
    if CODECS[kind].is_exact:
        refuse(rule != "mean" or feeds_back, "fp32 is merged by mean, without feedback")
        refuse((low, high) != (-40, -40), "exponents of fp32 are −40")
    is_plain = codec["fragments"] == 1 and codec["overlap"] == 0
    refuse(feeds_back and not is_plain, "feedback with fragments or overlap")


def check_terms(terms: Plain) -> None:
    refuse(terms["min_providers"] > terms["seats"], "more providers than seats")
    refuse(terms["min_verifiers"] > terms["slots"], "more verifiers than slots")
    refuse(terms["f"] > most_borne(terms["seats"]), "f is above what the seats bear")
    lower = 15 - terms["audit_rate"] if terms["f"] and terms["audit_rate"] else 0
    refuse(terms["rate_steps"] > lower, "more steps than rates below")
    refuse(terms["window_seconds"] < 2 * terms["game_seconds"], "a window below two games")
    together = sum(terms[f"{name}_seconds"] for name in WINDOWS)
    refuse(together > 60 * 86_400, "windows of more than 60 days")
    refuse(terms["steps"] % terms["segment_steps"] != 0, "segment_steps do not divide steps")
    refuse(terms["steps"] // terms["segment_steps"] > 1024, "more than 1024 segments")
    refuse(terms["steps"] * terms["tokens_per_step"] >= 2**64, "tokens beyond 64 bits")
    for name in ("provider_bond", "verifier_bond"):
        refuse(int(terms[name]) < 80, f"{name} is below 80 wei")


def most_borne(seats: int) -> int:
    """3f < seats, and 0 of fewer than four."""
    return (seats - 1) // 3 if seats >= 4 else 0


def check_rule(robust: Plain, seats: int) -> None:
    f, rule = robust["f"], robust["rule"]
    refuse(f > most_borne(seats), "f is above what the seats bear")
    refuse(f > 0 and rule in rules.BEAR_NOBODY, "a rule that bears nobody")
    refuse(seats < rules.least(rule, f), "Krum among too few")
    most = rules.SUBSETS.get(rule.removeprefix("nnm_"))
    refuse(most is not None and comb(seats, f) > most, "too many subsets")


def check_data(data: Plain, model: Plain) -> None:
    bits = {"uint8": 8, "uint16": 16, "uint32": 32}[data["dtype"]] - data["masked"]
    refuse(model["vocab"] > 1 << bits, "a word does not hold the vocabulary")
    refuse((data["eval_cid"] is None) != (data["eval_tokens"] == 0), "eval_tokens without a cid")
    is_evaluated = data["eval_cid"] is not None and data["eval_batches"] > 0
    refuse(is_evaluated and data["eval_tokens"] <= model["seq"], "held-out data is too short")


def check_task(manifest: Plain) -> None:
    task, data, inner, model = (manifest[name] for name in ("task", "data", "inner", "model"))
    refuse(task["ends"] != sorted(set(task["ends"])), "end tokens that do not ascend")
    for reward in task["rewards"]:
        markers = len((reward["opening"] + reward["closing"]).encode())
        if reward["kind"] == "length":
            refuse(markers > 0 or reward["least"] > reward["most"], "a length")
        else:
            refuse(reward["least"] + reward["most"] > 0, "an answer with a length")
            refuse(markers + task["answer_bytes"] > 64, "an answer longer than a window")
    refuse(task["prompt_tokens"] + task["new_tokens"] > model["seq"], "longer than the model")
    refuse(inner["batch"] % task["group"] != 0, "a group that is cut")
    refuse(any(end >= model["vocab"] for end in task["ends"]), "an end that is no token")
    sampled = 4 * inner["steps"] * inner["batch"] * (model["seq"] + 1)
    refuse(sampled > 2**26, "more ids than a round may have")
    refuse(inner["dropout"] != "0", "dropout of what is sampled")
    is_odd = data["masked"] or data["aligned"] or data["eval_cid"] is not None
    refuse(is_odd, "prompts that are masked, aligned or held out")
    row = 2 + task["prompt_tokens"] + task["answer_bytes"]
    words = task["prompts"] * row + 33 * model["vocab"]
    refuse(data["train_tokens"] != words, "other words than the task's")
    least = max(model["vocab"], 256, task["prompt_tokens"] + 1)
    bits = {"uint8": 8, "uint16": 16, "uint32": 32}[data["dtype"]]
    refuse(least > 1 << bits, "a word that does not hold a row's numbers")
